/* Commands: the journal of ids, each started at most once, and what became of it.
 *
 * PID 1 keeps the journal in its own memory and is the parent of every command: no signal of an agent that is root
 * can reach it, so `kill -9 -1` loses a command's processes but never the news of their end.
 */
#include "command.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull
/* How long output is awaited after the command itself has ended while a process it left holds the stream open. */
#define GRACE_NS (100 * MS)
#define DRAIN_READS 64
#define LONGEST_NS (1ull << 62)
#define JOURNAL_LIMIT 65536
#define KEPT_LIMIT_BYTES (512ull << 20)
#define KEPT_ALWAYS 8

static struct command *first, **last = &first;
static size_t journal_size;
static uint8_t buffer[65536];

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

static bool is_live(const struct command *c)
{
	return c->state == STARTING || c->state == RUNNING;
}

/* --- what is kept of a command that has ended --- */

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

static uint64_t kept_bytes(const struct command *c)
{
	uint64_t out = c->out.capture.file < 0 ? 0 : c->out.capture.stored;
	uint64_t err = c->err.capture.file < 0 ? 0 : c->err.capture.stored;
	return out + err + (c->line ? strlen(c->line) : 0);
}

static void forget(struct command *c)
{
	capture_close(&c->out.capture);
	capture_close(&c->err.capture);
	free(c->line);
	c->line = NULL;
	c->state = FORGOTTEN;
}

/* Old output goes, oldest first, before it fills the user's disk; the id stays, so that it never starts again. */
static void forget_old(void)
{
	uint64_t bytes = 0;
	size_t count = 0;
	for (struct command *c = first; c; c = c->next)
		if (c->state == ENDED) {
			bytes += kept_bytes(c);
			count++;
		}
	for (struct command *c = first; c && bytes > KEPT_LIMIT_BYTES && count > KEPT_ALWAYS; c = c->next)
		if (c->state == ENDED) {
			bytes -= kept_bytes(c);
			count--;
			forget(c);
		}
}

/* --- the end of a command --- */

static void drop_group(struct command *c)
{
	if (c->group < 0 || !cgroup_remove(c->id))
		return;
	close(c->group);
	c->group = -1;
}

static bool streams_closed(const struct command *c)
{
	return c->out.source.fd < 0 && c->err.source.fd < 0;
}

static void finish(struct command *c)
{
	c->oom_kills = cgroup_oom_kills(c->group);
	uint64_t machine = oom_kills_of_machine() - c->oom_elsewhere;
	c->oom_elsewhere = machine > c->oom_kills ? machine - c->oom_kills : 0;
	c->line = ended_line(c);
	c->state = c->line ? ENDED : FORGOTTEN;
	free(c->out.capture.head);
	free(c->err.capture.head);
	c->out.capture.head = c->err.capture.head = NULL;
	commands_status(c->id);
	drop_group(c);
	forget_old();
}

static void close_stream(struct stream *stream)
{
	if (stream->source.fd < 0)
		return;
	loop_remove(&stream->source);
	close(stream->source.fd);
	stream->source.fd = -1;
}

static void settle(struct command *c)
{
	if (c->state == RUNNING && c->reaped && streams_closed(c))
		finish(c);
}

/* A daemon that holds the stream open after the end may go on writing: it is read on, to nowhere. False when there is
 * nothing to read now. */
static bool read_some(struct stream *stream)
{
	struct source *source = &stream->source;
	if (source->fd < 0)
		return false;
	ssize_t count = read(source->fd, buffer, sizeof buffer);
	if (count > 0 && is_live(stream->command))
		capture_take(&stream->capture, buffer, (size_t)count);
	if (count == 0)
		close_stream(stream);
	return count > 0;
}

static void stream_ready(struct source *self)
{
	struct stream *stream = (struct stream *)self;
	read_some(stream);
	settle(stream->command);
}

/* What the command itself wrote is in its pipes when it has ended; a pipe holds far less than this reads. */
static void drain(struct command *c)
{
	for (int i = 0; i < DRAIN_READS && read_some(&c->out); i++)
		;
	for (int i = 0; i < DRAIN_READS && read_some(&c->err); i++)
		;
	settle(c);
}

static void stop_processes(struct command *c)
{
	if (c->group >= 0)
		cgroup_kill(c->group);
	if (!c->reaped)
		kill(c->pid, SIGKILL);
}

bool commands_reaped(pid_t pid, int status)
{
	for (struct command *c = first; c; c = c->next) {
		if (c->pid != pid || c->reaped)
			continue;
		c->reaped = true;
		c->status = status;
		c->ended_ns = now_ns();
		if (c->state == RUNNING)
			drain(c);
		return true;
	}
	return false;
}

