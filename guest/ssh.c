/* The SSH channel: one server a connection, started when the host asks, and a pump between it and the port.
 * The server wants a socket (it asks for its peer's name), the port is a character device. */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A long transfer must not keep the control port waiting. */
#define ROUNDS 16

struct flow {
	uint8_t bytes[32768];
	size_t at, count;
};

static struct source port = {.fd = -1}, server = {.fd = -1};
static struct flow up, down;
static pid_t server_pid;
static bool more, spoken;
static int64_t session;

/* By the host's own number, so that it does not take the end of an old session for that of a new one. */
static void tell(const char *verb)
{
	char line[64];
	snprintf(line, sizeof line, "%s n=%lld", verb, (long long)session);
	control_say(line);
}

static void drop_server(void)
{
	if (server.fd < 0)
		return;
	loop_remove(&server);
	close(server.fd);
	server.fd = -1;
	up.count = down.count = 0;
}

/* With all that it started for the host. */
void ssh_stop(void)
{
	drop_server();
	cgroup_kill_each(cgroup_system());
	if (!server_pid)
		return;
	kill(server_pid, SIGKILL);
	waitpid(server_pid, NULL, 0);
	server_pid = 0;
}

bool ssh_reaped(pid_t pid)
{
	if (pid != server_pid)
		return false;
	server_pid = 0;
	ssh_pump();
	drop_server();
	tell("SHUT");
	return true;
}

/* A port reads as ended while its host is away. At the start of a session that is no news: the kernel may not yet have
 * heard that the host left and came back. Once the host has spoken, it means that it has gone. */
static void port_ended(void)
{
	if (spoken)
		ssh_stop();
}

static bool shift(struct flow *flow, int from, int to)
{
	if (!flow->count) {
		ssize_t count = read(from, flow->bytes, sizeof flow->bytes);
		if (count == 0 && from == port.fd)
			port_ended();
		if (count <= 0)
			return false;
		spoken = spoken || from == port.fd;
		flow->at = 0;
		flow->count = (size_t)count;
	}
	ssize_t count = write(to, flow->bytes + flow->at, flow->count);
	if (count <= 0)
		return false;
	flow->at += (size_t)count;
	flow->count -= (size_t)count;
	return true;
}

void ssh_pump(void)
{
	bool moved = true;
	for (int round = 0; moved && round < ROUNDS && server.fd >= 0; round++) {
		moved = shift(&down, port.fd, server.fd);
		if (server.fd >= 0)
			moved = shift(&up, server.fd, port.fd) || moved;
	}
	more = moved && server.fd >= 0;
}

/* Work is left over from the last round, and no edge will tell of it again. */
bool ssh_busy(void)
{
	return more;
}

static void discard(void)
{
	uint8_t rest[4096];
	while (read(port.fd, rest, sizeof rest) > 0)
		;
}

static void port_ready(struct source *self)
{
	(void)self;
	if (server.fd >= 0)
		ssh_pump();
	else
		discard();
}

static void server_ready(struct source *self)
{
	(void)self;
	ssh_pump();
}

void ssh_open(void)
{
	port.fd = port_find(SSH_PORT);
	port.ready = port_ready;
	server.ready = server_ready;
	loop_add_edge(&port);
}

/* Spared by the kernel when memory runs out: it is the host's way to learn what happened. Commands are not its
 * children and are not spared. */
__attribute__((noreturn)) static void run_server(int fd)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	write_file("/proc/self/oom_score_adj", "-1000", 5, 0);
	setsid();
	dup2(fd, 0);
	dup2(fd, 1);
	dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
	char *argv[] = {"dropbear", "-i", "-B", "-r", "/run/hostkey", "-W", "1048576", NULL};
	char *env[] = {"PATH=/sbin:/bin", "HOME=/", NULL};
	if (!chroot(TOOLS_DIR) && !chdir("/"))
		execve("/sbin/dropbear", argv, env);
	_exit(127);
}

void ssh_start(int64_t number)
{
	int pair[2];
	ssh_stop();
	session = number;
	spoken = false;
	discard();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		tell("SHUT");
		return;
	}
	server_pid = clone_into(cgroup_system());
	if (server_pid == 0)
		run_server(pair[1]);
	close(pair[1]);
	if (server_pid < 0) {
		server_pid = 0;
		close(pair[0]);
		tell("SHUT");
		return;
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	server.fd = pair[0];
	loop_add_edge(&server);
	tell("OPENED");
}
