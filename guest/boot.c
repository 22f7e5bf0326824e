/* From the initramfs into the image's root, in the same process. Nothing of ours is written into the image's tree
 * but empty directories to mount on. */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DISK_WAIT_MS 5000
static char root_device[32], tools_device[32], boot_uuid[40];

static void load_modules(void)
{
	FILE *order = fopen("/modules/order", "re");
	char name[128], path[160];
	while (order && fscanf(order, "%127s", name) == 1) {
		snprintf(path, sizeof path, "/modules/%s", name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		syscall(SYS_finit_module, fd, "", 0);
		close(fd);
		unlink(path);
	}
	if (order)
		fclose(order);
}

/* A disk says by its serial what it is; a host that gives none puts the root disk first. */
static bool find_disk(const char *serial, char letter, char *device)
{
	char path[64], seen[32];
	for (char c = 'a'; c <= 'd'; c++) {
		snprintf(path, sizeof path, "/sys/block/vd%c/serial", c);
		ssize_t count = read_file(path, seen, sizeof seen - 1);
		if (count < 0)
			continue;
		seen[count] = 0;
		seen[strcspn(seen, "\n")] = 0;
		if (!strcmp(seen, serial) || (!*seen && c == letter)) {
			snprintf(device, 32, "/dev/vd%c", c);
			return true;
		}
	}
	return false;
}

static bool wait_for_disks(void)
{
	for (int waited = 0; waited < DISK_WAIT_MS; waited += 10) {
		if (find_disk("promigence-root", 'a', root_device) &&
		    find_disk("promigence-tools", 'b', tools_device))
			return true;
		usleep(10000);
	}
	return false;
}

static void mount_on(const char *source, const char *target, const char *type, unsigned long flags,
		     const char *options)
{
	mkdir(target, 0755);
	mount(source, target, type, flags, options);
}

static void mount_kernel_views(void)
{
	mount_on("dev", "/dev", "devtmpfs", MS_NOSUID, NULL);
	mount_on("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	mount_on("sys", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static bool enter_image(void)
{
	mkdir("/image", 0755);
	if (mount(root_device, "/image", "ext4", MS_NOATIME, NULL))
		return false;
	umount2("/dev", MNT_DETACH);
	umount2("/proc", MNT_DETACH);
	umount2("/sys", MNT_DETACH);
	unlink("/init");
	return !chdir("/image") && !mount(".", "/", NULL, MS_MOVE, NULL) && !chroot(".") && !chdir("/");
}

static void furnish_image(void)
{
	mount_kernel_views();
	mount_on("pts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
	mount_on("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
	mount_on("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
	mkdir("/run", 0755);
	mkdir("/etc", 0755);
	mkdir("/tmp", 01777);
	mount_on("promigence", STATE_DIR, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m");
}

static bool mount_tools(void)
{
	mkdir(TOOLS_DIR, 0755);
	if (mount(tools_device, TOOLS_DIR, "ext4", MS_RDONLY | MS_NODEV | MS_NOSUID, NULL))
		return false;
	mount_on("dev", TOOLS_DIR "/dev", "devtmpfs", MS_NOSUID, NULL);
	mount_on("pts", TOOLS_DIR "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "ptmxmode=666");
	mount_on("proc", TOOLS_DIR "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	mount_on("promigence", TOOLS_DIR "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700,size=1m");
	return true;
}

static void bind_machine_id(void)
{
	int target = open("/etc/machine-id", O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
	if (target >= 0)
		close(target);
	write_file(STATE_DIR "/machine-id", "", 0, 0444);
	mount(STATE_DIR "/machine-id", "/etc/machine-id", NULL, MS_BIND, NULL);
}

static void raise_loopback(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ioctl(fd, SIOCSIFFLAGS, &request);
	close(fd);
}

static void raise_limits(void)
{
	struct rlimit files = {65536, 1048576}, core = {0, RLIM_INFINITY};
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_CORE, &core);
	umask(022);
}

const char *boot_id(void)
{
	return boot_uuid;
}

/* NULL when the machine stands in its image's root; else the step that failed, in words without spaces. */
const char *boot_machine(void)
{
	mount_kernel_views();
	load_modules();
	if (!wait_for_disks())
		return "no_disks";
	if (!enter_image())
		return "root_disk_not_mountable";
	furnish_image();
	if (!mount_tools())
		return "tools_disk_not_mountable";
	bind_machine_id();
	raise_loopback();
	raise_limits();
	ssize_t count = read_file("/proc/sys/kernel/random/boot_id", boot_uuid, sizeof boot_uuid - 1);
	boot_uuid[count > 0 ? strcspn(boot_uuid, "\n") : 0] = 0;
	return NULL;
}
