/* The keeper of one machine: its parent, its deadline and its last witness.
 *
 *   keeper -s START_BY_NS -m MARGIN_NS [-u FIRST_UID] [-o OWN_FD] [-g CGROUP_FD] -- PROGRAM ARG...
 *
 * Descriptors: 0 and 1 are the reading ends of the machine's console and log pipes, 2 is the log's writing end; all others
 * are the program's and pass through. It runs in the machine's directory, which the program itself cannot write to, and there
 *   reads  `deadline`  ns of CLOCK_BOOTTIME, replaced atomically by whoever extends the lease
 *   writes `born`      once the program is started, `exit` once it is gone; a program whose `born` cannot be written is ended
 *   locks  `keeper`    while it lives; the program holds `machine` locked in the same way
 *   keeps  `console` and `log`, the last 64 to 128 KiB of each, and `stops`: how long the program stood still by a signal
 *
 * SIGTERM: kill the program now. SIGHUP: the deadline has changed. The command returns 0 as soon as the program runs; 1, with
 * a sentence in the log pipe, when it does not, and then nothing of it is left running.
 *
 * It needs nobody: no database, no queue, no worker. If it dies itself, the kernel kills the program (PR_SET_PDEATHSIG).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOG_KEPT = 64 * 1024, LOCK_FD = 3, RECORD_BYTES = 200 };
static const int64_t SECOND = 1000000000;

struct wish {
    int64_t start_by, margin;
    long first_uid;
    int own, cgroup;
    char **program;
};

struct sink {
    int from, to;
    const char *name;
    ssize_t size;
};

struct stops {
    long count;
    int64_t total_ns, since_ns; /* the latter 0 while it runs */
};

static int report = -1; /* the command waits for its end; a byte in it means failure */

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vdprintf(STDERR_FILENO, format, arguments);
    va_end(arguments);
    _exit(report < 0 || write(report, "!", 1) == 1 ? 1 : 2);
}

static int64_t boot_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

