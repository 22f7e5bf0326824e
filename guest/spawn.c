/* From a request to a process: arguments, user, directory and environment of the image, in a control group of its own.
 *
 * A request is NUL-ended strings: id, timeout_ns, output limit, cwd, user, argc, each argument, envc, each NAME=value.
 * That of a grade begins with an empty string and the id of the command that it grades.
 */
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define STRINGS_LIMIT 4096
static char *strings[2 * STRINGS_LIMIT + 2];

static const char *take(char **text, char *end)
{
	char *start = *text, *stop = start < end ? memchr(start, 0, (size_t)(end - start)) : NULL;
	if (!stop)
		return NULL;
	*text = stop + 1;
	return start;
}

static bool take_number(char **text, char *end, uint64_t *value)
{
	char *rest;
	const char *digits = take(text, end);
	if (!digits || *digits < '0' || *digits > '9')
		return false;
	errno = 0;
	*value = strtoull(digits, &rest, 10);
	return !*rest && !errno;
}

static bool take_list(char **text, char *end, char **list)
{
	uint64_t count;
	if (!take_number(text, end, &count) || count > STRINGS_LIMIT)
		return false;
	for (uint64_t i = 0; i < count; i++)
		if (!(list[i] = (char *)take(text, end)))
			return false;
	list[count] = NULL;
	return true;
}

const char *request_read(struct request *request, char *text, size_t count)
{
	char *end = text + count;
	request->id = take(&text, end);
	request->graded = NULL;
	request->result = -1;
	if (request->id && !*request->id) {
		request->graded = take(&text, end);
		request->id = take(&text, end);
	}
	if (!request->id || !sound_id(request->id))
		return "the id is not sound";
	if (!take_number(&text, end, &request->timeout_ns) || !take_number(&text, end, &request->limit))
		return "the limits are not sound";
	request->cwd = take(&text, end);
	request->user = take(&text, end);
	request->argv = strings;
	request->env = strings + STRINGS_LIMIT + 1;
	if (!request->user || !take_list(&text, end, request->argv) || !take_list(&text, end, request->env))
		return "the request is cut short or has more than 4096 arguments or variables";
	return request->argv[0] ? NULL : "there is no program to run";
}

/* --- in the child --- */

__attribute__((noreturn, format(printf, 2, 3))) static void fail(int report, const char *format, ...)
{
	char text[400];
	va_list rest;
	va_start(rest, format);
	int count = vsnprintf(text, sizeof text, format, rest);
	va_end(rest);
	write(report, text, count < (int)sizeof text ? (size_t)count : sizeof text - 1);
	_exit(127);
}

static const struct passwd *account(const char *name, int report)
{
	static struct passwd unlisted = {.pw_name = "", .pw_dir = "/", .pw_shell = "/bin/sh"};
	char *rest;
	if (!*name)
		name = "0";
	unsigned long uid = strtoul(name, &rest, 10);
	const struct passwd *found = *rest ? getpwnam(name) : getpwuid((uid_t)uid);
	if (found)
		return found;
	if (*rest || uid > 0xfffffffeul)
		fail(report, "user %s: there is no such user in the image", name);
	unlisted.pw_uid = (uid_t)uid;
	unlisted.pw_gid = (gid_t)uid;
	if (!uid) {
		unlisted.pw_name = "root";
		unlisted.pw_dir = "/root";
	}
	return &unlisted;
}

static void set_default(const char *name, const char *value)
{
	setenv(name, value, 0);
}

static void become(const struct request *request, int report)
{
	const struct passwd *who = account(request->user, report);
	clearenv();
	for (char **pair = request->env; *pair; pair++)
		putenv(*pair);
	set_default("PATH", DEFAULT_PATH);
	set_default("HOME", who->pw_dir);
	set_default("USER", who->pw_name);
	set_default("LOGNAME", who->pw_name);
	if (request->graded) {
		setenv("PROMIGENCE_RESULT", request->result_path, 1);
		if (fchown(request->result, who->pw_uid, who->pw_gid))
			fail(report, "the result's directory: %s", strerror(errno));
	}
	if (initgroups(who->pw_name, who->pw_gid) || setgid(who->pw_gid) || setuid(who->pw_uid))
		fail(report, "user %s: %s", request->user, strerror(errno));
	if (chdir(*request->cwd ? request->cwd : "/"))
		fail(report, "cwd %s: %s", request->cwd, strerror(errno));
}

__attribute__((noreturn)) static void run_child(const struct request *request, int out, int err, int report)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setsid();
	int nothing = open("/dev/null", O_RDONLY);
	dup2(nothing, 0);
	dup2(out, 1);
	dup2(err, 2);
	if (nothing > 2)
		close(nothing);
	become(request, report);
	execvp(request->argv[0], request->argv);
	fail(report, "%s: %s", request->argv[0], strerror(errno));
}

/* --- in PID 1 --- */

const char *spawn(const struct request *request, int group, struct spawned *child)
{
	int out[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1};
	bool piped = !pipe2(out, O_CLOEXEC) && !pipe2(err, O_CLOEXEC) && !pipe2(report, O_CLOEXEC);
	pid_t pid = piped ? clone_into(group) : -1;
	if (pid == 0)
		run_child(request, out[1], err[1], report[1]);
	int error = errno;
	close(out[1]);
	close(err[1]);
	close(report[1]);
	if (pid < 0) {
		close(out[0]);
		close(err[0]);
		close(report[0]);
		return strerror(error);
	}
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	fcntl(report[0], F_SETFL, O_NONBLOCK);
	*child = (struct spawned){pid, out[0], err[0], report[0]};
	return NULL;
}
