/* PID 1 of every machine. See PROTOCOL.md for what it says and hears.
 *
 * It boots into the image's root, then is one loop over the host's two ports, its commands and its children. No signal
 * from inside reaches it (the kernel keeps those that it does not handle from PID 1, SIGKILL included).
 */
#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the barrier: nothing is done but to wait for WAKE. A frozen machine wakes up right here. */
static bool asleep = true;

static void complain(const char *verb, const char *reason)
{
	char line[160];
	snprintf(line, sizeof line, "ERROR verb=%.32s reason=%s", verb, reason);
	control_say(line);
}

static void say_hello(void)
{
	char line[128];
	snprintf(line, sizeof line, "HELLO protocol=1 boot_id=%s", boot_id());
	control_say(line);
}

static void answer_ping(const char *line)
{
	int64_t number = 0;
	char answer[64];
	number_field(line, "n", &number);
	snprintf(answer, sizeof answer, "PONG n=%lld", (long long)number);
	control_say(answer);
}

static void open_ssh(const char *line)
{
	int64_t number;
	if (number_field(line, "n", &number))
		ssh_start(number);
	else
		complain("OPEN", "n");
}

static void quiesce(void)
{
	ssh_stop();
	if (commands_running()) {
		complain("QUIESCE", "busy");
		return;
	}
	if (!users_freeze()) {
		complain("QUIESCE", "not_frozen");
		return;
	}
	commands_forget();
	sync();
	asleep = true;
	char line[80];
	snprintf(line, sizeof line, "QUIET boot_id=%s", boot_id());
	control_say(line);
}

static void by_id(const char *verb, const char *line, void (*act)(const char *id))
{
	char id[ID_LIMIT + 1];
	if (field(line, "id", id, sizeof id) && sound_id(id))
		act(id);
	else
		complain(verb, "id");
}

static void heard(char *line)
{
	char verb[33];
	snprintf(verb, sizeof verb, "%.*s", (int)strcspn(line, " "), line);
	if (!strcmp(verb, "WAKE")) {
		if (barrier_pass(line))
			asleep = false;
		else
			complain(verb, "not_applied");
	} else if (!strcmp(verb, "HELLO"))
		say_hello();
	else if (asleep)
		complain(verb, "asleep");
	else if (!strcmp(verb, "TIME"))
		clock_follow(line);
	else if (!strcmp(verb, "PING"))
		answer_ping(line);
	else if (!strcmp(verb, "OPEN"))
		open_ssh(line);
	else if (!strcmp(verb, "STATUS"))
		by_id(verb, line, commands_status);
	else if (!strcmp(verb, "KILL"))
		by_id(verb, line, commands_kill);
	else if (!strcmp(verb, "QUIESCE"))
		quiesce();
	else
		complain("-", "unknown_verb");
}

static void reap(struct source *self)
{
	struct signalfd_siginfo ignored;
	while (read(self->fd, &ignored, sizeof ignored) > 0)
		;
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (!commands_reaped(pid, status))
			ssh_reaped(pid);
	commands_swept();
}

static void watch_children(void)
{
	static struct source children = {.ready = reap};
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGPIPE);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	sigdelset(&signals, SIGPIPE);
	children.fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	loop_add(&children);
}

static void fill_standard_streams(void)
{
	int fd = open("/dev/console", O_RDWR);
	while (fd >= 0 && fd < 2)
		fd = dup(fd);
	if (fd > 2)
		close(fd);
}

static void run(void)
{
	for (;;) {
		loop_wait(ssh_busy() ? 0 : commands_timeout_ms());
		if (ssh_busy())
			ssh_pump();
		commands_expire();
	}
}

int main(void)
{
	if (getpid() != 1)
		return 1;
	const char *fault = boot_machine();
	fill_standard_streams();
	reboot(RB_DISABLE_CAD);
	loop_open();
	watch_children();
	control_open(heard);
	if (fault) {
		complain("BOOT", fault);
		fprintf(stderr, "promigence: this machine cannot boot: %s\n", fault);
		run();
	}
	cgroups_open();
	results_open();
	door_open();
	ssh_open();
	say_hello();
	run();
}
