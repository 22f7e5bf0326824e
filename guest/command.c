/* A command's life: started in a group of its own, read until it has ended, or ended at its time. PID 1 is the parent. */
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

static uint8_t buffer[65536];

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
	journal_end(c);
	drop_group(c);
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
	if (count > 0 && command_is_live(stream->command))
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
	for (struct command *c = journal(); c; c = c->next) {
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
	for (struct command *c = journal(); c; c = c->next)
		if (!command_is_live(c))
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
	for (struct command *c = journal(); c; c = c->next)
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
	for (struct command *c = journal(); c; c = c->next) {
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
	if (c->group >= 0)
		close(c->group);
	journal_remove(c);
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

/* What a command left running could write its own grade, or change what is graded: it is gone before the grade starts. */
static const char *clear_the_way(const char *graded)
{
	struct command *c = command_find(graded);
	if (!c)
		return "the command to be graded is not known";
	if (command_is_live(c))
		return "the command to be graded has not ended";
	if (c->group >= 0 && !cgroup_end(c->group))
		return "what the graded command left running cannot be ended";
	drop_group(c);
	return NULL;
}

static void close_result(int directory)
{
	if (directory >= 0)
		close(directory);
}

static const char *prepare_grade(struct request *request)
{
	const char *fault = clear_the_way(request->graded);
	if (fault)
		return fault;
	request->result = result_make(request->result_path);
	return request->result < 0 ? "there is no room for the result's directory" : NULL;
}

/* NULL once it is on its way; `asker` is answered when its exec is known to have succeeded or failed. */
const char *command_begin(struct client *asker, struct request *request)
{
	if (journal_is_full())
		return "this machine has run as many commands as it can remember";
	const char *fault = request->graded ? prepare_grade(request) : NULL;
	if (fault)
		return fault;
	struct command *c = calloc(1, sizeof *c);
	if (!c) {
		close_result(request->result);
		return "no memory for another command";
	}
	strcpy(c->id, request->id);
	c->result = request->result;
	c->group = cgroup_make(c->id);
	struct spawned child;
	fault = c->group < 0 ? "no control group" : spawn(request, c->group, &child);
	if (fault) {
		close_result(c->result);
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
	journal_add(c);
	return NULL;
}

/* --- what the host asks on the control port --- */

void commands_kill(const char *id)
{
	struct command *c = command_find(id);
	if (c && command_is_live(c))
		stop_processes(c);
}

bool commands_running(void)
{
	for (struct command *c = journal(); c; c = c->next)
		if (command_is_live(c))
			return true;
	return false;
}
