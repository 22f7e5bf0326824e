/* The login shell of the SSH server on the tools disk. It steps into the image's root and does one thing there.
 *
 *   :start              requests on standard input (four bytes of length, big-endian, then the request of spawn.c), each
 *                       answered by a line: STARTED, KNOWN or REFUSED why
 *   :put MODE PATH      frames on standard input (length, bytes; length 0 ends it) into a file
 *   :get LIMIT PATH     a file to standard output
 *   :untar PATH         a tar on standard input, unpacked under a directory, owned by root
 *   :output ID STREAM   what PID 1 kept of a command's stdout or stderr, of a running one what it has so far; with
 *                       FROM COUNT behind it no more than that part
 *   :result LIMIT ID    the result file of a grade that ended
 *   :probe ARGUMENT...  the probe of the fork contract (probe.c)
 *   anything else       the image's own /bin/sh -c, or busybox where the image has no shell
 *
 * PATH is hex, so that no byte of it means anything to anyone on the way.
 */
#include "guest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define REPLY_LIMIT 512

enum { EXIT_MISSING = 10, EXIT_DIRECTORY = 11, EXIT_TOO_LARGE = 12, EXIT_FAULT = 13, EXIT_IRREGULAR = 14 };

extern char **environ;

static int busybox = -1, probe = -1;
static uint8_t buffer[1 << 20];
/* A file that is not whole yet: it goes when we stop. */
static char draft[PATH_MAX + 32];

__attribute__((noreturn, format(printf, 2, 3))) static void stop(int code, const char *format, ...)
{
	va_list rest;
	va_start(rest, format);
	vfprintf(stderr, format, rest);
	va_end(rest);
	fputc('\n', stderr);
	if (*draft)
		unlink(draft);
	exit(code);
}

__attribute__((noreturn)) static void stop_by_errno(const char *path)
{
	int code = errno == ENOENT ? EXIT_MISSING : errno == EISDIR ? EXIT_DIRECTORY : EXIT_FAULT;
	stop(code, "%s: %s", path, strerror(errno));
}

/* PID 1 stands in the image's root; its view of it is the image, wherever we are. */
static void enter_image(void)
{
	busybox = open("/bin/busybox", O_PATH | O_CLOEXEC);
	probe = open("/bin/probe", O_PATH | O_CLOEXEC);
	write_file("/proc/self/oom_score_adj", "0", 1, 0);
	if (chdir("/proc/1/root") || chroot(".") || chdir("/"))
		stop(EXIT_FAULT, "the image's root cannot be entered: %s", strerror(errno));
}

static bool read_whole(void *bytes, size_t count)
{
	uint8_t *at = bytes;
	while (count) {
		ssize_t got = read(0, at, count);
		if (got <= 0)
			return false;
		at += got;
		count -= (size_t)got;
	}
	return true;
}

static void write_whole(int fd, const uint8_t *bytes, size_t count, const char *path)
{
	while (count) {
		ssize_t done = write(fd, bytes, count);
		if (done < 0)
			stop_by_errno(path);
		bytes += done;
		count -= (size_t)done;
	}
}

static bool read_length(uint32_t *length)
{
	if (!read_whole(length, sizeof *length))
		return false;
	*length = ntohl(*length);
	return true;
}

static int knock(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = DOOR};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), size = 2 * REQUEST_LIMIT;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
	if (connect(fd, (struct sockaddr *)&address, sizeof address))
		stop(EXIT_FAULT, "PID 1 does not answer at its door: %s", strerror(errno));
	return fd;
}

static int start_commands(void)
{
	int door = knock();
	uint32_t length;
	char reply[REPLY_LIMIT];
	while (read_length(&length)) {
		if (length >= REQUEST_LIMIT || !read_whole(buffer + 1, length))
			stop(EXIT_FAULT, "a request is too long or cut short");
		buffer[0] = 'S';
		if (send(door, buffer, length + 1, MSG_NOSIGNAL) < 0)
			stop_by_errno("the request");
		ssize_t count = recv(door, reply, sizeof reply - 1, 0);
		if (count <= 0)
			stop(EXIT_FAULT, "PID 1 closed its door");
		reply[count++] = '\n';
		write_whole(1, (uint8_t *)reply, (size_t)count, "the answer");
	}
	return 0;
}

