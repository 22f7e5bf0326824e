/* The probe of the fork contract that needs the root disk and the network: what is here, told as key=value lines.
 *
 *   probe MARKER EXIT_CODE [PROXY_PORT]
 *
 * Looks at the disk past the page cache: a restored machine remembers its template's disk, and this tells which disk it
 * was really given. Leaves nothing behind.
 */
#include "guest.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The ext4 superblock's volume name: the host writes a disk's id there. */
#define DISK_ID_AT (1024 + 0x78)
#define DISK_ID_BYTES 16
#define MARKER_PREFIX ".promigence-marker-"
#define BLOCK 4096
/* A documentation address (RFC 5737): on nobody's allow-list, and nobody's host. */
#define FORBIDDEN_HOST "192.0.2.1"
#define FORBIDDEN_PORT 9
#define PATIENCE_MS 2000

static bool root_device(char *path, size_t size)
{
	struct stat root;
	char uevent[64], text[512], *name;
	if (stat("/", &root))
		return false;
	snprintf(uevent, sizeof uevent, "/sys/dev/block/%u:%u/uevent", major(root.st_dev), minor(root.st_dev));
	ssize_t count = read_file(uevent, text, sizeof text - 1);
	text[count > 0 ? count : 0] = 0;
	name = strstr(text, "DEVNAME=");
	if (!name)
		return false;
	name += strlen("DEVNAME=");
	snprintf(path, size, "/dev/%.*s", (int)strcspn(name, "\n"), name);
	return true;
}

static void tell_disk_id(void)
{
	char device[80], id[DISK_ID_BYTES + 1] = "";
	uint8_t *block;
	int fd = root_device(device, sizeof device) ? open(device, O_RDONLY | O_DIRECT) : -1;
	if (fd >= 0 && !posix_memalign((void **)&block, BLOCK, BLOCK) && pread(fd, block, BLOCK, 0) == BLOCK)
		memcpy(id, block + DISK_ID_AT, DISK_ID_BYTES);
	printf("disk_id=%s\n", id);
}

/* Written and read back with the page cache put aside, so that the disk itself answers. */
static void tell_marker(const char *marker)
{
	char path[128], *block;
	if (posix_memalign((void **)&block, BLOCK, BLOCK))
		return;
	memset(block, 0, BLOCK);
	snprintf(block, BLOCK, "%s", marker);
	snprintf(path, sizeof path, "/" MARKER_PREFIX "%s", marker);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT, 0600);
	bool written = fd >= 0 && pwrite(fd, block, BLOCK, 0) == BLOCK;
	memset(block, 0, BLOCK);
	bool back = written && pread(fd, block, BLOCK, 0) == BLOCK;
	printf("marker=%.64s\n", back ? block : strerror(errno));
	if (fd >= 0)
		unlink(path);
}

static void tell_foreign_markers(const char *marker)
{
	DIR *root = opendir("/");
	for (struct dirent *entry = root ? readdir(root) : NULL; entry; entry = readdir(root)) {
		const char *name = entry->d_name + strlen(MARKER_PREFIX);
		if (!strncmp(entry->d_name, MARKER_PREFIX, strlen(MARKER_PREFIX)) && strcmp(name, marker))
			printf("foreign_marker=%.64s\n", name);
	}
}

static void tell_interfaces(void)
{
	DIR *links = opendir("/sys/class/net");
	for (struct dirent *entry = links ? readdir(links) : NULL; entry; entry = readdir(links))
		if (entry->d_name[0] != '.')
			printf("interface=%s\n", entry->d_name);
}

static int reach(const char *host, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
	socklen_t size = sizeof error;
	inet_pton(AF_INET, host, &address.sin_addr);
	if (!connect(fd, (struct sockaddr *)&address, sizeof address))
		return fd;
	struct pollfd wait = {.fd = fd, .events = POLLOUT};
	if (errno == EINPROGRESS && poll(&wait, 1, PATIENCE_MS) == 1 &&
	    !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) && !error)
		return fd;
	close(fd);
	return -1;
}

/* The proxy's answer to a target that nobody allowed; silence is no answer, and no way out either. */
static bool proxy_lets_through(int port)
{
	static const char asked[] = "CONNECT " FORBIDDEN_HOST ":9 HTTP/1.1\r\nHost: " FORBIDDEN_HOST ":9\r\n\r\n";
	char reply[64] = "";
	int fd = reach("127.0.0.1", port);
	if (fd < 0)
		return false;
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	send(fd, asked, sizeof asked - 1, MSG_NOSIGNAL);
	if (poll(&wait, 1, PATIENCE_MS) == 1)
		read(fd, reply, sizeof reply - 1);
	close(fd);
	return !strncmp(reply, "HTTP/1.1 2", 10) || !strncmp(reply, "HTTP/1.0 2", 10);
}

int main(int argc, char **argv)
{
	if (argc < 3 || strlen(argv[1]) > 64 || strchr(argv[1], '/'))
		return 125;
	int direct = reach(FORBIDDEN_HOST, FORBIDDEN_PORT);
	tell_disk_id();
	tell_foreign_markers(argv[1]);
	tell_marker(argv[1]);
	tell_interfaces();
	printf("reached=%d\n", direct >= 0 || (argc > 3 && proxy_lets_through(atoi(argv[3]))));
	fflush(stdout);
	return atoi(argv[2]);
}
