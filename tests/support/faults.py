"""Stopping, starving and watching the store's file operations.

`Faults` replaces the functions of `reprobuild.adapters.store.durable` that change the disk;
`PowerModel` watches the same functions and knows what a power failure at that moment may keep.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprobuild.adapters.store import durable
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, File, decode

OPERATIONS = (
    "create",
    "open_to_append",
    "write_some",
    "fsync",
    "syncfs",
    "fchmod",
    "utime",
    "mkdir",
    "rmdir",
    "symlink",
    "link",
    "unlink",
    "rename",
    "rename_new",
)


class Killed(BaseException):
    """The process ends here: no handler of ours may take it for an error."""


class Faults:
    """Counts the operations and fails at the chosen one.

    `at` counts from 1; 0 never fails. `what` is "kill" (before the operation), "kill-after", an
    errno, or "short" (every write takes half of its bytes).
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 0
        self.what: str | int = "kill"
        self.count = 0
        self.fired = ""
        self._dead = False
        self._lock = threading.Lock()
        for name in OPERATIONS:
            # What a dead process wrote is still there: waiting for the disk would show nothing.
            real = _no_wait if name in ("fsync", "syncfs") else getattr(durable, name)
            monkeypatch.setattr(durable, name, self._wrap(name, real))

    def arm(self, at: int, what: str | int) -> None:
        """Fails at operation `at` from now on."""
        self.at, self.what, self.count, self.fired, self._dead = at, what, 0, "", False

    def disarm(self) -> None:
        """Lets everything through."""
        self.arm(0, "kill")

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **keywords: Any) -> Any:
            with self._lock:
                if self._dead:
                    raise Killed
                self.count += 1
                hit = self.count == self.at
                if hit:
                    self.fired = name
            if self.what == "short" and name == "write_some":
                fd, data = args
                return real(fd, bytes(data)[: max(1, len(data) // 2)])
            if not hit or self.what == "short":
                return real(*args, **keywords)
            if isinstance(self.what, int):
                raise OSError(self.what, os.strerror(self.what), *_named(args))
            if self.what == "kill-after":
                with contextlib.suppress(OSError):
                    real(*args, **keywords)
            self._dead = True
            raise Killed

        return operation


def _no_wait(_: int) -> None:
    """In place of fsync and syncfs."""


def _named(args: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(os.fsdecode(a) for a in args[:1] if isinstance(a, (str, bytes, Path)))


class PowerModel:
    """What a power failure may do: bytes not synchronised are lost, names come in any order.

    So when something gets its final name its bytes must be durable already, and so must the names
    of all that it refers to. Violations are collected in `violations`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.root = root
        self.violations: list[str] = []
        self.named: list[str] = []
        self._dirty: dict[int, str] = {}
        self._fresh: set[str] = set()  # names that may still vanish
        for name in ("write_some", "fsync", "syncfs", "mkdir", "rename", "rename_new"):
            watch = getattr(self, "_" + name)
            monkeypatch.setattr(durable, name, self._wrap(getattr(durable, name), watch))

    @staticmethod
    def _wrap(real: Callable[..., Any], watch: Callable[..., None]) -> Callable[..., Any]:
        def operation(*args: Any, **keywords: Any) -> Any:
            before = watch.__name__ in ("_rename", "_rename_new")
            if before:
                watch(*args)
            result = real(*args, **keywords)
            if not before:
                watch(*args, **keywords)
            return result

        return operation

    def _write_some(self, fd: int, _: object) -> None:
        self._dirty[os.fstat(fd).st_ino] = os.readlink(f"/proc/self/fd/{fd}")

    def _fsync(self, fd: int) -> None:
        self._dirty.pop(os.fstat(fd).st_ino, None)
        here = os.readlink(f"/proc/self/fd/{fd}")
        self._fresh = {name for name in self._fresh if os.path.dirname(name) != here}

    def _syncfs(self, _: int) -> None:
        self._dirty.clear()
        self._fresh.clear()

    def _mkdir(self, path: object, *, dir_fd: int | None = None) -> None:
        name = os.fsdecode(path)  # type: ignore[arg-type]
        if dir_fd is not None:
            name = f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{name}"
        self._fresh.add(name)

    def _rename(self, source: object, target: object) -> None:
        self._name(os.fsdecode(source), os.fsdecode(target))  # type: ignore[arg-type]

    def _rename_new(self, source: object, target: object) -> None:
        self._name(os.fsdecode(source), os.fsdecode(target))  # type: ignore[arg-type]

    def _name(self, source: str, target: str) -> None:
        kind = os.path.relpath(target, self.root).split("/")[0]
        if kind == "chosen" or not os.path.lexists(source):
            return  # a memo may be lost
        self.named.append(target)
        paths = [source]
        if os.path.isdir(source):
            for top, directories, files in os.walk(source):
                paths += [os.path.join(top, n) for n in (*directories, *files)]
        for path in paths:
            if os.lstat(path).st_ino in self._dirty:
                self.violations.append(f"{target} is named before its bytes are durable")
            if path != source and path in self._fresh:
                self.violations.append(f"{target} is named before {path} in it is durable")
        for needed in self._references(kind, source):
            for name in (needed, os.path.dirname(needed)):
                if name in self._fresh:
                    self.violations.append(f"{target} is named before {name} is durable")
            if not os.path.lexists(needed):
                self.violations.append(f"{target} is named before {needed} is there")
        self._fresh.add(target)

    def _references(self, kind: str, path: str) -> list[str]:
        if kind == "trees":
            found = []
            for _, entry in decode(Path(path).read_bytes()).entries:
                if isinstance(entry, Directory):
                    found.append(self._place("trees", entry.digest.hex))
                elif isinstance(entry, File):
                    suffix = ".x" if entry.executable else ""
                    found.append(self._place("blobs", entry.digest.hex) + suffix)
            return found
        if kind == "records":
            record = Record.decode(Path(path).read_bytes())
            return [self._place("trees", tree.hex) for tree in record.outputs.values()]
        return []

    def _place(self, kind: str, name: str) -> str:
        return f"{self.root}/{kind}/{name[:2]}/{name}"
