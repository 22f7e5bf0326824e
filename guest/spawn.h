/* A command as it was asked for, and its process as it was made. */
#ifndef PROMIGENCE_SPAWN_H
#define PROMIGENCE_SPAWN_H

#include "result.h"

/* `graded`: the command that this one grades, or NULL; then `result` is the directory of its result file. */
struct request {
	const char *id, *cwd, *user, *graded;
	int result;
	char result_path[RESULT_PATH];
	uint64_t timeout_ns, limit;
	char **argv, **env;
};

struct spawned {
	pid_t pid;
	int out, err, report;
};

/* Reads a request in place; NULL, or what is wrong with it. The strings live in `text`, the arrays until the next
 * request is read. */
const char *request_read(struct request *request, char *text, size_t count);

/* Starts it in a group of its own. NULL, or why there is no process. Whether its exec succeeded is told by `report`:
 * closed without a word, or closed after the reason. */
const char *spawn(const struct request *request, int group, struct spawned *child);

#endif
