"""An interactive sandbox: a pseudo-terminal of its own, relayed to the caller's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from reprobuild.adapters.sandbox.process import encode_arguments
from reprobuild.adapters.sandbox.starter import memory_file
from reprobuild.core.sandboxenv import UMASK

_CHUNK = 1 << 14


@dataclass(frozen=True, slots=True)
class SandboxShell:
    """What to run: `options` makes bubblewrap's options out of the filter's descriptor number;
    `uid` is who the terminal is given to, None for the caller."""

    prefix: Sequence[str]
    bwrap: str
    argv: Sequence[str]
    seccomp: bytes
    options: Callable[[int], Sequence[str]]
    uid: int | None


def interact(shell: SandboxShell) -> int:
    """Runs it on a new terminal; returns its status (128 + N for signal N).

    Standard input and output are relayed; a terminal among them is put into raw mode meanwhile,
    and its window size is passed on.
    """
    filter_file = memory_file(shell.seccomp)
    arguments = memory_file(encode_arguments(shell.options(filter_file)))
    words = [*shell.prefix, shell.bwrap, "--args", str(arguments), "--", *shell.argv]
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    try:
        child, master = pty.fork()
        if child == 0:
            # Nothing but the call itself may happen here: other threads did not come along.
            try:
                if shell.uid is not None:
                    os.fchown(0, shell.uid, shell.uid)
                os.umask(UMASK)
                os.set_inheritable(filter_file, True)
                os.set_inheritable(arguments, True)
                os.execvpe(words[0], words, environment)  # noqa: S606
            finally:
                os._exit(127)
    finally:
        os.close(filter_file)
        os.close(arguments)
    try:
        with _window_size(master), _raw(0) as stdin:
            _relay(master, stdin, 1)
    finally:
        os.close(master)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


@contextmanager
def _raw(descriptor: int) -> Iterator[int]:
    if not os.isatty(descriptor):
        yield descriptor
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)  # keeps what was typed ahead
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _window_size(master: int) -> Iterator[None]:
    """Keeps the inner terminal as large as the outer one."""

    def copy(*_: object) -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(1, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
            fcntl.ioctl(master, termios.TIOCSWINSZ, size)

    copy()
    try:
        before = signal.signal(signal.SIGWINCH, copy)
    except ValueError:  # not the main thread: the size stays as it was
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _relay(master: int, stdin: int, stdout: int) -> None:
    """Copies both ways until the inner terminal is closed."""
    poll = select.poll()
    poll.register(master, select.POLLIN)
    poll.register(stdin, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            try:
                data = os.read(descriptor, _CHUNK)
            except OSError:  # EIO: nobody has the inner terminal open any more
                data = b""
            if descriptor == master:
                if not data:
                    return
                _write(stdout, data)
            elif data:
                _write(master, data)
            else:
                poll.unregister(stdin)
                with contextlib.suppress(OSError):
                    os.write(master, b"\x04")  # end of file, as it is typed


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
