/* Control groups (v2): what may be frozen lives under `user`, one group a command; our own servers in `system`. */
#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"
#define FREEZE_WAIT_MS 5000
#define END_WAIT_MS 2000

#define CLONE_INTO_CGROUP 0x200000000ull

/* linux/sched.h's struct clone_args, which a musl compiler does not see. */
struct clone_arguments {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

static int user = -1, system_group = -1;

static bool put(int group, const char *name, const char *text)
{
	int fd = openat(group, name, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool done = write(fd, text, strlen(text)) > 0;
	close(fd);
	return done;
}

static ssize_t read_at(int group, const char *name, char *text, size_t size)
{
	int fd = openat(group, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t count = read(fd, text, size);
	close(fd);
	return count;
}

static uint64_t counter(int group, const char *name, const char *key)
{
	char text[512];
	ssize_t count = read_at(group, name, text, sizeof text - 1);
	text[count > 0 ? count : 0] = 0;
	size_t length = strlen(key);
	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, length) && line[length] == ' ')
			return strtoull(line + length, NULL, 10);
	}
	return 0;
}

/* The descriptors are kept: an agent that is root may mount over the path, and then we still hold the groups. */
void cgroups_open(void)
{
	int root = open(ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put(root, "cgroup.subtree_control", "+memory +pids");
	mkdirat(root, "user", 0755);
	mkdirat(root, "system", 0755);
	user = openat(root, "user", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	system_group = openat(root, "system", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put(user, "cgroup.subtree_control", "+memory +pids");
	close(root);
}

int cgroup_system(void)
{
	return system_group;
}

/* A new group for a command, as a directory's descriptor; -1 if there is one of that name. */
int cgroup_make(const char *name)
{
	if (mkdirat(user, name, 0755))
		return -1;
	return openat(user, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A fork whose child is in the group from its first instruction on: nothing it starts can be outside. */
pid_t clone_into(int group)
{
	struct clone_arguments arguments = {
		.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)group};
	return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

bool cgroup_remove(const char *name)
{
	return !unlinkat(user, name, AT_REMOVEDIR);
}

void cgroup_kill(int group)
{
	put(group, "cgroup.kill", "1");
}

/* Kill all of a group and wait until none of it lives; false if something cannot be killed (it hangs in the kernel). */
bool cgroup_end(int group)
{
	cgroup_kill(group);
	for (int waited = 0; waited < END_WAIT_MS; waited += 5) {
		if (!counter(group, "cgroup.events", "populated"))
			return true;
		usleep(5000);
	}
	return false;
}

/* For a group that is used again: this kernel kills whatever is cloned into a group once `cgroup.kill` was used on it. */
void cgroup_kill_each(int group)
{
	char text[4096];
	ssize_t count = read_at(group, "cgroup.procs", text, sizeof text - 1);
	text[count > 0 ? count : 0] = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (atoi(line) > 1)
			kill(atoi(line), SIGKILL);
}

/* Processes of this group that the kernel killed for memory, whoever used it up. */
uint64_t cgroup_oom_kills(int group)
{
	return counter(group, "memory.events", "oom_kill");
}

/* Of all users' groups since the boot, those that are gone included; what lives outside them is spared. */
uint64_t oom_kills_of_machine(void)
{
	return cgroup_oom_kills(user);
}

bool users_freeze(void)
{
	put(user, "cgroup.freeze", "1");
	for (int waited = 0; waited < FREEZE_WAIT_MS; waited += 5) {
		if (counter(user, "cgroup.events", "frozen"))
			return true;
		usleep(5000);
	}
	put(user, "cgroup.freeze", "0");
	return false;
}

void users_thaw(void)
{
	put(user, "cgroup.freeze", "0");
}
