/* The journal of commands: which ids were started, each at most once, and what became of them.
 *
 * It is PID 1's own memory: no signal of an agent that is root can reach it, so `kill -9 -1` loses a command's processes
 * but never the news of their end.
 */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOURNAL_LIMIT 32768
#define MEMORY_LIMIT_BYTES (4ull << 20)
#define DISK_LIMIT_BYTES (512ull << 20)
#define KEPT_ALWAYS 8

static struct command *first, **last = &first;
static size_t size;

struct command *journal(void)
{
	return first;
}

bool journal_is_full(void)
{
	return size >= JOURNAL_LIMIT;
}

void journal_add(struct command *c)
{
	*last = c;
	last = &c->next;
	size++;
}

struct command *command_find(const char *id)
{
	for (struct command *c = first; c; c = c->next)
		if (!strcmp(c->id, id))
			return c;
	return NULL;
}

/* The client went away; whatever it asked for goes on. */
void commands_disown(const struct client *client)
{
	for (struct command *c = first; c; c = c->next)
		if (c->asker == client)
			c->asker = NULL;
}

bool command_is_live(const struct command *c)
{
	return c->state == STARTING || c->state == RUNNING;
}

static void append_number(char **at, const char *key, uint64_t number)
{
	*at += sprintf(*at, " %s=%llu", key, (unsigned long long)number);
}

static void append_stream(char **at, const char *key, const struct capture *capture)
{
	if (!capture_is_inline(capture))
		return;
	*at += sprintf(*at, " %s=", key);
	*at += to_base64(capture->head, capture->total, *at);
}

static char *ended_line(const struct command *c)
{
	static char line[512 + 2 * (INLINE_BYTES * 4 / 3 + 8)];
	char *at = line;
	at += sprintf(at, "ENDED id=%s", c->id);
	if (c->timed_out)
		at += sprintf(at, " exit_code=- signal=-");
	else if (WIFSIGNALED(c->status))
		at += sprintf(at, " exit_code=- signal=%d", WTERMSIG(c->status));
	else
		at += sprintf(at, " exit_code=%d signal=-", WEXITSTATUS(c->status));
	append_number(&at, "timed_out", c->timed_out);
	append_number(&at, "duration_ns", c->ended_ns - c->started_ns);
	append_number(&at, "stdout_bytes", c->out.capture.total);
	append_number(&at, "stderr_bytes", c->err.capture.total);
	append_number(&at, "truncated", capture_is_cut(&c->out.capture) || capture_is_cut(&c->err.capture));
	append_number(&at, "oom_kills", c->oom_kills);
	append_number(&at, "oom_elsewhere", c->oom_elsewhere);
	append_stream(&at, "stdout_b64", &c->out.capture);
	append_stream(&at, "stderr_b64", &c->err.capture);
	return strdup(line);
}

static uint64_t memory_kept(const struct command *c)
{
	return c->line ? strlen(c->line) : 0;
}

static uint64_t disk_kept(const struct command *c)
{
	uint64_t out = c->out.capture.file < 0 ? 0 : c->out.capture.stored;
	return out + (c->err.capture.file < 0 ? 0 : c->err.capture.stored);
}

static void forget(struct command *c)
{
	capture_close(&c->out.capture);
	capture_close(&c->err.capture);
	if (c->result >= 0)
		close(c->result);
	c->result = -1;
	free(c->line);
	c->line = NULL;
	c->state = FORGOTTEN;
}

/* Old output goes, oldest first, before it fills the user's memory or disk; the id stays, so that it never starts
 * again. */
static void forget_above(uint64_t limit, uint64_t (*kept)(const struct command *))
{
	uint64_t bytes = 0;
	size_t count = 0;
	for (struct command *c = first; c; c = c->next)
		if (c->state == ENDED) {
			bytes += kept(c);
			count++;
		}
	for (struct command *c = first; c && bytes > limit && count > KEPT_ALWAYS; c = c->next)
		if (c->state == ENDED) {
			bytes -= kept(c);
			count--;
			forget(c);
		}
}

/* It never became the command: its id is as good as unused. */
void journal_remove(struct command *gone)
{
	forget(gone);
	for (struct command **at = &first; *at; at = &(*at)->next) {
		if (*at != gone)
			continue;
		*at = gone->next;
		if (last == &gone->next)
			last = at;
		size--;
		break;
	}
	free(gone);
}

/* The end is kept and told; what it printed stays in memory as part of that line, or in its file. */
void journal_end(struct command *c)
{
	c->line = ended_line(c);
	c->state = c->line ? ENDED : FORGOTTEN;
	free(c->out.capture.head);
	free(c->err.capture.head);
	c->out.capture.head = c->err.capture.head = NULL;
	commands_status(c->id);
	forget_above(MEMORY_LIMIT_BYTES, memory_kept);
	forget_above(DISK_LIMIT_BYTES, disk_kept);
}

void commands_status(const char *id)
{
	struct command *c = command_find(id);
	char text[ID_LIMIT + 32];
	if (c && c->state == ENDED) {
		control_say(c->line);
		return;
	}
	const char *verb = !c ? "UNKNOWN" : c->state == FORGOTTEN ? "FORGOTTEN" : "STARTED";
	snprintf(text, sizeof text, "%s id=%s", verb, id);
	control_say(text);
}

/* Before a freeze: a fork must not find its template's output. */
void commands_forget(void)
{
	for (struct command *c = first; c; c = c->next)
		if (c->state == ENDED)
			forget(c);
}