/* The file's deadline, a whole line; the old one where the file is unreadable, odd or cut short, which is the safe side. */
static int64_t read_deadline(int64_t old)
{
    char text[32] = "", *end = text;
    int fd = open("deadline", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return old;
    int64_t value = read(fd, text, sizeof text - 1) > 0 ? strtoll(text, &end, 10) : 0;
    close(fd);
    return value > 0 && *end == '\n' ? value : old;
}

/* The file appears whole or not at all; what `reserve` wrote is overwritten in place, so it appears on a full disk too. */
static bool write_file(const char *name, const char *format, ...)
{
    char draft[32];
    snprintf(draft, sizeof draft, "%s.new", name);
    int fd = open(draft, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    va_list arguments;
    va_start(arguments, format);
    int written = vdprintf(fd, format, arguments);
    va_end(arguments);
    close(fd);
    return written > 0 && rename(draft, name) == 0;
}

/* Takes the room for a record now: a machine that fills its host's disk must still be seen to end. */
static void reserve(const char *draft)
{
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || dprintf(fd, "%*s\n", RECORD_BYTES, "") < 0)
        fail("cannot write %s: %s\n", draft, strerror(errno));
    close(fd);
}

/* In place, in the room that `reserve` took, for it may be written often and on a full disk. A reader that came in between
 * sees two different turns, and looks again. */
static void write_stops(const struct stops *stops)
{
    static long turn;
    char line[RECORD_BYTES + 2];
    turn++;
    int used = snprintf(line, sizeof line, "begun=%ld count=%ld stopped_ns=%lld since_boot_ns=%lld done=%ld", turn,
                        stops->count, (long long)stops->total_ns, (long long)stops->since_ns, turn);
    snprintf(line + used, sizeof line - used, "%*s\n", RECORD_BYTES - used, "");
    int file = open("stops", O_WRONLY | O_CLOEXEC);
    (void)!write(file, line, RECORD_BYTES + 1);
    close(file);
}

static void note_stop(struct stops *stops)
{
    if (stops->since_ns)
        return;
    stops->count++;
    stops->since_ns = boot_ns();
    write_stops(stops);
}

/* It goes on, or it is gone. */
static void note_end_of_stop(struct stops *stops)
{
    if (!stops->since_ns)
        return;
    stops->total_ns += boot_ns() - stops->since_ns;
    stops->since_ns = 0;
    write_stops(stops);
}

/* Whether the program is gone. Its stops and continues, which the kernel tells its parent and nobody else, are noted. */
static bool is_gone(pid_t program, int *status, struct stops *stops)
{
    while (waitpid(program, status, WNOHANG | WUNTRACED | WCONTINUED) == program) {
        if (WIFSTOPPED(*status)) {
            note_stop(stops);
            continue;
        }
        note_end_of_stop(stops);
        if (!WIFCONTINUED(*status))
            return true;
    }
    return false;
}

static int lock_file(const char *name)
{
    /* A lock for reading, on a file open for reading: the program can hold it and yet not write the file. Who asks whether it
     * is held asks as a writer would. It belongs to the open file, so the program inherits it over fork and exec. */
    int fd = open(name, O_RDONLY | O_CREAT, 0600);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    struct stat seen;
    if (fd < 0 || fcntl(fd, F_OFD_SETLKW, &lock) < 0 || fstat(fd, &seen) < 0)
        fail("cannot lock %s: %s\n", name, strerror(errno));
    if (seen.st_nlink == 0)
        fail("the machine was forgotten before it started\n");
    return fd;
}

/* Copies what is there; a file that has grown to LOG_KEPT becomes NAME.old and a new one begins. */
static void drain(struct sink *sink)
{
    char bytes[4096], old[32];
    ssize_t got = -1;
    for (int round = 0; round < 16 && (got = read(sink->from, bytes, sizeof bytes)) > 0; round++) {
        if (sink->to < 0 || sink->size >= LOG_KEPT) {
            snprintf(old, sizeof old, "%s.old", sink->name);
            rename(sink->name, old);
            close(sink->to);
            sink->to = open(sink->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            sink->size = 0;
        }
        sink->size += write(sink->to, bytes, got) > 0 ? got : 0;
    }
    if (got == 0) /* all writers have closed it: poll() must not report it again */
        sink->from = -1;
}

/* QEMU advises huge pages for the guest's memory. A private mapping of a file gets none, but its first touches would have the
 * kernel read 4 MiB of the file each, however little the disk reads ahead. Of its code buffer, 32 MiB, the advice holds. */
static void refuse_huge_pages_of_files(void)
{
#define LOAD(field, half) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field) + (half))
    struct sock_filter steps[] = {
        LOAD(nr, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 7),
        LOAD(args[2], 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_HUGEPAGE, 0, 5),
        LOAD(args[1], 4), BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 0, 2, 0), /* 4 GiB or more */
        LOAD(args[1], 0), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 64 << 20, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter); /* where there are no filters all is as right, and slower */
}

/* In the child: from the keeper's user to the program's own, tied to the keeper's life. Does not return. */
static void become_program(const struct wish *wish, pid_t keeper, const sigset_t *unblocked)
{
    setsid(); /* kernels that weigh sessions against each other (autogroup) shall not weigh the keeper with its machine */
    if (wish->cgroup >= 0 && write(wish->cgroup, "0", 1) < 0)
        fail("cannot enter the control group: %s\n", strerror(errno));
    if (wish->first_uid > 0) {
        uid_t uid = wish->first_uid + keeper; /* while it lives, no other machine of this host has this number */
        if (wish->own >= 0 && fchown(wish->own, uid, uid) < 0)
            fail("cannot hand over the memory file: %s\n", strerror(errno));
        if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
            fail("cannot become user %ld: %s\n", (long)uid, strerror(errno));
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which clears it */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    refuse_huge_pages_of_files();
    if (getppid() != keeper)
        _exit(1);
    sigprocmask(SIG_SETMASK, unblocked, NULL);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execve(wish->program[0], wish->program, (char *[]){NULL});
    fail("cannot run %s: %s\n", wish->program[0], strerror(errno));
}

static void kill_at(int timer, int64_t at_ns)
{
    int64_t at = at_ns > 0 ? at_ns : 1; /* zero would disarm it */
    struct itimerspec when = {.it_value = {at / SECOND, at % SECOND}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Whether the program is on its way out, by no signal of ours. Its sockets close, so that it is missed, before its end can be
 * waited for; the kernel shows that time as PF_EXITING (4) in its flags (proc_pid_stat(5), field 9). */
static int is_ending(pid_t program)
{
    char path[32], stat[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", program);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    (void)!read(file, stat, sizeof stat - 1);
    close(file);
    unsigned flags = 0;
    char *after_name = strrchr(stat, ')');
    return after_name && sscanf(after_name, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && (flags & 4);
}

/* Kill it, and let it die with the keeper's own weight: that of a machine that runs is lowered, and giving back its memory
 * must not wait behind other machines' guests. A keeper that may not raise it leaves it. */
static void end(pid_t program)
{
    char path[32];
    kill(program, SIGKILL);
    setpriority(PRIO_PGRP, program, getpriority(PRIO_PROCESS, 0)); /* its group is its own: each of its threads */
    snprintf(path, sizeof path, "/proc/%d/autogroup", program);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    (void)!write(file, "0", 1);
    close(file);
}

static void watch(pid_t program, int64_t deadline, int64_t margin, int signals)
{
    struct sink console = {STDIN_FILENO, -1, "console", 0}, log = {STDOUT_FILENO, -1, "log", 0};
    struct stops stops = {0};
    int timer = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC), status;
    const char *cause = NULL;
    bool killed = false;
    if (signals < 0 || timer < 0)
        _exit(1); /* and the kernel ends the program */
    kill_at(timer, deadline - margin);
    while (!is_gone(program, &status, &stops)) {
        struct pollfd ready[] = {
            {signals, POLLIN, 0}, {timer, POLLIN, 0}, {console.from, POLLIN, 0}, {log.from, POLLIN, 0}};
        struct signalfd_siginfo heard;
        uint64_t times;
        poll(ready, 4, -1);
        bool asked = read(signals, &heard, sizeof heard) == sizeof heard && heard.ssi_signo == SIGTERM;
        (void)!read(timer, &times, sizeof times);
        if (!killed) { /* from then on the record tells of the deadline that was acted on, whatever is written later */
            deadline = read_deadline(deadline);
            bool due = boot_ns() >= deadline - margin;
            killed = due || asked;
            if (killed && !is_ending(program))
                cause = due ? "deadline" : "asked";
            if (killed)
                end(program);
            else
                kill_at(timer, deadline - margin);
        }
        drain(&console);
        drain(&log);
    }
    int64_t ended = boot_ns();
    drain(&console);
    drain(&log);
    if (!cause || !WIFSIGNALED(status)) /* it ended by itself, be it a moment before our signal */
        cause = WIFSIGNALED(status) ? "signal" : "exit";
    write_file("exit", "cause=%s exit_code=%d signal=%d ended_boot_ns=%lld late_ns=%lld deadline_boot_ns=%lld\n", cause,
               WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : -1,
               (long long)ended, (long long)(ended > deadline ? ended - deadline : 0), (long long)deadline);
}

static void keep(const struct wish *wish)
{
    setsid();
    sigset_t heard, before;
    sigemptyset(&heard);
    sigaddset(&heard, SIGCHLD);
    sigaddset(&heard, SIGTERM);
    sigaddset(&heard, SIGHUP);
    sigprocmask(SIG_BLOCK, &heard, &before);

    int lock = lock_file("keeper");
    fcntl(lock, F_SETFD, FD_CLOEXEC);
    lock_file("machine");
    int64_t deadline = read_deadline(0), started = boot_ns();
    if (deadline <= 0)
        fail("there is no deadline file\n");
    if (started >= deadline - wish->margin)
        fail("its lease is over before it started\n");
    if (started > wish->start_by)
        fail("the time to start it passed %lld ms ago\n", (long long)((started - wish->start_by) / 1000000));
    reserve("born.new");
    reserve("exit.new");
    reserve("stops");
    pid_t keeper = getpid(), program = fork();
    if (program < 0)
        fail("cannot fork: %s\n", strerror(errno));
    if (program == 0)
        become_program(wish, keeper, &before);

    if (!write_file("born", "keeper_pid=%d pid=%d started_boot_ns=%lld\n", keeper, program, (long long)started)) {
        int why = errno; /* nobody could find it, so it ends before anybody is told that it runs */
        kill(program, SIGKILL);
        waitpid(program, NULL, 0);
        fail("cannot write born: %s\n", strerror(why));
    }
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
    dup2(lock, LOCK_FD);
    close_range(LOCK_FD + 1, ~0U, 0); /* the program's sockets, disks and lock must end with it; so does the report */
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
    watch(program, deadline, wish->margin, signalfd(-1, &heard, SFD_NONBLOCK | SFD_CLOEXEC));
}

static struct wish parse(int count, char **arguments)
{
    struct wish wish = {.own = -1, .cgroup = -1};
    for (int option; (option = getopt(count, arguments, "+s:m:u:o:g:")) != -1;) {
        switch (option) {
        case 's': wish.start_by = strtoll(optarg, NULL, 10); break;
        case 'm': wish.margin = strtoll(optarg, NULL, 10); break;
        case 'u': wish.first_uid = atol(optarg); break;
        case 'o': wish.own = atoi(optarg); break;
        case 'g': wish.cgroup = atoi(optarg); break;
        default: _exit(2);
        }
    }
    wish.program = arguments + optind;
    if (optind >= count || wish.start_by <= 0)
        fail("usage: keeper -s NS -m NS [-u UID] [-o FD] [-g FD] -- PROGRAM ARG...\n");
    return wish;
}

int main(int count, char **arguments)
{
    struct wish wish = parse(count, arguments);
    int ends[2];
    char byte;
    signal(SIGPIPE, SIG_IGN);
    if (pipe2(ends, O_CLOEXEC) < 0)
        fail("cannot make a pipe: %s\n", strerror(errno));
    pid_t keeper = fork(); /* init adopts it: no worker has to wait for it, and none can leave it a zombie */
    if (keeper < 0)
        fail("cannot fork: %s\n", strerror(errno));
    if (keeper == 0) {
        report = ends[1];
        keep(&wish);
        return 0;
    }
    close(ends[1]);
    return read(ends[0], &byte, 1) == 0 ? 0 : 1;
}
