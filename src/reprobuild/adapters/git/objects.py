"""Reading objects through one long-lived `git cat-file`, and git's tree format."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

from reprobuild.core.digest import GitOid
from reprobuild.errors import ReprobuildError

MAX_DEPTH = 300
"""Directories below each other: more is an attack, not a source."""

_TREES_KEPT = 512
_ASKED = 200
"""Questions at once; answers to more could fill the pipe before the last question is taken."""

SYMLINK, GITLINK, DIRECTORY = 0o120000, 0o160000, 0o040000


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a git tree: mode as written (0o100644…), name as bytes, object."""

    mode: int
    name: bytes
    oid: GitOid

    @property
    def is_tree(self) -> bool:
        """Whether it is a directory."""
        return self.mode == DIRECTORY


RawTree = dict[bytes, tuple[bytes, bytes]]
"""A directory as git wrote it: name → (mode in octal digits, raw object name)."""

_ENTRY = {
    size: re.compile(rb"([0-7]{1,6}) ([^\0/]+)\0(.{%d})" % size, re.DOTALL) for size in (20, 32)
}


_BAD = frozenset({b".", b"..", b".git"})


def parse_raw(data: bytes, size: int) -> RawTree:
    """A raw tree object whose names have `size` raw bytes (20 or 32).

    Raises E-GIT-OBJECT for a malformed one, for a name that is there twice and for names that
    could leave a directory.
    """
    rows = _ENTRY[size].findall(data)
    found = {name: (mode, oid) for mode, name, oid in rows}
    taken = sum(map(len, chain.from_iterable(rows))) + 2 * len(rows)
    if taken != len(data) or not _BAD.isdisjoint(map(bytes.lower, found)):
        bad = next((n for n in found if n.lower() in _BAD), None)
        if bad is None:
            raise ReprobuildError("E-GIT-OBJECT", "malformed tree object")
        raise ReprobuildError(
            "E-GIT-OBJECT",
            f"a tree object has an entry {bad.decode()!r}, which leads out of it or into git's own",
        )
    if len(found) != len(rows):
        raise ReprobuildError("E-GIT-OBJECT", "a tree object names one entry twice")
    return found


def parse_tree(data: bytes, size: int) -> tuple[TreeEntry, ...]:
    """The entries of a raw tree object, in its order; raises as `parse_raw`."""
    return tuple(entry_of(name, *value) for name, value in parse_raw(data, size).items())


def entry_of(name: bytes, mode: bytes, oid: bytes) -> TreeEntry:
    """An entry out of its raw parts."""
    return TreeEntry(int(mode, 8), name, GitOid(oid.hex()))


