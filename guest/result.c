/* The file by which a grade tells its reward, in a directory that is made as the grade starts.
 *
 * Its name is drawn then, so nobody can have written there before, and nobody but root can list where it lies. PID 1
 * keeps the directory's descriptor: what it reads later is what lies in the directory that it made, whatever was
 * renamed, linked or mounted over its path.
 */
#include "result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RESULTS STATE_DIR "/results"
#define FILE_NAME "result.json"
#define NAME_BYTES 16

/* linux/openat2.h, which a musl compiler does not see. */
struct open_how {
	uint64_t flags, mode, resolve;
};
#define RESOLVE_NO_XDEV 0x01
#define RESOLVE_NO_SYMLINKS 0x04
#define RESOLVE_BENEATH 0x08

static int results = -1;

/* Kept open from the boot on: an agent that is root may put something else in its place. */
void results_open(void)
{
	mkdir(RESULTS, 0711);
	results = open(RESULTS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A new empty directory as a descriptor, with the file's path in `path`; -1 if there can be none. */
int result_make(char path[RESULT_PATH])
{
	uint8_t drawn[NAME_BYTES];
	char name[2 * NAME_BYTES + 1];
	if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn)
		return -1;
	to_hex(drawn, sizeof drawn, name);
	snprintf(path, RESULT_PATH, RESULTS "/%s/" FILE_NAME, name);
	if (mkdirat(results, name, 0700))
		return -1;
	return openat(results, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The file, if it is a regular one of that directory's own; -1 with ENOENT if there is none, with another errno if it
 * is something else. Without waiting: a pipe, or a file system of the guest's own making, must not hold up PID 1. */
int result_open(int directory)
{
	struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
			       .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
	struct stat seen;
	if (fstatat(directory, FILE_NAME, &seen, AT_SYMLINK_NOFOLLOW))
		return -1;
	errno = EINVAL;
	if (!S_ISREG(seen.st_mode))
		return -1;
	int fd = (int)syscall(SYS_openat2, directory, FILE_NAME, &how, sizeof how);
	if (fd >= 0 && (fstat(fd, &seen) || !S_ISREG(seen.st_mode))) {
		close(fd);
		errno = EINVAL;
		return -1;
	}
	return fd;
}