static void copy_range(int fd, uint64_t at, uint64_t end)
{
	while (at < end) {
		size_t part = end - at < sizeof buffer ? end - at : sizeof buffer;
		ssize_t count = pread(fd, buffer, part, (off_t)at);
		if (count <= 0)
			stop(EXIT_FAULT, "the kept output cannot be read");
		write_whole(1, buffer, (size_t)count, "the output");
		at += (uint64_t)count;
	}
}

/* The descriptor that PID 1 answers with, -1 if it has none; what it says of it in `text`. */
static int receive_file(int door, char text[REPLY_LIMIT])
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec part = {text, REPLY_LIMIT - 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
				 .msg_control = control, .msg_controllen = sizeof control};
	memset(text, 0, REPLY_LIMIT);
	if (recvmsg(door, &message, MSG_CMSG_CLOEXEC) <= 0)
		stop(EXIT_FAULT, "PID 1 closed its door");
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
	int fd = -1;
	if (rights)
		memcpy(&fd, CMSG_DATA(rights), sizeof fd);
	return fd;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The file is laid out by capture.c: head, then a ring whose oldest byte comes first here. A part is of what lies there
 * as it came: in a ring that turns while its command runs, no byte has a place. */
static int print_output(const char *id, const char *stream, uint64_t from, uint64_t count)
{
	char text[REPLY_LIMIT];
	unsigned long long stored, limit;
	int door = knock(), length = snprintf(text, sizeof text, "O%.64s %.7s", id, stream);
	send(door, text, (size_t)length, MSG_NOSIGNAL);
	int fd = receive_file(door, text);
	if (fd < 0 || sscanf(text, "OUTPUT %llu %llu", &stored, &limit) != 2)
		stop(EXIT_MISSING, "%s", text);
	if (stored <= limit) {
		uint64_t first = least(from, stored);
		copy_range(fd, first, first + least(count, stored - first));
		return 0;
	}
	if (count != UINT64_MAX)
		stop(EXIT_TOO_LARGE, "more was printed than is kept in one piece");
	uint64_t half = limit / 2, oldest = half + (stored - half) % (limit - half);
	copy_range(fd, 0, half);
	copy_range(fd, oldest, limit);
	copy_range(fd, half, oldest);
	return 0;
}

static void make_parents(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(path, 0755) && errno != EEXIST)
			stop_by_errno(path);
		*slash = '/';
	}
}

/* What is there already must be a file; a link is written through, as `cp` does. */
static void find_target(const char *path, char *target)
{
	struct stat seen;
	if (!realpath(path, target)) {
		strcpy(target, path);
		return;
	}
	if (stat(target, &seen))
		stop_by_errno(path);
	if (S_ISDIR(seen.st_mode))
		stop(EXIT_DIRECTORY, "%s: it is a directory", path);
	if (!S_ISREG(seen.st_mode))
		stop(EXIT_FAULT, "%s: it is not a regular file", path);
}

static bool next_frame(uint32_t *length, const char *path)
{
	if (!read_length(length) || *length > sizeof buffer || !read_whole(buffer, *length))
		stop(EXIT_FAULT, "%s: the upload was cut short", path);
	return *length;
}

/* Only a whole file takes the name: the frames must end as they should. */
static int put_file(mode_t mode, char *path)
{
	char target[PATH_MAX];
	uint32_t length;
	make_parents(path);
	find_target(path, target);
	snprintf(draft, sizeof draft, "%.*s/.promigence-XXXXXX", (int)(strrchr(target, '/') - target), target);
	int fd = mkostemp(draft, O_CLOEXEC);
	if (fd < 0) {
		*draft = 0;
		stop_by_errno(path);
	}
	while (next_frame(&length, path))
		write_whole(fd, buffer, length, path);
	if (fchmod(fd, mode) || rename(draft, target))
		stop_by_errno(path);
	return 0;
}

