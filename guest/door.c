/* The door of PID 1: a socket that only root can open, by which the SSH shell speaks for the host. */
#include "command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct client {
	struct source source;
};

static struct source door;

void door_answer(struct client *client, const char *text)
{
	if (client)
		send(client->source.fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void start(struct client *client, char *text, size_t count)
{
	struct request request;
	const char *fault = request_read(&request, text, count);
	if (!fault && command_find(request.id)) {
		door_answer(client, "KNOWN");
		return;
	}
	if (!fault)
		fault = command_begin(client, &request);
	if (fault) {
		char why[512];
		snprintf(why, sizeof why, "REFUSED %s", fault);
		door_answer(client, why);
	}
}

/* --- long output and results, by descriptor: the asker reads the file itself --- */

static void send_file(struct client *client, const char *text, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {(char *)text, strlen(text)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
				 .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &fd, sizeof(int));
	sendmsg(client->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_output(struct client *client, int fd, uint64_t stored, uint64_t limit)
{
	char text[64];
	snprintf(text, sizeof text, "OUTPUT %llu %llu", (unsigned long long)stored,
		 (unsigned long long)limit);
	send_file(client, text, fd);
}

/* What a running command has printed so far, where it is little enough to be in memory still. */
static void send_memory(struct client *client, const struct capture *capture)
{
	int fd = memfd_create("output", MFD_CLOEXEC);
	if (fd >= 0 && write(fd, capture->head, capture->total) == (ssize_t)capture->total)
		send_output(client, fd, capture->total, capture->limit);
	else
		door_answer(client, "REFUSED its output cannot be read now");
	if (fd >= 0)
		close(fd);
}

static void output(struct client *client, const char *text)
{
	char id[ID_LIMIT + 1], which[8];
	struct command *c = NULL;
	if (sscanf(text, "%64s %7s", id, which) == 2)
		c = command_find(id);
	struct stream *stream = c && !strcmp(which, "stderr") ? &c->err : c ? &c->out : NULL;
	const struct capture *capture = stream ? &stream->capture : NULL;
	if (!capture || (c->state != ENDED && c->state != RUNNING))
		door_answer(client, "REFUSED no such output");
	else if (capture->file >= 0)
		send_output(client, capture->file, capture->stored, capture->limit);
	else if (c->state == RUNNING && capture_is_inline(capture))
		send_memory(client, capture);
	else
		door_answer(client, "REFUSED no such output");
}

static void result(struct client *client, const char *id)
{
	struct command *c = command_find(id);
	if (!c || c->state != ENDED || c->result < 0) {
		door_answer(client, "REFUSED no such result");
		return;
	}
	int fd = result_open(c->result);
	if (fd < 0) {
		door_answer(client, errno == ENOENT ? "NONE" : "IRREGULAR");
		return;
	}
	send_file(client, "RESULT", fd);
	close(fd);
}

static void hang_up(struct client *client)
{
	commands_disown(client);
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
		else if (*text == 'R')
			result((struct client *)self, text + 1);
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
		loop_add(&client->source);
	}
}

void door_open(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = DOOR};
	door.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	door.ready = door_ready;
	unlink(DOOR);
	mode_t before = umask(0077);
	bind(door.fd, (struct sockaddr *)&address, sizeof address);
	umask(before);
	listen(door.fd, 64);
	loop_add(&door);
}
