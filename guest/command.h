/* A command as PID 1 keeps it, between its life (command.c), the journal (journal.c) and the door (door.c). */
#ifndef PROMIGENCE_COMMAND_H
#define PROMIGENCE_COMMAND_H

#include "guest.h"
#include "spawn.h"

struct client;

enum state { STARTING, RUNNING, ENDED, FORGOTTEN };

struct command;

struct stream {
	struct source source;
	struct command *command;
	struct capture capture;
};

struct command {
	char id[ID_LIMIT + 1];
	enum state state;
	pid_t pid;
	int group;
	bool reaped, timed_out;
	int status;
	uint64_t started_ns, deadline_ns, ended_ns;
	/* Until the end, `oom_elsewhere` is the machine's count at the start. */
	uint64_t oom_kills, oom_elsewhere;
	struct stream out, err;
	struct source report;
	/* Of a grade: the directory of its result file, else -1. */
	int result;
	struct client *asker;
	char *line;
	struct command *next;
};

/* journal.c */
struct command *journal(void);
bool journal_is_full(void);
void journal_add(struct command *c);
void journal_end(struct command *c);
void journal_remove(struct command *c);
struct command *command_find(const char *id);
bool command_is_live(const struct command *c);
void commands_disown(const struct client *client);

/* command.c */
const char *command_begin(struct client *asker, struct request *request);

/* door.c; a client that has gone is NULL, and is answered nothing. */
void door_answer(struct client *client, const char *text);

#endif
