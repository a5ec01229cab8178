"""The program of a starter process (starter.py): starts one sandbox after another.

It is small, has given up root, and holds the limits of a build already, so that what it starts
needs no more than bubblewrap itself. Run as a script without the site's packages; its words are
the number of its socket, that of the filter's file, the user id to become (-1: none), the umask,
and one `KIND:SOFT:HARD` for each resource limit.

The socket keeps messages apart. In: a letter, with descriptors. `s` starts a command: words
follow, each ended by NUL, and the first descriptor is the log; with `f` they are in a file, the
next descriptor. Up to an empty word each is `MODE PATH`, a directory to make first; then come the
command's own, the program first. `k` ends the command that runs, if one does. The command
inherits the filter as 20, as 21 what bubblewrap reports to (`--json-status-fd`), and as 22 a last
descriptor where there is one. Out: three numbers, what happened and two values: (0, 0, 0) for
ready, then for each command one message when it is over: (1, wait status, the exit status that
was reported, or -1, or -2 where it did not start in time), or (2, errno, N) when it could not be
started; N is 0 when a directory could not be made.
When it is over nothing of it runs any more. When the other end is gone, so is all.

What the command leaves behind becomes a child of this process (it is a *subreaper*), which is how
the sandbox's process 1 can be ended, and waited for, without a doubt about who has its number.

Half of what it took to start were the modules `socket`, `signal` and `contextlib` with all that
they import; so it does without them.
"""

# ruff: noqa: SIM105

from __future__ import annotations

import _socket
import ctypes
import errno
import os
import resource
import select
import struct
import sys

FIRST_INHERITED = 20
FILTER, STATUS, ARGUMENTS = range(FIRST_INHERITED, FIRST_INHERITED + 3)
MESSAGE = struct.Struct("=iqq")
READY, ENDED, FAILED = range(3)
SLOW = -2
START, START_BY_FILE, KILL = b"s", b"f", b"k"
MOST_INLINE = 2**16
"""Bytes of a message; longer words go by a file."""
START_SECONDS = 60
"""How long bubblewrap may take to make its namespaces on a busy machine."""

_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS = 0x20000
_MS_REC_SLAVE = 0x4000 | 1 << 19
_MNT_DETACH = 2
_SIGINT, _SIGKILL, _SIGPIPE, _SIGXFSZ = 2, 9, 13, 25
_SIG_IGN = 1
_SIGNALS = (_SIGPIPE, _SIGXFSZ, _SIGINT)
_MOST_DESCRIPTORS = 3
_DESCRIPTOR = struct.Struct("=i")


def _spawn(words: list[bytes], log: int, inherited: dict[int, int]) -> int:
    return os.posix_spawn(
        words[0],
        words,
        _ENVIRONMENT,
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
            *((os.POSIX_SPAWN_DUP2, own, number) for number, own in inherited.items()),
        ),
        setsid=True,
        setsigmask=(),
        setsigdef=_SIGNALS,
    )


def _make(words: list[bytes]) -> list[bytes]:
    """Makes the directories that the words begin with; the command that follows them."""
    end = words.index(b"")
    for word in words[:end]:
        mode, _, path = word.partition(b" ")
        os.mkdir(path, 0o755)
        if (bits := int(mode, 8)) != 0o755:
            os.chmod(path, bits)
    return words[end + 1 :]


def number_after(report: bytes, key: bytes) -> int:
    """The number that a report of bubblewrap's gives for `key`; -1 where it gives none."""
    _, found, rest = report.partition(b'"' + key + b'":')
    digits = rest.split(b"\n")[0].split(b",")[0].split(b"}")[0].strip()
    return int(digits) if found and digits.isdigit() else -1


def _read_all(descriptor: int) -> bytes:
    report = b""
    try:
        while data := os.read(descriptor, 4096):
            report += data
    except BlockingIOError:
        pass
    return report


def _end(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, _SIGKILL)
        except OSError:
            pass


def _is_wanted(channel: _socket.socket) -> bool:
    """Whether a message asks for the command's end; else nobody is there any more."""
    try:
        return channel.recv(1) == KILL
    except OSError:
        return False


