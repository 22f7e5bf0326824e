"""The hypervisor's command line, as data.

A template and its forks must agree in every device, or the state of the one does not load in the other: so both come
from `_machine` and differ only in what is named in `template_argv` and `fork_argv`.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.machine import Accelerator, RestoreKey, Shape

CONTROL_PORT = "org.promigence.control"
SSH_PORT = "org.promigence.ssh"

# Room for translated code. With 8 MiB, QEMU translates the same code again and commands take three times as long.
TCG_CODE_MIB = 32

# QEMU needs no new process, no other user and no limit changed once it runs.
SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

# What the guest does to itself stays to be seen: it is paused, not gone, until its event has been read.
ACTION = "reboot=shutdown,shutdown=pause,panic=pause"

# The guest is one tenant, so it has nobody to guard against inside; page-table isolation alone doubles its system calls
# by emulation. A panic that pvpanic did not report ends as a reset, at once.
KERNEL_COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on cryptomgr.notests"
)
# By emulation the time stamp counter runs as the host's does; its rate is measured anew at each boot, by chance 0.06 %
# off. The HPET counts nanoseconds of QEMU's own clock, on every host, and wraps after 42 s; the ACPI timer does after
# 4.7 s, which a starved guest can miss.
EMULATED_COMMAND_LINE = "tsc=unstable no_timer_check"


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Numbers of the open files and listening sockets that QEMU inherits; it opens no path of ours by itself.

    `state` is written by a template and read by a fork; `root` is a raw disk, under a fork's `overlay`. `accelerator`
    is the open /dev/kvm.
    """

    console: int
    monitor: int
    control: int
    ssh: int
    memory: int
    state: int
    root: int
    tools: int
    overlay: int | None = None
    kernel: int | None = None
    initramfs: int | None = None
    accelerator: int | None = None

    def numbers(self) -> tuple[int, ...]:
        """All of them, to be passed on."""
        all_of_them = (getattr(self, field) for field in self.__slots__)
        return tuple(number for number in all_of_them if number is not None)


@dataclass(frozen=True, slots=True)
class Hypervisor:
    """A QEMU program and the one restore key under which it runs machines here."""

    program: str
    key: RestoreKey


def template_argv(
    hypervisor: Hypervisor, name: str, shape: Shape, files: Descriptors
) -> tuple[str, ...]:
    """Boot a kernel, with memory in a shared file, on a root disk that is written in place."""
    memory = f"mem-path={_again(files.memory)},share=on"
    root = _raw("root", files.root, read_only=False)
    boot = ("-kernel", _again(files.kernel), "-initrd", _again(files.initramfs))
    return (
        *_machine(hypervisor, name, shape, files, memory),
        *("-blockdev", f"{root},discard=unmap"),
        *boot,
        *("-append", _command_line(hypervisor.key.accelerator)),
    )


def fork_argv(
    hypervisor: Hypervisor, name: str, shape: Shape, files: Descriptors
) -> tuple[str, ...]:
    """Wait for a state, with the frozen memory mapped privately and an overlay over the frozen disk."""
    memory = f"mem-path={_again(files.memory)},share=off,readonly=on,rom=off"
    overlay = (
        f"driver=qcow2,node-name=root,backing=frozen,discard=unmap,cache.no-flush=on,"
        f"file.driver=file,file.filename={fdset(files.overlay)},file.cache.no-flush=on"
    )
    return (
        *_machine(hypervisor, name, shape, files, memory),
        *("-blockdev", _raw("frozen", files.root, read_only=True)),
        *("-blockdev", overlay),
        *("-incoming", "defer"),
    )


def fdset(number: int | None) -> str:
    """QEMU's own name for an inherited file: it needs no permission on the file's path or inode."""
    return f"/dev/fdset/{number}"


def _again(number: int | None) -> str:
    """An inherited file opened anew, for options that know no fdset: needs permission on the inode, not on its path."""
    return f"/proc/self/fd/{number}"


def _machine(
    hypervisor: Hypervisor, name: str, shape: Shape, files: Descriptors, memory: str
) -> tuple[str, ...]:
    key = hypervisor.key
    tools = _raw("tools", files.tools, read_only=True)
    machine = f"{key.machine_type},memory-backend=ram,vmport=off,usb=off,graphics=off"
    return (
        hypervisor.program,
        # Threads by their own names: a virtual CPU's is how the host tells whether it was starved.
        *("-name", f"{name},debug-threads=on"),
        *("-nodefaults", "-no-user-config", "-display", "none"),
        *("-sandbox", SANDBOX),
        *("-machine", machine),
        *("-accel", _accelerator(key.accelerator, files)),
        *("-cpu", f"{key.cpu_model},enforce"),
        *("-smp", str(shape.vcpus)),
        *("-m", f"{shape.memory_mib}M"),
        *("-object", f"memory-backend-file,id=ram,size={shape.memory_mib}M,{memory}"),
        *("-rtc", "base=utc,clock=host"),
        *("-action", ACTION),
        *_inherited(files),
        *("-chardev", _console(files.console), "-serial", "chardev:console"),
        *_socket("monitor", files.monitor),
        *("-mon", "chardev=monitor,mode=control"),
        *("-device", "vmgenid,guid=auto"),
        *("-device", "pvpanic-pci"),
        *("-blockdev", tools),
        *("-device", "virtio-blk-pci,drive=root,disable-legacy=on"),
        *("-device", "virtio-blk-pci,drive=tools,disable-legacy=on"),
        *("-device", "virtio-serial-pci,id=ports,max_ports=4,disable-legacy=on"),
        *_socket("control", files.control),
        *("-device", f"virtserialport,bus=ports.0,nr=1,chardev=control,name={CONTROL_PORT}"),
        *_socket("ssh", files.ssh),
        *("-device", f"virtserialport,bus=ports.0,nr=2,chardev=ssh,name={SSH_PORT}"),
    )


def _command_line(accelerator: Accelerator) -> str:
    if accelerator is Accelerator.KVM:
        return KERNEL_COMMAND_LINE
    return f"{KERNEL_COMMAND_LINE} {EMULATED_COMMAND_LINE}"


def _accelerator(accelerator: Accelerator, files: Descriptors) -> str:
    if accelerator is Accelerator.KVM:
        return f"kvm,device={fdset(files.accelerator)}"
    return f"tcg,tb-size={TCG_CODE_MIB}"


def _inherited(files: Descriptors) -> tuple[str, ...]:
    """Each file that QEMU opens through an fdset; the set has the descriptor's own number."""
    numbers = (
        files.console,
        files.state,
        files.root,
        files.tools,
        files.overlay,
        files.accelerator,
    )
    options = (("-add-fd", f"fd={fd},set={fd}") for fd in numbers if fd is not None)
    return tuple(word for option in options for word in option)


def _raw(node: str, number: int, *, read_only: bool) -> str:
    """A raw disk. Never flushed: a fork dies with its host, and a template is flushed once, when it is frozen."""
    mode = "on" if read_only else "off"
    return (
        f"driver=raw,node-name={node},read-only={mode},cache.no-flush=on,"
        f"file.driver=file,file.filename={fdset(number)},file.read-only={mode},file.cache.no-flush=on"
    )


def _console(number: int) -> str:
    """A pipe: `append`, because QEMU truncates any other file, and a pipe cannot be."""
    return f"file,id=console,path={fdset(number)},append=on"


def _socket(name: str, number: int) -> tuple[str, ...]:
    return ("-chardev", f"socket,id={name},fd={number},server=on,wait=off")