class ObjectReader:
    """Objects by name, read through one process. One caller at a time.

    Every object that is handed out was hashed again: what comes is what its name promises.
    """

    def __init__(self, env: Mapping[str, str], cwd: Path) -> None:
        """`env` names the repository (GIT_DIR)."""
        self._env, self._cwd = dict(env), cwd
        self._process: subprocess.Popen[bytes] | None = None
        self._trees: dict[str, RawTree] = {}

    def _open(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None:
            self._process = subprocess.Popen(
                ["git", "cat-file", "--batch-command"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._env,
                cwd=self._cwd,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def start(self) -> None:
        """Starts the process before it is needed, so that what comes meanwhile hides its start."""
        self._open()

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _header(self, out: IO[bytes], oid: GitOid) -> tuple[str, int]:
        line = out.readline()
        parts = line.split()
        if len(parts) == 3 and parts[2].isdigit():
            return parts[1].decode(), int(parts[2])
        if len(parts) == 2 and parts[1] == b"missing":
            raise missing(oid)
        raise ReprobuildError("E-GIT-OBJECT", f"git cannot read object {oid}", object=oid.hex)

    def read(self, oid: GitOid, kind: str) -> bytes:
        """The whole content of one object; raises E-GIT-MISSING-OBJECT or E-GIT-OBJECT.

        Blobs have a process each: git streams them unchecked, and of one that is shorter than it
        says the rest would be waited for in vain.
        """
        if kind == "blob":
            parts: list[bytes] = []
            for _, stream in self.blobs([oid]):
                while chunk := stream.read(1 << 20):
                    parts.append(chunk)
            return b"".join(parts)
        stdin, out = self._open()
        self._send(stdin, b"contents " + oid.hex.encode() + b"\n", oid)
        try:
            found, size = self._header(out, oid)
        except ReprobuildError as error:
            if error.code != "E-GIT-MISSING-OBJECT":
                self.close()
            raise
        data = out.read(size + 1)[:-1]
        self._check_kind(oid, found, kind)
        if len(data) != size or _hash(oid, found, size, [data]) != oid.hex:
            raise damaged(oid)
        return data

    def raw(self, oid: GitOid) -> RawTree:
        """A directory in its raw form; not to be changed."""
        known = self._trees.get(oid.hex)
        if known is None:
            try:
                known = parse_raw(self.read(oid, "tree"), len(oid.hex) // 2)
            except ReprobuildError as error:
                error.facts.setdefault("object", oid.hex)
                raise
            self.keep(oid, known)
        return known

    def keep(self, oid: GitOid, tree: RawTree) -> None:
        """Remembers a directory that is known already, such as one that was just written."""
        if len(self._trees) >= _TREES_KEPT:
            self._trees.clear()
        self._trees[oid.hex] = tree

    def tree(self, oid: GitOid) -> tuple[TreeEntry, ...]:
        """The entries of a tree object."""
        return tuple(entry_of(name, *value) for name, value in self.raw(oid).items())

    def entry(self, tree: GitOid, name: bytes) -> TreeEntry | None:
        """One entry of a directory."""
        value = self.raw(tree).get(name)
        return None if value is None else entry_of(name, *value)

    def has(self, oid: GitOid) -> bool:
        """Whether the commit or tree is here; its content is read and checked."""
        stdin, out = self._open()
        self._send(stdin, b"contents " + oid.hex.encode() + b"\n", oid)
        try:
            found, size = self._header(out, oid)
        except ReprobuildError as error:
            if error.code == "E-GIT-MISSING-OBJECT":
                return False
            self.close()
            raise
        if found not in ("commit", "tree", "tag"):
            self.close()
            raise ReprobuildError(
                "E-GIT-OBJECT", f"object {oid} is a {found}, not a commit", object=oid.hex
            )
        out.read(size + 1)
        return True

    def sizes(self, oids: Sequence[GitOid]) -> list[int]:
        """How many bytes each object says it has; 0 for one that is not here."""
        found: list[int] = []
        for start in range(0, len(oids), _ASKED):
            some = oids[start : start + _ASKED]
            stdin, out = self._open()
            self._send(stdin, b"".join(b"info %b\n" % o.hex.encode() for o in some), some[0])
            for oid in some:
                try:
                    found.append(self._header(out, oid)[1])
                except ReprobuildError as error:
                    if error.code != "E-GIT-MISSING-OBJECT":
                        self.close()
                        raise
                    found.append(0)
        return found

    def blobs(self, oids: Iterable[GitOid]) -> Generator[tuple[GitOid, BlobStream], None, None]:
        """Blobs, in order, each as a stream that must be drained before the next is asked for.

        A process of its own, told everything beforehand: so an early end is seen as such.
        """
        wanted = list(oids)
        with tempfile.TemporaryFile() as requests:
            for oid in wanted:
                requests.write(oid.hex.encode() + b"\n")
            requests.seek(0)
            process = subprocess.Popen(
                ["git", "cat-file", "--batch"],
                stdin=requests,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._env,
                cwd=self._cwd,
            )
            assert process.stdout is not None
            try:
                for oid in wanted:
                    found, size = self._header(process.stdout, oid)
                    self._check_kind(oid, found, "blob")
                    stream = BlobStream(process.stdout, oid, size)
                    yield oid, stream
                    stream.finish()
            finally:
                process.kill()
                process.stdout.close()
                process.wait()

    def _send(self, stdin: IO[bytes], data: bytes, oid: GitOid) -> None:
        try:
            stdin.write(data)
            stdin.flush()
        except BrokenPipeError as error:
            self.close()
            raise ReprobuildError(
                "E-GIT", f"git cat-file ended while {oid} was asked for", object=oid.hex
            ) from error

    @staticmethod
    def _check_kind(oid: GitOid, found: str, kind: str) -> None:
        if found != kind:
            raise ReprobuildError(
                "E-GIT-OBJECT", f"object {oid} is a {found}, not a {kind}", object=oid.hex
            )


class BlobStream(io.RawIOBase):
    """A blob's bytes as a reader; at its end the content was checked against its name."""

    def __init__(self, out: IO[bytes], oid: GitOid, size: int) -> None:
        super().__init__()
        self.size = size
        self._out, self._oid, self._left = out, oid, size
        self._hash = _hasher(oid, "blob", size)
        if size == 0:
            self._end()

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fills `buffer`; raises E-GIT-OBJECT when what came is not what was promised."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, count: int | None = -1, /) -> bytes:
        """Up to `count` bytes; raises E-GIT-OBJECT when what came is not what was promised."""
        take = self._left if count is None or count < 0 else min(count, self._left)
        if take == 0:
            return b""
        data = self._out.read(take)
        self._left -= len(data)
        self._hash.update(data)
        if len(data) < take:
            raise damaged(self._oid)
        if self._left == 0:
            self._end()
        return data

    def _end(self) -> None:
        if self._hash.hexdigest() != self._oid.hex or self._out.read(1) != b"\n":
            raise damaged(self._oid)

    def finish(self) -> None:
        """Reads what nobody asked for."""
        while self._left > 0:
            self.read(1 << 20)


def _hasher(oid: GitOid, kind: str, size: int) -> hashlib._Hash:
    algorithm = hashlib.sha1 if len(oid.hex) == 40 else hashlib.sha256
    return algorithm(f"{kind} {size}\0".encode(), usedforsecurity=False)


def _hash(oid: GitOid, kind: str, size: int, parts: Iterable[bytes]) -> str:
    hasher = _hasher(oid, kind, size)
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def missing(oid: GitOid, path: str = "") -> ReprobuildError:
    """The error for an object that is nowhere at hand."""
    place = f" ({path})" if path else ""
    return ReprobuildError(
        "E-GIT-MISSING-OBJECT",
        f"object {oid}{place} is not in any repository at hand",
        object=oid.hex,
        path=path or None,
    )


def check_depth(path: bytes) -> None:
    """Raises E-GIT-OBJECT for a directory that lies deeper than any source does."""
    if path.count(b"/") > MAX_DEPTH:
        raise ReprobuildError(
            "E-GIT-OBJECT", f"directories are nested deeper than {MAX_DEPTH}: {path[:40]!r}…"
        )


def damaged(oid: GitOid) -> ReprobuildError:
    """The error for an object whose content is not what its name promises."""
    return ReprobuildError(
        "E-GIT-OBJECT", f"object {oid} is damaged: its content has another name", object=oid.hex
    )
