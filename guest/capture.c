/* One output stream of a command. A short one stays in memory. A longer one goes to an unnamed file on the machine's
 * own disk: the first half of the limit as it came, the second half as a ring that ends up with the tail. */
#include "guest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An unnamed file leaves no trace in the user's tree, takes no guest memory and cannot be removed by an agent. */
static int unnamed_file(void)
{
	static const char *const places[] = {"/", "/var/tmp", "/tmp", STATE_DIR};
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		int fd = open(places[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (fd >= 0)
			return fd;
	}
	return -1;
}

/* Nothing stays in memory where there was none to be had. */
static size_t inline_size(const struct capture *capture)
{
	if (!capture->head)
		return 0;
	return capture->limit < INLINE_BYTES ? capture->limit : INLINE_BYTES;
}

void capture_open(struct capture *capture, uint64_t limit)
{
	*capture = (struct capture){.limit = limit < 2 ? 2 : limit, .file = -1};
	capture->head = malloc(INLINE_BYTES);
}

/* Stops for good at the first byte that the disk does not take; the command itself is not disturbed. */
static void store(struct capture *capture, const uint8_t *bytes, size_t count)
{
	uint64_t half = capture->limit / 2, ring = capture->limit - half;
	while (count && !capture->lost) {
		uint64_t at = capture->stored, room = half - at;
		if (at >= half) {
			at = half + (capture->stored - half) % ring;
			room = capture->limit - at;
		}
		size_t part = count < room ? count : room;
		ssize_t done = pwrite(capture->file, bytes, part, (off_t)at);
		if (done <= 0) {
			capture->lost = true;
			return;
		}
		capture->stored += (uint64_t)done;
		bytes += done;
		count -= (size_t)done;
	}
}

static void spill(struct capture *capture)
{
	capture->file = unnamed_file();
	capture->lost = capture->file < 0;
	if (!capture->lost)
		store(capture, capture->head, capture->total);
}

void capture_take(struct capture *capture, const uint8_t *bytes, size_t count)
{
	bool fits = capture->total + count <= inline_size(capture);
	if (fits) {
		memcpy(capture->head + capture->total, bytes, count);
	} else {
		if (capture->file < 0 && !capture->lost)
			spill(capture);
		store(capture, bytes, count);
	}
	capture->total += count;
}

void capture_close(struct capture *capture)
{
	free(capture->head);
	capture->head = NULL;
	if (capture->file >= 0)
		close(capture->file);
	capture->file = -1;
}

bool capture_is_inline(const struct capture *capture)
{
	return capture->total <= inline_size(capture);
}

bool capture_is_cut(const struct capture *capture)
{
	return capture->total > capture->limit || capture->lost;
}