static int print_file(int fd, uint64_t limit, const char *path)
{
	struct stat seen;
	if (fd < 0 || fstat(fd, &seen))
		stop_by_errno(path);
	if (S_ISDIR(seen.st_mode))
		stop(EXIT_DIRECTORY, "%s: it is a directory", path);
	if (!S_ISREG(seen.st_mode))
		stop(EXIT_FAULT, "%s: it is not a regular file", path);
	if ((uint64_t)seen.st_size > limit)
		stop(EXIT_TOO_LARGE, "%s: it has %llu bytes", path, (unsigned long long)seen.st_size);
	ssize_t count;
	uint64_t total = 0;
	while ((count = read(fd, buffer, sizeof buffer)) > 0) {
		total += (uint64_t)count;
		if (total > limit)
			stop(EXIT_TOO_LARGE, "%s: it grew beyond the limit", path);
		write_whole(1, buffer, (size_t)count, path);
	}
	if (count < 0)
		stop_by_errno(path);
	return 0;
}

static int print_result(uint64_t limit, const char *id)
{
	char text[REPLY_LIMIT];
	int door = knock(), count = snprintf(text, sizeof text, "R%.64s", id);
	send(door, text, (size_t)count, MSG_NOSIGNAL);
	int fd = receive_file(door, text);
	if (fd >= 0)
		return print_file(fd, limit, "the result");
	if (!strcmp(text, "NONE"))
		stop(EXIT_MISSING, "the grade wrote no result");
	if (!strcmp(text, "IRREGULAR"))
		stop(EXIT_IRREGULAR, "the result is not a regular file of its own directory");
	stop(EXIT_FAULT, "%s", text);
}

static int unpack(char *path)
{
	char with_slash[PATH_MAX + 1];
	snprintf(with_slash, sizeof with_slash, "%s/", path);
	make_parents(with_slash);
	if (chdir(path))
		stop_by_errno(path);
	char *argv[] = {"tar", "-x", "-o", "-f", "-", NULL};
	fexecve(busybox, argv, environ);
	stop(EXIT_FAULT, "tar: %s", strerror(errno));
}

static int run_probe(char *arguments)
{
	char *argv[8] = {"probe"}, **next = argv + 1;
	for (char *word = strtok(arguments, " "); word && next < argv + 7; word = strtok(NULL, " "))
		*next++ = word;
	*next = NULL;
	fexecve(probe, argv, environ);
	stop(EXIT_FAULT, "probe: %s", strerror(errno));
}

static int run_shell(char *command)
{
	char *argv[] = {"sh", command ? "-c" : NULL, command, NULL};
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("HOME", "/root", 1);
	execv("/bin/sh", argv);
	fexecve(busybox, argv, environ);
	stop(127, "there is no shell: %s", strerror(errno));
}

static void take_path(const char *hex, char *path)
{
	size_t count = strlen(hex) / 2;
	if (count >= PATH_MAX || !hex_bytes(hex, (uint8_t *)path, count))
		stop(EXIT_FAULT, "the path is too long or not hex");
	path[count] = 0;
	if (path[0] != '/' || strlen(path) != count)
		stop(EXIT_FAULT, "the path is not absolute");
}

int main(int argc, char **argv)
{
	char verb[16] = "", first[2 * PATH_MAX] = "", second[2 * PATH_MAX] = "", path[PATH_MAX];
	unsigned long long from = 0, count = UINT64_MAX;
	char *command = argc > 2 && !strcmp(argv[1], "-c") ? argv[2] : NULL;
	enter_image();
	if (!command || *command != ':')
		return run_shell(command);
	if (strlen(command) >= sizeof first)
		stop(EXIT_FAULT, "the request is too long");
	sscanf(command, "%15s %s %s %llu %llu", verb, first, second, &from, &count);
	if (!strcmp(verb, ":start"))
		return start_commands();
	if (!strcmp(verb, ":output"))
		return print_output(first, second, from, count);
	if (!strcmp(verb, ":result"))
		return print_result(strtoull(first, NULL, 10), second);
	if (!strcmp(verb, ":probe"))
		return run_probe(command + strlen(verb));
	take_path(*second ? second : first, path);
	if (!strcmp(verb, ":put"))
		return put_file((mode_t)strtoul(first, NULL, 8) & 07777, path);
	if (!strcmp(verb, ":get"))
		return print_file(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), strtoull(first, NULL, 10), path);
	if (!strcmp(verb, ":untar"))
		return unpack(path);
	stop(EXIT_FAULT, "unknown request");
}
