/* Commands: the journal of ids, each started at most once, and what became of it.
 *
 * PID 1 keeps the journal in its own memory and is the parent of every command: no signal of an agent that is root
 * can reach it, so `kill -9 -1` loses a command's processes but never the news of their end.
 */
#include "guest.h"
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull
/* How long output is awaited after the command itself has ended while a process it left holds the stream open. */
#define GRACE_NS (100 * MS)
#define LONGEST_NS (1ull << 62)
#define JOURNAL_LIMIT 65536
#define KEPT_LIMIT_BYTES (512ull << 20)
#define KEPT_ALWAYS 8

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
	uint64_t started_ns, deadline_ns, ended_ns, oom_kills;
	struct stream out, err;
	struct source report;
	struct client *asker;
	char *line;
	struct command *next;
};

struct client {
	struct source source;
};

static struct command *first, **last = &first;
static size_t journal_size;
static struct source door;
static uint8_t buffer[65536];

static struct command *find(const char *id)
{
	for (struct command *c = first; c; c = c->next)
		if (!strcmp(c->id, id))
			return c;
	return NULL;
}

static bool is_live(const struct command *c)
{
	return c->state == STARTING || c->state == RUNNING;
}

/* --- what is kept of a command that has ended --- */

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
	at += sprintf(at, " timed_out=%d duration_ns=%llu stdout_bytes=%llu stderr_bytes=%llu truncated=%d oom_kills=%llu",
		      c->timed_out, (unsigned long long)(c->ended_ns - c->started_ns),
		      (unsigned long long)c->out.capture.total, (unsigned long long)c->err.capture.total,
		      capture_is_cut(&c->out.capture) || capture_is_cut(&c->err.capture),
		      (unsigned long long)c->oom_kills);
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
	c->line = ended_line(c);
	c->state = c->line ? ENDED : FORGOTTEN;
	free(c->out.capture.head);
	free(c->err.capture.head);
	c->out.capture.head = c->err.capture.head = NULL;
	commands_status(c->id);
	drop_group(c);
	forget_old();
}

static void settle(struct command *c)
{
	if (c->state == RUNNING && c->reaped && streams_closed(c))
		finish(c);
}

/* A daemon that holds the stream open after the end may go on writing: it is read on, to nowhere. */
static void stream_ready(struct source *self)
{
	struct stream *stream = (struct stream *)self;
	struct command *c = stream->command;
	for (;;) {
		ssize_t count = read(self->fd, buffer, sizeof buffer);
		if (count < 0)
			break;
		if (count == 0) {
			loop_remove(self);
			close(self->fd);
			self->fd = -1;
			break;
		}
		if (is_live(c))
			capture_take(&stream->capture, buffer, (size_t)count);
	}
	settle(c);
}

/* What the command wrote before it ended is in its pipes by now. */
static void drain(struct command *c)
{
	if (c->out.source.fd >= 0)
		stream_ready(&c->out.source);
	if (c->err.source.fd >= 0)
		stream_ready(&c->err.source);
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

static void answer(struct client *client, const char *text)
{
	if (client)
		send(client->source.fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void close_stream(struct stream *stream)
{
	if (stream->source.fd < 0)
		return;
	loop_remove(&stream->source);
	close(stream->source.fd);
	stream->source.fd = -1;
}

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
	answer(c->asker, text);
	int ignored;
	if (!c->reaped)
		waitpid(c->pid, &ignored, 0);
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
	answer(c->asker, "STARTED");
	c->asker = NULL;
	if (c->reaped)
		drain(c);
}

static void listen_to(struct stream *stream, struct command *c, int fd, uint64_t limit)
{
	stream->command = c;
	stream->source = (struct source){.fd = fd, .ready = stream_ready};
	capture_open(&stream->capture, limit);
	loop_add(&stream->source, false);
}

static const char *begin(struct client *asker, const struct request *request)
{
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
	c->started_ns = now_ns();
	c->deadline_ns = c->started_ns + (request->timeout_ns < LONGEST_NS ? request->timeout_ns : LONGEST_NS);
	listen_to(&c->out, c, child.out, request->limit);
	listen_to(&c->err, c, child.err, request->limit);
	c->report = (struct source){.fd = child.report, .ready = report_ready};
	loop_add(&c->report, false);
	*last = c;
	last = &c->next;
	journal_size++;
	return NULL;
}

static void start(struct client *client, char *text, size_t count)
{
	struct request request;
	const char *fault = request_read(&request, text, count);
	if (!fault && find(request.id)) {
		answer(client, "KNOWN");
		return;
	}
	if (!fault && journal_size >= JOURNAL_LIMIT)
		fault = "this machine has run as many commands as it can remember";
	if (!fault)
		fault = begin(client, &request);
	if (fault) {
		char why[512];
		snprintf(why, sizeof why, "REFUSED %s", fault);
		answer(client, why);
	}
}

/* --- long output, by descriptor: the asker reads the file itself --- */

static void send_file(struct client *client, const struct capture *capture)
{
	char text[64], control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {text, (size_t)snprintf(text, sizeof text, "OUTPUT %llu %llu",
						    (unsigned long long)capture->stored,
						    (unsigned long long)capture->limit)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
				 .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &capture->file, sizeof(int));
	sendmsg(client->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void output(struct client *client, const char *text)
{
	char id[ID_LIMIT + 1], which[8];
	struct command *c = NULL;
	if (sscanf(text, "%64s %7s", id, which) == 2)
		c = find(id);
	struct stream *stream = c && !strcmp(which, "stderr") ? &c->err : c ? &c->out : NULL;
	if (!stream || c->state != ENDED || stream->capture.file < 0)
		answer(client, "REFUSED no such output");
	else
		send_file(client, &stream->capture);
}

/* --- the door: a socket that only root can open; the SSH shell speaks for the host --- */

static void hang_up(struct client *client)
{
	for (struct command *c = first; c; c = c->next)
		if (c->asker == client)
			c->asker = NULL;
	loop_remove(&client->source);
	close(client->source.fd);
	free(client);
}

static void client_ready(struct source *self)
{
	static char text[REQUEST_LIMIT + 1];
	for (;;) {
		ssize_t count = recv(self->fd, text, sizeof text - 1, MSG_DONTWAIT);
		if (count < 0)
			return;
		if (count == 0) {
			hang_up((struct client *)self);
			return;
		}
		text[count] = 0;
		if (*text == 'S')
			start((struct client *)self, text + 1, (size_t)count - 1);
		else
			output((struct client *)self, text + 1);
	}
}

static void door_ready(struct source *self)
{
	int fd;
	while ((fd = accept4(self->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		struct client *client = calloc(1, sizeof *client);
		if (!client) {
			close(fd);
			continue;
		}
		client->source = (struct source){.fd = fd, .ready = client_ready};
		loop_add(&client->source, false);
	}
}

void commands_open(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = DOOR};
	door.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	door.ready = door_ready;
	unlink(DOOR);
	mode_t before = umask(0077);
	bind(door.fd, (struct sockaddr *)&address, sizeof address);
	umask(before);
	listen(door.fd, 64);
	loop_add(&door, false);
}

/* --- what the host asks on the control port --- */

void commands_status(const char *id)
{
	struct command *c = find(id);
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
	struct command *c = find(id);
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
