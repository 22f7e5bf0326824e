/* What the parts of PID 1 know of each other, and what PID 1 and the tools disk's programs agree on. */
#ifndef PROMIGENCE_GUEST_H
#define PROMIGENCE_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONTROL_PORT "org.promigence.control"
#define SSH_PORT "org.promigence.ssh"
#define STATE_DIR "/run/promigence"
#define TOOLS_DIR STATE_DIR "/tools"
#define DOOR STATE_DIR "/door"
#define HOST_KEY TOOLS_DIR "/run/hostkey"

#define LINE_LIMIT 65536
#define REQUEST_LIMIT (192 * 1024)
#define ID_LIMIT 64
/* A stream of at most this many bytes rides along in the ENDED line; two of them fit in a line as base64. */
#define INLINE_BYTES (12 * 1024)

/* loop.c: one epoll set. A source's owner may free it in its own `ready`, which serves a bounded piece of work. */
struct source {
	int fd;
	void (*ready)(struct source *self);
};
void loop_open(void);
void loop_add(struct source *source);
/* Told of changes only, of both directions: a virtio port without a host reports a hang-up for ever. */
void loop_add_edge(struct source *source);
void loop_remove(struct source *source);
void loop_wait(int timeout_ms);
uint64_t now_ns(void);

/* port.c: the control port, line by line. */
int port_find(const char *name);
void control_open(void (*heard)(char *line));
void control_say(const char *line);

/* text.c: tokens, hex, base64. */
bool field(const char *line, const char *key, char *value, size_t size);
bool number_field(const char *line, const char *key, int64_t *value);
bool hex_bytes(const char *text, uint8_t *bytes, size_t count);
void to_hex(const uint8_t *bytes, size_t count, char *text);
ssize_t from_base64(const char *text, uint8_t *bytes, size_t size);
size_t to_base64(const uint8_t *bytes, size_t count, char *text);
bool sound_id(const char *id);
bool write_file(const char *path, const void *bytes, size_t count, mode_t mode);
ssize_t read_file(const char *path, void *bytes, size_t size);

/* boot.c: from the initramfs into the image's root. */
const char *boot_machine(void);
const char *boot_id(void);

/* cgroup.c: `user` holds what may be frozen, one group for each command; `system` the rest. */
void cgroups_open(void);
int cgroup_make(const char *name);
pid_t clone_into(int group);
int cgroup_system(void);
bool cgroup_remove(const char *name);
void cgroup_kill(int group);
void cgroup_kill_each(int group);
bool cgroup_end(int group);
uint64_t cgroup_oom_kills(int group);
uint64_t oom_kills_of_machine(void);
bool users_freeze(void);
void users_thaw(void);

/* barrier.c */
bool barrier_pass(const char *line);
void clock_follow(const char *line);

/* result.c */
void results_open(void);

/* door.c */
void door_open(void);

/* command.c, journal.c */
bool commands_reaped(pid_t pid, int status);
void commands_swept(void);
int commands_timeout_ms(void);
void commands_expire(void);
void commands_status(const char *id);
void commands_kill(const char *id);
bool commands_running(void);
void commands_forget(void);

/* capture.c: one output stream of a command, its head and tail kept up to a limit. */
struct capture {
	uint64_t total, stored, limit;
	uint8_t *head;
	int file;
	bool lost;
};
void capture_open(struct capture *capture, uint64_t limit);
void capture_take(struct capture *capture, const uint8_t *bytes, size_t count);
void capture_close(struct capture *capture);
bool capture_is_inline(const struct capture *capture);
bool capture_is_cut(const struct capture *capture);

/* ssh.c */
void ssh_open(void);
void ssh_start(int64_t number);
void ssh_stop(void);
bool ssh_reaped(pid_t pid);
bool ssh_busy(void);
void ssh_pump(void);

#endif
