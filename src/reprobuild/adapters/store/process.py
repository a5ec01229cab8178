"""A second process for work that the interpreter's lock would keep on one core.

Many short files cost system calls and the Python between them; threads only hand the lock about.
The process is a fresh interpreter without the site's packages, so that whatever threads and locks
ours has are no concern (a fork would copy them). It is a helper and nothing more: whatever goes
wrong with it or in it, the answer is that it did not do the work, and who asked does it instead.
So errors are raised, and found, in one place.

Messages are marshalled, each after its length in four bytes; both ends are the same interpreter.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import sys

from blake3 import blake3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DIRECTORY_FD = 3
"""What the process finds the directory under that it was given."""
_HELD_FD = 4
"""What it holds the lock by that it was given."""

_KEPT = ("LD_LIBRARY_PATH", "PATH")
_PROGRAM = "from reprobuild.adapters.store.served import main; main()"
_STARTS = "import sys; sys.path += sys.argv[1:]; "
_LONGEST_WAIT_MS = 60_000
_SIGKILL = 9


class GoneError(Exception):
    """The process is no more: what it was asked and did not answer is undone."""


def _loads(data: bytes | bytearray) -> Any:
    return marshal.loads(data)  # noqa: S302 - of a process that we started, by a pipe


def spare_cores() -> int:
    """How many processes beside this one could be kept busy."""
    return len(os.sched_getaffinity(0)) - 1


class Process:
    """One such process, for one kind of work; raises OSError or GoneError when none can be had.

    `work` names a function of served.py, which is given `setup`, and then each request. `lock` is
    the descriptor of a flock(2) that it holds as well as this process, for as long as it lives.
    """

    def __init__(self, work: str, setup: Any, directory: int = -1, lock: int = -1) -> None:
        if not sys.executable:
            raise FileNotFoundError("it is not known where the interpreter is")
        self._asked = 0
        self._in = bytearray()
        self._out = bytearray()
        theirs_in, self._write = os.pipe2(os.O_CLOEXEC)
        try:
            self._read, theirs_out = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(theirs_in)
            os.close(self._write)
            raise
        high: dict[int, int] = {}
        try:
            places = {0: theirs_in, 1: theirs_out, DIRECTORY_FD: directory, _HELD_FD: lock}
            for place, fd in places.items():
                if fd >= 0:  # out of the way of the numbers that it is to have there
                    high[place] = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
            actions: list[tuple[Any, ...]] = [
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                *((os.POSIX_SPAWN_DUP2, fd, place) for place, fd in high.items()),
            ]
            words = [sys.executable, "-I", "-S", *(["-B"] if sys.dont_write_bytecode else []),
                     "-c", _STARTS + _PROGRAM, *_places()]  # fmt: skip
            kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
            self._pid = os.posix_spawn(sys.executable, words, kept, file_actions=actions)
        except BaseException:
            os.close(self._write)
            os.close(self._read)
            raise
        finally:
            for fd in (theirs_in, theirs_out, *high.values()):
                os.close(fd)
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)
        try:
            self._put((work, setup))
        except BaseException:
            self.close()
            raise

    def ask(self, request: Any) -> None:
        """Sends a request, which marshal takes; raises GoneError."""
        self._asked += 1
        self._put(request)

    def answers(self, *, wait: bool) -> list[Any]:
        """What was answered since, in the order of asking (None: could not); raises GoneError.

        With `wait` at least one, where something is asked.
        """
        found: list[Any] = []
        while True:
            self._flush()
            self._fill()
            while len(self._in) >= 4:
                end = 4 + int.from_bytes(self._in[:4], "big")
                if len(self._in) < end:
                    break
                found.append(_loads(self._in[4:end]))
                self._asked -= 1
                del self._in[:end]
            if found or not wait or not self._asked:
                return found
            self._wait()

    def _put(self, message: Any) -> None:
        data = marshal.dumps(message)
        self._out += len(data).to_bytes(4, "big") + data
        self._flush()

    def _flush(self) -> None:
        while self._out:
            try:
                del self._out[: os.write(self._write, self._out)]
            except BlockingIOError:
                return
            except OSError as error:
                raise GoneError from error

    def _fill(self) -> None:
        try:
            while data := os.read(self._read, 2**16):
                self._in += data
        except BlockingIOError:
            return
        except OSError as error:
            raise GoneError from error
        if len(self._in) < 4 + int.from_bytes(self._in[:4], "big"):
            raise GoneError

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if self._out:
            poll.register(self._write, select.POLLOUT)
        poll.poll(_LONGEST_WAIT_MS)

    def close(self) -> None:
        """Ends it, at once."""
        os.close(self._write)
        os.close(self._read)
        try:
            os.kill(self._pid, _SIGKILL)
            os.waitpid(self._pid, 0)
        except OSError:  # another part of the program waited for it
            pass


def _places() -> list[str]:
    """Where the process finds this package and the one library that it needs."""
    import reprobuild

    homes = (reprobuild.__file__, sys.modules[blake3.__module__.partition(".")[0]].__file__)
    return list(dict.fromkeys(os.path.dirname(os.path.dirname(home)) for home in homes if home))
