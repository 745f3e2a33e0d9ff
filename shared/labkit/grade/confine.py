"""Restrict the process of untrusted kernels, before a line of theirs runs.

It is used next to `sandbox_worker.py` and needs only Python and Linux. Nothing here can be undone.
Limits bound what a process has; the filter of system calls (seccomp) closes what no limit counts:
shared memory and semaphores of System V, which outlive their users, empty files and links
without end, and whatever reaches for other processes, the network or rare corners of the kernel.
"""

from __future__ import annotations

import errno
import os
import signal
import struct
import sys
from typing import Any

#: system call -> its number on x86_64 and on aarch64 (None: not there); documented in Linux's
#: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # memory that belongs to no process
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # files, folders and links, which cost memory even if they are empty
    "creat": (85, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "link": (86, None),
    "linkat": (265, 37),
    "openat2": (437, 437),
    # what two that run together could tell each other by: locks of files that both may read
    "flock": (73, 32),
    # what all of the machine has one of: a count of requests, and the writing of all files
    "io_setup": (206, 0),
    "sync": (162, 81),
    "syncfs": (306, 267),
    # other processes
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "ioprio_set": (251, 30),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    # the network
    "socket": (41, 198),
    "socketpair": (53, 199),
    # keys, namespaces, mounts, and what holes in the kernel have been found in
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "modify_ldt": (154, None),
    "personality": (135, 92),
}
#: those that open files -> which argument holds the flags
OPENS = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
#: fcntl: its commands up to this, and one that makes a descriptor, are about descriptors; others
#: lock files and watch them
FCNTL, LAST, DUPLICATES = (72, 25), 4, 1030
CREATES = os.O_CREAT | 0o20000000 if os.name == "posix" else 0  # O_CREAT, or of O_TMPFILE
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_LOAD, _EQUAL, _ABOVE, _ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of BPF


def program(machine: str) -> bytes:
    """Return the filter for a machine, in the kernel's own instructions; b"" for an unknown one."""
    if machine not in MACHINES:
        return b""
    column, arch = MACHINES[machine]
    numbers = sorted(n for both in REFUSED.values() if (n := both[column]) is not None)
    steps: list[tuple[int, Any, Any, int]] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 0, "refuse", arch),  # programs of another machine
        (_LOAD, 0, 0, 0),
        (_ABOVE, "refuse", 0, 0x40000000),
    ]  # x32, which has other numbers
    steps += [(_EQUAL, "refuse", 0, n) for n in numbers]
    for both, flags in OPENS.values():
        if (number := both[column]) is not None:
            steps += [
                (_EQUAL, 0, 3, number),
                (_LOAD, 0, 0, 16 + 8 * flags),
                (_ANY, "refuse", 0, CREATES),
                (_RETURN, 0, 0, ALLOW),
            ]
    steps += [
        (_EQUAL, 0, 4, FCNTL[column]),
        (_LOAD, 0, 0, 16 + 8),
        (_EQUAL, 1, 0, DUPLICATES),
        (_ABOVE, "refuse", 0, LAST + 1),
        (_RETURN, 0, 0, ALLOW),
    ]
    steps += [(_RETURN, 0, 0, ALLOW), (_RETURN, 0, 0, REFUSE)]
    last = len(steps) - 1
    return b"".join(
        struct.pack("=HBBI", code, *(last - i - 1 if j == "refuse" else j for j in (yes, no)), k)
        for i, (code, yes, no, k) in enumerate(steps)
    )


def filter_calls() -> bool:
    """Let the kernel refuse from now on what is in REFUSED; return whether it does."""
    if not sys.platform.startswith("linux"):
        return False
    code = program(os.uname().machine)
    if not code:
        return False
    try:
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (ImportError, OSError, AttributeError):
        return False

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]

    held = ctypes.create_string_buffer(code, len(code))
    made = Program(len(code) // 8, ctypes.cast(held, ctypes.c_void_p))

    def ask(what: int, *more: object) -> int:
        return int(
            prctl(
                what,
                *(
                    ctypes.c_ulong(argument) if isinstance(argument, int) else argument
                    for argument in (*more, 0, 0, 0, 0)[:4]
                ),
            )
        )

    ask(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the judge
    ask(4, 0)  # PR_SET_DUMPABLE: no other process may read its memory
    return ask(38, 1) == 0 and ask(22, 2, ctypes.byref(made)) == 0  # NO_NEW_PRIVS, SECCOMP


def confine(limits: dict[str, int]) -> None:
    """Take from this process what a kernel does not need."""
    try:
        import resource
    except ImportError:
        return
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            most = resource.getrlimit(kind)[1]
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(kind, (value, value))
    filter_calls()


if __name__ == "__main__":  # sandbox.filters asks whether this works here
    print(filter_calls())
