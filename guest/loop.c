/* The event loop of PID 1: one event at a time, so that a source can go away while another is served. */
#include "guest.h"

#include <sys/epoll.h>
#include <time.h>

static int set = -1;

void loop_open(void)
{
	set = epoll_create1(EPOLL_CLOEXEC);
}

static void add(struct source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};
	epoll_ctl(set, EPOLL_CTL_ADD, source->fd, &event);
}

void loop_add(struct source *source)
{
	add(source, EPOLLIN);
}

void loop_add_edge(struct source *source)
{
	add(source, EPOLLIN | EPOLLOUT | EPOLLET);
}

void loop_remove(struct source *source)
{
	epoll_ctl(set, EPOLL_CTL_DEL, source->fd, NULL);
}

void loop_wait(int timeout_ms)
{
	struct epoll_event event;
	if (epoll_wait(set, &event, 1, timeout_ms) != 1)
		return;
	struct source *source = event.data.ptr;
	source->ready(source);
}

uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
