/* Tokens of a control line, hex, base64, small files. Nothing here trusts its input's length. */
#include "guest.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool field(const char *line, const char *key, char *value, size_t size)
{
	size_t key_length = strlen(key);
	for (const char *at = strchr(line, ' '); at; at = strchr(at, ' ')) {
		at++;
		if (strncmp(at, key, key_length) || at[key_length] != '=')
			continue;
		at += key_length + 1;
		size_t length = strcspn(at, " ");
		if (length >= size)
			return false;
		memcpy(value, at, length);
		value[length] = 0;
		return true;
	}
	return false;
}

bool number_field(const char *line, const char *key, int64_t *value)
{
	char text[24], *end;
	if (!field(line, key, text, sizeof text) || !isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*value = strtoll(text, &end, 10);
	return !*end && !errno;
}

static int nibble(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	return -1;
}

bool hex_bytes(const char *text, uint8_t *bytes, size_t count)
{
	if (strlen(text) != 2 * count)
		return false;
	for (size_t i = 0; i < count; i++) {
		int high = nibble(text[2 * i]), low = nibble(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

void to_hex(const uint8_t *bytes, size_t count, char *text)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < count; i++) {
		*text++ = digits[bytes[i] >> 4];
		*text++ = digits[bytes[i] & 15];
	}
	*text = 0;
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

ssize_t from_base64(const char *text, uint8_t *bytes, size_t size)
{
	size_t count = 0;
	uint32_t word = 0;
	int bits = 0;
	for (; *text && *text != '='; text++) {
		const char *digit = strchr(alphabet, *text);
		if (!digit)
			return -1;
		word = word << 6 | (uint32_t)(digit - alphabet);
		bits += 6;
		if (bits < 8)
			continue;
		bits -= 8;
		if (count == size)
			return -1;
		bytes[count++] = (uint8_t)(word >> bits);
	}
	return (ssize_t)count;
}

size_t to_base64(const uint8_t *bytes, size_t count, char *text)
{
	char *start = text;
	for (size_t i = 0; i < count; i += 3) {
		size_t left = count - i;
		uint32_t word = (uint32_t)bytes[i] << 16;
		word |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
		word |= left > 2 ? bytes[i + 2] : 0;
		*text++ = alphabet[word >> 18];
		*text++ = alphabet[word >> 12 & 63];
		*text++ = left > 1 ? alphabet[word >> 6 & 63] : '=';
		*text++ = left > 2 ? alphabet[word & 63] : '=';
	}
	*text = 0;
	return (size_t)(text - start);
}

/* An id names a cgroup's directory too. */
bool sound_id(const char *id)
{
	size_t length = strlen(id);
	if (!length || length > ID_LIMIT || !isalnum((unsigned char)id[0]))
		return false;
	for (; *id; id++)
		if (!isalnum((unsigned char)*id) && !strchr("_.-", *id))
			return false;
	return true;
}

/* Written in place: a file that is bind-mounted elsewhere must stay the same file. */
bool write_file(const char *path, const void *bytes, size_t count, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (fd < 0)
		return false;
	bool whole = write(fd, bytes, count) == (ssize_t)count;
	close(fd);
	return whole;
}

ssize_t read_file(const char *path, void *bytes, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t count = read(fd, bytes, size);
	close(fd);
	return count;
}
