/* Where a grade writes what it found. */
#ifndef PROMIGENCE_RESULT_H
#define PROMIGENCE_RESULT_H

#include "guest.h"

#define RESULT_PATH 128

int result_make(char path[RESULT_PATH]);
int result_open(int directory);

#endif