class Command:
    """A command that runs: `follow` it to its end."""

    def __init__(self, pid: int, status: int) -> None:
        self._pid = pid
        self._status = status
        self._report = b""

    def follow(self, channel: _socket.socket) -> tuple[bool, int, int]:
        """Whether somebody still waits for it; its wait status, and the exit status reported."""
        handle, slow = os.pidfd_open(self._pid), False
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(channel, select.POLLIN)
        waiting, patience = True, START_SECONDS * 1000
        while True:
            found = poll.poll(patience)
            if any(descriptor == handle for descriptor, _ in found):
                break
            if found:
                waiting = _is_wanted(channel)
            else:
                self._report += _read_all(self._status)
                slow = b"\n" not in self._report
            if found or b"\n" not in self._report:
                _end(self._pid)
                poll.unregister(channel)
            patience = -1
        os.close(handle)
        status = self._reap()
        code = number_after(self._report, b"exit-code")
        return waiting, status, SLOW if slow and code < 0 else code

    def _reap(self) -> int:
        """Ends what the command has left, and waits until all of it is gone."""
        self._report += _read_all(self._status)
        # Its number, and that of its process group, are free only when it is waited for.
        try:
            os.killpg(self._pid, _SIGKILL)
        except OSError:
            pass
        _, status = os.waitpid(self._pid, 0)
        init = number_after(self._report, b"child-pid")
        try:
            if init > 0:  # where it is a child of ours, the number can be nobody else's
                os.waitid(os.P_PID, init, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                os.kill(init, _SIGKILL)
        except ChildProcessError:
            pass
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            return status


def _receive(channel: _socket.socket) -> tuple[bytes, list[int]]:
    """A message, and the descriptors that came with it, close-on-exec."""
    room = _socket.CMSG_SPACE(_MOST_DESCRIPTORS * _DESCRIPTOR.size)
    data, extra, _, _ = channel.recvmsg(MOST_INLINE, room, _socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, content in extra:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            whole = len(content) - len(content) % _DESCRIPTOR.size
            descriptors += (number for (number,) in _DESCRIPTOR.iter_unpack(content[:whole]))
    return data, descriptors


def _serve(channel: _socket.socket, filter_file: int) -> bool:
    """Takes one message; whether there may be more."""
    data, descriptors = _receive(channel)
    if data[:1] not in (START, START_BY_FILE):
        return bool(data)  # the wish to end what was over already
    words, (log, *more) = data[1:], descriptors
    if data[:1] == START_BY_FILE:
        with os.fdopen(more.pop(0), "rb") as file:
            words = file.read()
    read, write = os.pipe()
    try:
        os.set_blocking(read, False)
        os.lseek(filter_file, 0, os.SEEK_SET)
        inherited = dict(
            zip((FILTER, STATUS, ARGUMENTS), (filter_file, write, *more), strict=False)
        )
        made = False
        try:
            command = _make(words.split(b"\0")[:-1])
            made = True
            pid = _spawn(command, log, inherited)
        except OSError as error:
            channel.send(MESSAGE.pack(FAILED, error.errno or errno.EIO, made))
            return True
        finally:
            for descriptor in (log, write, *more):
                os.close(descriptor)
        waiting, status, code = Command(pid, read).follow(channel)
    finally:
        os.close(read)
    if waiting:
        channel.send(MESSAGE.pack(ENDED, status, code))
    return waiting


def _leave_sys(libc: ctypes.CDLL) -> None:
    """Goes without /sys, where root can: no sandbox has it, and its control groups can be half of
    all mounts, which bubblewrap reads through for each of its own. What is mounted elsewhere on
    the host comes here as well. Only saves time, so nothing is said where it cannot be done.
    """
    if libc.unshare(_CLONE_NEWNS) == 0 and libc.mount(None, b"/", None, _MS_REC_SLAVE, None) == 0:
        libc.umount2(b"/sys", _MNT_DETACH)


def main(argv: list[str]) -> None:
    """Gives up what a build must not have, and serves until the socket closes."""
    channel, filter_file = _socket.socket(fileno=int(argv[1])), int(argv[2])
    for descriptor in (channel.fileno(), filter_file):
        os.set_inheritable(descriptor, False)  # nothing but what a command is given may reach it
    user = int(argv[3])
    os.umask(int(argv[4]))
    os.chdir("/")
    libc = ctypes.CDLL(None)
    libc.signal(_SIGINT, ctypes.c_void_p(_SIG_IGN))
    for limit in argv[5:]:
        kind, soft, hard = map(int, limit.split(":"))
        resource.setrlimit(kind, (soft, hard))
    if user >= 0:
        _leave_sys(libc)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        return
    channel.send(MESSAGE.pack(READY, 0, 0))
    while _serve(channel, filter_file):
        pass


if __name__ == "__main__":
    try:
        main(sys.argv)
    except ConnectionError:
        pass
