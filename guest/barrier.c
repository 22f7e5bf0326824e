/* The resume barrier: what makes this fork another machine than its siblings, before anything else runs. */
#include "guest.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

/* linux/random.h, which a musl compiler does not see. */
#define RNDADDENTROPY _IOW('R', 0x03, int[2])
#define RNDRESEEDCRNG _IO('R', 0x07)

#define ENTROPY_BYTES 64
#define KEY_LIMIT 512
#define ED25519_PUBLIC_BYTES 32

static bool reseed(const char *line)
{
	char text[2 * ENTROPY_BYTES + 1];
	struct {
		int entropy_bits, size;
		uint8_t bytes[ENTROPY_BYTES];
	} pool = {8 * ENTROPY_BYTES, ENTROPY_BYTES, {0}};
	if (!field(line, "entropy", text, sizeof text) || !hex_bytes(text, pool.bytes, ENTROPY_BYTES))
		return false;
	int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool done = !ioctl(fd, RNDADDENTROPY, &pool) && !ioctl(fd, RNDRESEEDCRNG);
	close(fd);
	explicit_bzero(&pool, sizeof pool);
	explicit_bzero(text, sizeof text);
	return done;
}

static bool set_clock(const char *line)
{
	int64_t ns;
	if (!number_field(line, "time_ns", &ns))
		return false;
	struct timespec now = {ns / 1000000000, ns % 1000000000};
	return !clock_settime(CLOCK_REALTIME, &now);
}

static int64_t wall_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool keep_line(const char *line, const char *key, const char *path)
{
	char text[80];
	if (!field(line, key, text, sizeof text - 1))
		return false;
	strcat(text, "\n");
	return write_file(path, text, strlen(text), 0444);
}

static bool take_host_key(const char *line)
{
	char text[2 * KEY_LIMIT];
	uint8_t key[KEY_LIMIT];
	if (!field(line, "host_key_b64", text, sizeof text))
		return false;
	ssize_t count = from_base64(text, key, sizeof key);
	bool done = count > 0 && write_file(HOST_KEY, key, (size_t)count, 0600);
	explicit_bzero(key, sizeof key);
	explicit_bzero(text, sizeof text);
	return done;
}

/* The public half of the key as the file has it: the last 32 bytes of dropbear's format. */
static void host_key_seen(char *hex)
{
	uint8_t key[KEY_LIMIT];
	ssize_t count = read_file(HOST_KEY, key, sizeof key);
	strcpy(hex, "-");
	if (count > ED25519_PUBLIC_BYTES)
		to_hex(key + count - ED25519_PUBLIC_BYTES, ED25519_PUBLIC_BYTES, hex);
	explicit_bzero(key, sizeof key);
}

/* What is told is read back from the machine, never repeated from the line. */
static void tell_awake(const char *nonce, bool reseeded)
{
	uint8_t sample[16];
	char sample_hex[33], key_hex[65], hostname[65] = "-", machine_id[40] = "", line[1024];
	if (getrandom(sample, sizeof sample, 0) != sizeof sample)
		return;
	to_hex(sample, sizeof sample, sample_hex);
	host_key_seen(key_hex);
	gethostname(hostname, sizeof hostname - 1);
	read_file("/etc/machine-id", machine_id, sizeof machine_id - 1);
	machine_id[strcspn(machine_id, "\n")] = 0;
	snprintf(line, sizeof line,
		 "AWAKE protocol=1 nonce=%s boot_id=%s sample=%s time_ns=%lld hostname=%s machine_id=%s host_key=%s "
		 "reseeded=%d",
		 nonce, boot_id(), sample_hex, (long long)wall_ns(), hostname, machine_id, key_hex, reseeded);
	control_say(line);
}

/* False, with the barrier still closed, unless every part of the line was there and was applied. */
bool barrier_pass(const char *line)
{
	char nonce[33], hostname[65];
	if (!field(line, "nonce", nonce, sizeof nonce) || !field(line, "hostname", hostname, sizeof hostname))
		return false;
	bool reseeded = reseed(line);
	if (!set_clock(line) || sethostname(hostname, strlen(hostname)))
		return false;
	if (!keep_line(line, "machine_id", STATE_DIR "/machine-id") ||
	    !keep_line(line, "generation", STATE_DIR "/fork") || !take_host_key(line))
		return false;
	users_thaw();
	tell_awake(nonce, reseeded);
	return true;
}

void clock_follow(const char *line)
{
	char answer[64];
	if (!set_clock(line))
		return;
	snprintf(answer, sizeof answer, "TIMED time_ns=%lld", (long long)wall_ns());
	control_say(answer);
}
