"""The program of a starter process (starter.py): starts one sandbox after another.

It is small, has given up root, and holds the limits of a build already, so that what it starts
needs no more than bubblewrap itself. Run as a script without the site's packages; its words are
the number of its socket, the user id to become (-1: none), the umask, and one `KIND:SOFT:HARD`
for each resource limit.

The socket keeps messages apart. In: one byte, and the descriptors of the command line (a file of
words ended by NUL, the program first), the log, and what the command inherits as 20, 21 and so
on. Out: two numbers, what happened and its value: (0, 0) for ready, then for each command (1, PID)
or (2, errno), and (3, wait status) when it has ended. When the other end is gone, so is all.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import struct
import sys

FIRST_INHERITED = 20
MESSAGE = struct.Struct("=iq")
READY, STARTED, FAILED, ENDED = range(4)
MOST_DESCRIPTORS = 8
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}


def _words(descriptor: int) -> list[bytes]:
    with os.fdopen(descriptor, "rb") as file:
        return file.read().split(b"\0")[:-1]


def _start(words: list[bytes], log: int, inherited: list[int]) -> int:
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
    ]
    actions += [
        (os.POSIX_SPAWN_DUP2, descriptor, FIRST_INHERITED + number)
        for number, descriptor in enumerate(inherited)
    ]
    return os.posix_spawn(
        words[0],
        words,
        _ENVIRONMENT,
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT],
    )


def _follow(channel: socket.socket, pid: int) -> bool:
    """Waits for the command, or ends it with its process group when nobody waits any more.

    Whether somebody does.
    """
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(channel, select.POLLIN)
    if any(found == channel.fileno() for found, _ in poll.poll()):
        for end in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                end(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return False
    os.close(handle)
    _, status = os.waitpid(pid, 0)
    channel.send(MESSAGE.pack(ENDED, status))
    return True


def main(argv: list[str]) -> None:
    """Gives up what a build must not have, and serves until the socket closes."""
    channel = socket.socket(fileno=int(argv[1]))
    channel.set_inheritable(False)  # nothing but what a command is given may reach it
    user = int(argv[2])
    os.umask(int(argv[3]))
    os.chdir("/")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for limit in argv[4:]:
        kind, soft, hard = map(int, limit.split(":"))
        resource.setrlimit(kind, (soft, hard))
    if user >= 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    channel.send(MESSAGE.pack(READY, 0))
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, 1, MOST_DESCRIPTORS)
        if not data:
            return
        for descriptor in descriptors:  # recv_fds passes no flags on
            os.set_inheritable(descriptor, False)
        words, log, *inherited = descriptors
        try:
            pid = _start(_words(words), log, inherited)
        except OSError as error:
            channel.send(MESSAGE.pack(FAILED, error.errno or 0))
            continue
        finally:
            for descriptor in (log, *inherited):
                os.close(descriptor)
        channel.send(MESSAGE.pack(STARTED, pid))
        if not _follow(channel, pid):
            return


if __name__ == "__main__":
    with contextlib.suppress(ConnectionError):
        main(sys.argv)
