/* The control port: whole lines in, whole lines out, and a host that may leave and come back at any byte. */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define QUEUE_LIMIT (32 * LINE_LIMIT)

static struct source port = {.fd = -1};
static void (*on_line)(char *line);
static char in[LINE_LIMIT], out[QUEUE_LIMIT];
static size_t in_count, out_count;
static bool skipping;

/* The virtio port of this name, opened; -1 if the machine has none. A port opens once. */
int port_find(const char *name)
{
	DIR *ports = opendir("/sys/class/virtio-ports");
	if (!ports)
		return -1;
	int fd = -1;
	for (struct dirent *entry = readdir(ports); entry && fd < 0; entry = readdir(ports)) {
		char path[300], seen[64];
		snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
		ssize_t count = read_file(path, seen, sizeof seen - 1);
		if (count <= 0)
			continue;
		seen[count] = 0;
		seen[strcspn(seen, "\n")] = 0;
		if (strcmp(seen, name))
			continue;
		snprintf(path, sizeof path, "/dev/%s", entry->d_name);
		fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	}
	closedir(ports);
	return fd;
}

static void flush_lines(void)
{
	while (out_count) {
		ssize_t count = write(port.fd, out, out_count);
		if (count <= 0)
			return;
		out_count -= (size_t)count;
		memmove(out, out + count, out_count);
	}
}

/* A line too long is dropped whole: its rest must not be taken for a line of its own. */
static void take_lines(void)
{
	char *end;
	while ((end = memchr(in, '\n', in_count))) {
		*end = 0;
		size_t used = (size_t)(end - in) + 1;
		if (!skipping && end != in)
			on_line(in);
		skipping = false;
		in_count -= used;
		memmove(in, in + used, in_count);
	}
	if (in_count == sizeof in) {
		skipping = true;
		in_count = 0;
	}
}

static void port_ready(struct source *self)
{
	flush_lines();
	for (;;) {
		ssize_t count = read(self->fd, in + in_count, sizeof in - in_count);
		if (count == 0) {
			/* The host left: half a line from it, or to it, has no other half. */
			in_count = 0;
			skipping = false;
		}
		if (count <= 0)
			return;
		in_count += (size_t)count;
		take_lines();
	}
}

void control_open(void (*heard)(char *line))
{
	on_line = heard;
	port.fd = port_find(CONTROL_PORT);
	port.ready = port_ready;
	loop_add_edge(&port);
}

/* Lines wait for a host that is away. When too many wait, new ones are dropped: what matters can be asked for. */
void control_say(const char *line)
{
	size_t length = strlen(line);
	if (out_count + length + 1 > sizeof out)
		return;
	memcpy(out + out_count, line, length);
	out_count += length;
	out[out_count++] = '\n';
	flush_lines();
}
