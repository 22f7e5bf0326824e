/* Opens as many connections to the machine's way out as it is told, all at once, and says how many there were.
 *
 * channels COUNT SECONDS: each connection is a channel of the machine's SSH connection; they are held for SECONDS.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 3128

int main(int count, char **words)
{
	if (count != 3)
		return 2;
	int wanted = atoi(words[1]), opened = 0;
	struct rlimit files = {(rlim_t)wanted + 16, (rlim_t)wanted + 16};
	setrlimit(RLIMIT_NOFILE, &files);
	struct sockaddr_in way_out = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	way_out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < wanted; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (fd >= 0 && !connect(fd, (struct sockaddr *)&way_out, sizeof way_out))
			opened++;
	}
	printf("opened %d\n", opened);
	fflush(stdout);
	sleep((unsigned)atoi(words[2]));
	return 0;
}
