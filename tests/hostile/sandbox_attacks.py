# ruff: noqa: SIM115, PLW0108
"""Runs inside the sandbox, as the build: tries what must not work and prints what happened.

Takes a JSON object (`port`, `abstract`, `secret`, `pid`) as its argument and prints one with an
errno name, or `done`, for every attempt. Uses nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable

libc = ctypes.CDLL(None, use_errno=True)
FACTS = json.loads(sys.argv[1])
RESULTS: dict[str, object] = {}


def attempt(name: str, action: Callable[[], object]) -> None:
    try:
        action()
    except OSError as error:
        RESULTS[name] = errno.errorcode.get(error.errno or 0, str(error.errno))
    else:
        RESULTS[name] = "done"


def call(number: int, *arguments: int) -> Callable[[], None]:
    def action() -> None:
        if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return action


def text(value: str) -> int:
    buffer = ctypes.create_string_buffer(value.encode())
    KEPT.append(buffer)
    return ctypes.addressof(buffer)


KEPT: list[object] = []


def connect(family: int, address: object) -> Callable[[], None]:
    def action() -> None:
        with socket.socket(family, socket.SOCK_STREAM) as plug:
            plug.settimeout(2)
            plug.connect(address)  # type: ignore[arg-type]

    return action


def write(path: str) -> Callable[[], None]:
    def action() -> None:
        with open(path, "w") as file:
            file.write("1")

    return action


def read(path: str) -> Callable[[], None]:
    def action() -> None:
        with open(path) as file:
            file.read()

    return action


def sub(name: str, body: Callable[[], object]) -> None:
    """Tries in a child; `RESULTS[name]` says which signal ended it, or its exit status."""
    child = os.fork()
    if child == 0:
        try:
            body()
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    RESULTS[name] = signal.Signals(-status).name if status < 0 else status


def i386() -> None:
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    ctypes.CFUNCTYPE(ctypes.c_int)(at)()


def sti() -> None:
    import fcntl
    import pty

    _, slave = pty.openpty()
    fcntl.ioctl(slave, 0x5412, b"x")


# -- the network ---------------------------------------------------------------------------
attempt("tcp-host-loopback", connect(socket.AF_INET, ("127.0.0.1", FACTS["port"])))
attempt("tcp-outside", connect(socket.AF_INET, ("192.0.2.1", 80)))
attempt("abstract-socket", connect(socket.AF_UNIX, "\0" + FACTS["abstract"]))
try:
    socket.getaddrinfo("example.com", 80)
    RESULTS["dns"] = "done"
except socket.gaierror:
    RESULTS["dns"] = "refused"
for name, family in (("netlink", 16), ("packet", 17), ("alg", 38), ("vsock", 40)):
    attempt("socket-" + name, call(41, family, 3, 0))
attempt("socketpair-unix", lambda: socket.socketpair())

# -- the host's files and processes --------------------------------------------------------
attempt("read-secret", read(FACTS["secret"]))
attempt("read-shadow", read("/etc/shadow"))
attempt("list-home", lambda: os.listdir("/root"))
attempt("kill-outside", lambda: os.kill(FACTS["pid"], 0))
attempt("ptrace-outside", call(101, 16, FACTS["pid"], 0, 0))
RESULTS["pids"] = sorted(int(n) for n in os.listdir("/proc") if n.isdigit())[:1]
RESULTS["descriptors"] = [n for n in os.listdir("/proc/self/fd") if int(n) > 3]

# -- inputs and the kernel's knobs ---------------------------------------------------------
attempt("write-input", write("/inputs/data/file"))
attempt("chmod-input", lambda: os.chmod("/inputs/data/file", 0o777))
attempt("unlink-input", lambda: os.unlink("/inputs/data/file"))
attempt("write-root", write("/new"))
attempt("write-etc", write("/etc/passwd"))
attempt("write-dev", write("/dev/new"))
BIND, REMOUNT = 4096, 32
for place in ("/inputs/data", "/proc/sys", "/"):
    attempt("remount-" + place, call(165, text("none"), text(place), 0, REMOUNT | BIND, 0))
attempt("umount-input", call(166, text("/inputs/data"), 2))
for knob in ("kernel/core_pattern", "kernel/hostname", "net/ipv4/ip_forward", "vm/drop_caches"):
    attempt("sysctl-" + knob, write("/proc/sys/" + knob))
attempt("sysrq", write("/proc/sysrq-trigger"))
attempt("sethostname", lambda: socket.sethostname("x"))

# -- files that must not be left -----------------------------------------------------------
os.makedirs("/out/out/d")
with open("/out/out/f", "w") as plain:
    attempt("chmod", lambda: os.chmod("/out/out/f", 0o4755))
    attempt("chmod-sgid-dir", lambda: os.chmod("/out/out/d", 0o2755))
    attempt("fchmod", lambda: os.fchmod(plain.fileno(), 0o2755))
    attempt("fchmodat", call(268, -100, text("/out/out/f"), 0o4755))
    attempt("fchmodat2", call(452, -100, text("/out/out/f"), 0o4755, 0))
    attempt("chmod-plain", lambda: os.chmod("/out/out/f", 0o755))
CREATE = os.O_CREAT | os.O_WRONLY
attempt("open-setuid", call(2, text("/out/out/o1"), CREATE, 0o4755))
attempt("openat-setuid", lambda: os.open("/out/out/o2", CREATE, 0o4755))
attempt("tmpfile-setuid", lambda: os.open("/out/out", os.O_TMPFILE | os.O_WRONLY, 0o4755))
attempt("creat-setuid", call(85, text("/out/out/o3"), 0o4755))
HOW = ctypes.create_string_buffer(struct.pack("QQQ", CREATE, 0o4755, 0))
attempt("openat2", call(437, -100, text("/out/out/o4"), ctypes.addressof(HOW), 24))
attempt("mknod-device", call(133, text("/out/out/n1"), 0o020666, 0x0103))
attempt("mknodat-block", call(259, -100, text("/out/out/n2"), 0o060666, 0x0103))
attempt("mknod-setuid", call(133, text("/out/out/n3"), 0o104755, 0))
attempt("mkfifo", lambda: os.mkfifo("/build/fifo"))
attempt("setxattr", lambda: os.setxattr("/out/out/f", "user.x", b"1"))

# -- ways out of before --------------------------------------------------------------------
attempt("unshare-user", call(272, 0x10000000))
attempt("unshare-mount", call(272, 0x00020000))
attempt("setns", call(308, 0, 0))
attempt("clone-user", call(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0))
attempt("clone3", call(435, 0, 0))
attempt("keyctl", call(250, 0, -3, 0))
attempt("add_key", call(248, text("user"), text("k"), text("v"), 1, -3))
attempt("request_key", call(249, text("user"), text("k"), 0, -3))
attempt("bpf", call(321, 0, 0, 0))
attempt("io_uring_setup", call(425, 1, 0))
attempt("perf_event_open", call(298, 0, 0, -1, -1, 0))
attempt("userfaultfd", call(323, 0))
attempt("x32", call(0x40000000 | 39))
attempt("setuid", lambda: os.setuid(1))
attempt("chroot", lambda: os.chroot("/build"))
attempt("tiocsti", sti)
sub("i386", i386)
RESULTS["capabilities"] = [
    line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")
]
RESULTS["tty"] = "done" if subprocess.run(["tty", "-s"], check=False).returncode == 0 else "none"
print(json.dumps(RESULTS))
