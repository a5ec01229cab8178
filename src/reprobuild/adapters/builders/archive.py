"""What every archive goes through on its way into a tree, whatever its format.

Archives are hostile until proven dull: names that escape, entries below links, two contents under
one name, devices, and sizes made to exhaust are refused before anything of them counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import BinaryIO

from reprobuild.adapters.builders.assembly import Assembly, show
from reprobuild.adapters.builders.globs import Selection
from reprobuild.core.tree import File, Symlink
from reprobuild.core.treebuilder import split_path
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

MAX_ENTRIES = 2_000_000
MAX_DEPTH = 256
MAX_PATH = 4095
DEFAULT_LIMIT = 64 * 2**30
RATIO_FLOOR = 2**30
MAX_RATIO = 300
"""Above RATIO_FLOOR bytes, what unpacks to more than MAX_RATIO times itself is a bomb."""

_MERGED = (b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32", b"libo32")


@dataclass(slots=True)
class Budget:
    """What an archive may still unpack to. `packed` is its own size in bytes."""

    archive: str
    packed: int
    limit: int = DEFAULT_LIMIT
    bytes: int = 0
    entries: int = 0

    def take_entry(self) -> None:
        """Counts an entry; raises E-ARCHIVE-LIMIT when there are too many."""
        self.entries += 1
        if self.entries > MAX_ENTRIES:
            raise self._over(f"holds more than {MAX_ENTRIES:,} entries")

    def take_bytes(self, count: int) -> None:
        """Counts unpacked bytes (declared ones, before they are read)."""
        self.bytes += count
        if self.bytes > self.limit:
            raise self._over(f"unpacks to more than {self.limit:,} bytes")
        if self.bytes > RATIO_FLOOR and self.bytes > MAX_RATIO * self.packed:
            raise self._over(
                f"has {self.packed:,} bytes and unpacks to more than {MAX_RATIO} times that"
            )

    def _over(self, what: str) -> ReprobuildError:
        return ReprobuildError(
            "E-ARCHIVE-LIMIT", f"{self.archive} {what}", archive=self.archive, limit=self.limit
        )


def refuse(archive: str, entry: bytes, what: str, code: str = "E-ARCHIVE") -> ReprobuildError:
    """The error about one entry of an archive."""
    where = f"entry {show(entry)!r} of {archive}" if entry else archive
    return ReprobuildError(code, f"{where} {what}", archive=archive, entry=show(entry))


def entry_path(archive: str, name: bytes) -> tuple[bytes, ...]:
    """The components of an entry's name; raises E-ARCHIVE-ESCAPE when it would leave the tree."""
    if len(name) > MAX_PATH:
        raise refuse(archive, name, f"has a name of {len(name)} bytes")
    if name.startswith(b"/") or b".." in name.split(b"/"):
        raise refuse(archive, name, "points outside the tree", "E-ARCHIVE-ESCAPE")
    try:
        parts = split_path(name)
    except ReprobuildError as error:
        raise refuse(archive, name, f"has a name that is not allowed: {error.message}") from error
    if len(parts) > MAX_DEPTH:
        raise refuse(archive, name, f"lies {len(parts)} directories deep")
    return parts


@dataclass(slots=True)
class Intake:
    """Puts one archive's entries into an assembly.

    `strip` leading components are dropped, and entries that have no more than those; `select` sees
    what is left; `prefix` is put in front. With `merge_usr`, /bin, /sbin, /lib… are places in /usr,
    as on every current Debian.
    """

    content: ContentStore
    assembly: Assembly
    archive: str
    budget: Budget
    select: Selection
    strip: int = 0
    prefix: bytes = b""
    merge_usr: bool = False
    only: set[bytes] | None = None
    missing: set[bytes] = field(default_factory=set)
    _files: dict[bytes, File] = field(default_factory=dict)
    _skipped: dict[bytes, bytes] = field(default_factory=dict)

    def place(self, name: bytes) -> bytes | None:
        """Where the entry called `name` goes, or None when it is not wanted."""
        parts = entry_path(self.archive, name)[self.strip :]
        if not parts:
            return None
        if self.merge_usr and parts[0] in _MERGED:
            parts = (b"usr", *parts)
        path = b"/".join(parts)
        return path if self.select.takes(path) else None

    def directory(self, name: bytes) -> None:
        """A directory entry."""
        path = self.place(name)
        if path is not None and self.only is None:
            with_prefix = self._full(path)
            self._guard(name, lambda: self.assembly.directory(with_prefix, self.archive))

    def wants(self, name: bytes) -> bool:
        """Whether a file of that name has to be read: it is placed, or a link needs it."""
        if self.only is not None:
            return b"/".join(entry_path(self.archive, name)) in self.only
        return self.place(name) is not None

    def file(self, name: bytes, source: BinaryIO, size: int, executable: bool) -> None:
        """A regular file of exactly `size` bytes."""
        self._remember(name, self.content.add_blob(source, executable=executable, size=size))

    def _remember(self, name: bytes, entry: File) -> None:
        self._files[b"/".join(entry_path(self.archive, name))] = entry
        path = self.place(name) if self.only is None else None
        if path is not None:
            self._put(name, path, entry)

    def symlink(self, name: bytes, target: bytes) -> None:
        """A symbolic link: kept as it is, never followed."""
        path = self.place(name)
        if path is None or self.only is not None:
            return
        if self.merge_usr and path in [b"usr/" + m for m in _MERGED]:
            if target.strip(b"/") in (path, b"."):
                return  # the package states the merged /usr itself
            raise refuse(self.archive, name, "would replace a part of the merged /usr")
        if not target or b"\0" in target or len(target) > MAX_PATH:
            raise refuse(self.archive, name, "is a link with a target that is not allowed")
        self._put(name, path, Symlink(target))

    def hardlink(self, name: bytes, target: bytes) -> None:
        """A second name for an earlier entry: a tree has copies, not links."""
        if self.only is not None:
            return
        own = b"/".join(entry_path(self.archive, name))
        key = b"/".join(entry_path(self.archive, target))
        key = self._skipped.get(key, key)
        found = self._files.get(key)
        if found is not None:
            self._remember(name, found)
        elif key not in self._skipped:
            raise refuse(self.archive, name, f"is linked to {show(target)!r}, no file before it")
        elif self.place(name) is None:
            self._skipped[own] = key
        else:
            self.missing.add(key)

    def skip(self, name: bytes) -> None:
        """A regular file that is not wanted, though a hard link may yet want it."""
        key = b"/".join(entry_path(self.archive, name))
        self._skipped[key] = key

    def known(self, other: Intake) -> None:
        """Takes over the files that another pass has read for hard links."""
        self._files.update(other._files)

    def _full(self, path: bytes) -> bytes:
        return self.prefix + b"/" + path if self.prefix else path

    def _put(self, name: bytes, path: bytes, entry: File | Symlink) -> None:
        full = self._full(path)
        self._guard(name, lambda: self.assembly.put(full, entry, self.archive))

    def _guard(self, name: bytes, action: object) -> None:
        assert callable(action)
        try:
            action()
        except ReprobuildError as error:
            first = error.facts.get("first")
            if error.code != "E-TREE-CONFLICT" or first != self.archive:
                raise
            raise refuse(
                self.archive, name, "is there twice with different content, or lies below a link"
            ) from error
