"""Where a build works and what it says: new work directories, and logs."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError

T = TypeVar("T")

LOG_TAIL = 25
_TAIL_BYTES = 16 * 1024
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def work_directory(place: Path, kind: str = "build") -> Path:
    """A new one in `place`, that nobody else may enter; raises E-STORE-WRITE."""

    def make() -> Path:
        while True:
            path = f"{place}/{kind}-{os.urandom(6).hex()}"
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)  # noqa: PTH102 - before every build: few calls
                return Path(path)

    with _making("a work directory", place):
        return _in_directory(place, make)


def set_aside(workdir: Path) -> Path:
    """Gives the directory of a failed build the name under which collection leaves it alone."""
    kept = workdir.with_name("failed-" + workdir.name.removeprefix("build-"))
    workdir.rename(kept)
    return kept


@contextmanager
def new_log(place: Path, drv: Digest) -> Iterator[tuple[str, BinaryIO]]:
    """A new log in `place`: its path, and where to write. Raises E-STORE-WRITE.

    The path is text: Pythons up to 3.12.4 keep every part of every `Path` for good, and a process
    may write a log for each of 100,000 builds.
    """

    def make() -> tuple[int, str]:
        while True:
            path = f"{place}/{drv.short}-{os.urandom(6).hex()}.log"
            with suppress(FileExistsError):
                descriptor = os.open(path, _NEW, 0o600)
                os.fchmod(descriptor, 0o644)  # as all of a store: other accounts may share it
                return descriptor, path

    with _making("a log", place):
        descriptor, path = _in_directory(place, make)
    log = os.fdopen(descriptor, "wb")
    try:
        yield path, log
    finally:
        with _making("a log", place):  # what is buffered may find no room
            log.close()


def log_name(path: str) -> str:
    """What a record calls a log."""
    return path.rpartition("/")[2]


def log_tail(path: str, lines: int = LOG_TAIL) -> list[str]:
    """The last lines of a log, undecodable bytes escaped; empty when it cannot be read."""
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - text, see `new_log`
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        text = file.read().decode(errors="backslashreplace")
        return text.splitlines()[-lines:]
    return []


def _in_directory(place: Path, make: Callable[[], T]) -> T:
    """What `make` makes in `place`, which is made first where it is absent."""
    try:
        return make()
    except FileNotFoundError:
        place.mkdir(parents=True, exist_ok=True)
        return make()


@contextmanager
def _making(what: str, place: Path) -> Iterator[None]:
    """Turns an OSError into E-STORE-WRITE: the disk is full, not the build to blame."""
    try:
        yield
    except OSError as error:
        raise ReprobuildError(
            "E-STORE-WRITE",
            f"cannot make {what}: {error.strerror} ({place})",
            hint="mend the permissions, make room, or name a store of your own with --store DIR",
            path=str(place),
            errno=errno.errorcode.get(error.errno or 0, "unknown"),
        ) from error