/* After any process is reaped: groups that a command's leftovers kept alive may be empty now. */
void commands_swept(void)
{
	for (struct command *c = first; c; c = c->next)
		if (!is_live(c))
			drop_group(c);
}

static uint64_t next_wake_ns(const struct command *c)
{
	if (c->state != RUNNING)
		return UINT64_MAX;
	if (c->reaped)
		return c->ended_ns + GRACE_NS;
	return c->timed_out ? UINT64_MAX : c->deadline_ns;
}

int commands_timeout_ms(void)
{
	uint64_t soonest = UINT64_MAX, now = now_ns();
	for (struct command *c = first; c; c = c->next)
		if (next_wake_ns(c) < soonest)
			soonest = next_wake_ns(c);
	if (soonest == UINT64_MAX)
		return -1;
	uint64_t wait_ms = soonest > now ? (soonest - now) / MS + 1 : 0;
	return wait_ms > 3600000 ? 3600000 : (int)wait_ms;
}

void commands_expire(void)
{
	uint64_t now = now_ns();
	for (struct command *c = first; c; c = c->next) {
		if (next_wake_ns(c) > now)
			continue;
		if (c->reaped) {
			finish(c);
			continue;
		}
		c->timed_out = true;
		stop_processes(c);
	}
}

/* --- the start of a command --- */

static void unlink_command(struct command *gone)
{
	for (struct command **at = &first; *at; at = &(*at)->next) {
		if (*at != gone)
			continue;
		*at = gone->next;
		if (last == &gone->next)
			last = at;
		journal_size--;
		return;
	}
}

/* It never became the command, so its id is as good as unused. */
static void refuse(struct command *c, const char *why)
{
	char text[512];
	snprintf(text, sizeof text, "REFUSED %s", why);
	door_answer(c->asker, text);
	stop_processes(c);
	if (!c->reaped)
		waitpid(c->pid, NULL, 0);
	close_stream(&c->out);
	close_stream(&c->err);
	drop_group(c);
	forget(c);
	unlink_command(c);
	free(c);
}

/* The child's report pipe closes without a word when its exec succeeds. */
static void report_ready(struct source *self)
{
	struct command *c = (struct command *)((char *)self - offsetof(struct command, report));
	char why[400];
	ssize_t count = read(self->fd, why, sizeof why - 1);
	if (count < 0)
		return;
	loop_remove(self);
	close(self->fd);
	self->fd = -1;
	if (count > 0) {
		why[count] = 0;
		refuse(c, why);
		return;
	}
	c->state = RUNNING;
	door_answer(c->asker, "STARTED");
	c->asker = NULL;
	if (c->reaped)
		drain(c);
}

static void listen_to(struct stream *stream, struct command *c, int fd, uint64_t limit)
{
	stream->command = c;
	stream->source = (struct source){.fd = fd, .ready = stream_ready};
	capture_open(&stream->capture, limit);
	loop_add(&stream->source);
}

/* NULL once it is on its way; `asker` is answered when its exec is known to have succeeded or failed. */
const char *command_begin(struct client *asker, const struct request *request)
{
	if (journal_size >= JOURNAL_LIMIT)
		return "this machine has run as many commands as it can remember";
	struct command *c = calloc(1, sizeof *c);
	if (!c)
		return "no memory for another command";
	strcpy(c->id, request->id);
	c->group = cgroup_make(c->id);
	struct spawned child;
	const char *fault = c->group < 0 ? "no control group" : spawn(request, c->group, &child);
	if (fault) {
		drop_group(c);
		free(c);
		return fault;
	}
	c->pid = child.pid;
	c->asker = asker;
	c->oom_elsewhere = oom_kills_of_machine();
	c->started_ns = now_ns();
	c->deadline_ns = c->started_ns + (request->timeout_ns < LONGEST_NS ? request->timeout_ns : LONGEST_NS);
	listen_to(&c->out, c, child.out, request->limit);
	listen_to(&c->err, c, child.err, request->limit);
	c->report = (struct source){.fd = child.report, .ready = report_ready};
	loop_add(&c->report);
	*last = c;
	last = &c->next;
	journal_size++;
	return NULL;
}

/* --- what the host asks on the control port --- */

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

void commands_kill(const char *id)
{
	struct command *c = command_find(id);
	if (c && is_live(c))
		stop_processes(c);
}

bool commands_running(void)
{
	for (struct command *c = first; c; c = c->next)
		if (is_live(c))
			return true;
	return false;
}

/* Before a freeze: a fork must not find its template's output. */
void commands_forget(void)
{
	for (struct command *c = first; c; c = c->next)
		if (c->state == ENDED)
			forget(c);
}
