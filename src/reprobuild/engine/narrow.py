"""narrow: an action's inputs cut down to the files it could read.

A compile whose trees are cut down to what the unit could read is not touched by a change anywhere
else: its action is the same, and is on record. The cut is a pure function of the trees, and the
build then runs in exactly that root, so its result depends on nothing more. Where the rule cannot
tell (an operand made by an unknown macro), or a build in the cut root fails, the whole trees are
taken and the record says so.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from reprobuild.core.derivation import Derivation, InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.includes.closure import Closure, FileIndex, Place, close
from reprobuild.core.includes.macros import Definition
from reprobuild.core.includes.scan import Scan, decode, encode, scan
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.ports import ContentStore

_MAX_LINKS = 8
_MAX_SCANNED = 32 * 2**20


class ScanMemo(Protocol):
    """Remembers scans by blob. May forget; never lies."""

    def get(self, blob: Digest) -> bytes | None:
        """What was put for a blob."""
        ...

    def put(self, scans: Mapping[Digest, bytes]) -> None:
        """Remembers."""
        ...


class NoMemo:
    """Remembers nothing."""

    def get(self, blob: Digest) -> bytes | None:
        """Nothing."""
        return None

    def put(self, scans: Mapping[Digest, bytes]) -> None:
        """Forgets at once."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The inputs to build with; `note` says why they are whole where the rule could not tell."""

    inputs: Mapping[str, InputContent]
    note: str = ""
    files: int = 0


@dataclass(slots=True)
class _Mounts:
    """The files of one set of mounts, indexed once."""

    index: FileIndex
    entries: dict[Place, Entry]
    numbers: dict[str, int]


@dataclass(slots=True)
class Narrower:
    """Cuts down inputs of derivations that ask for it (`Derivation.narrow`)."""

    content: ContentStore
    memo: ScanMemo = field(default_factory=NoMemo)
    _mounts: dict[tuple[tuple[str, Digest], ...], _Mounts] = field(default_factory=dict)
    _scans: dict[Digest, Scan] = field(default_factory=dict)
    _fresh: dict[Digest, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def narrow(self, derivation: Derivation, inputs: Mapping[str, InputContent]) -> Narrowed:
        """The inputs with each tree that may be cut replaced by its part."""
        asked = derivation.narrow
        if asked is None:
            return Narrowed(inputs)
        with self._lock:
            return self._narrow(derivation, cast("Mapping[str, Value]", asked), inputs)

    def _narrow(
        self,
        derivation: Derivation,
        asked: Mapping[str, Value],
        inputs: Mapping[str, InputContent],
    ) -> Narrowed:
        mounts = self._indexed(derivation, inputs)
        starts = [text.encode() for text in cast("Sequence[str]", asked["starts"])]
        closure = close(mounts.index, starts, self._scan, _defines(asked))
        self.memo.put(self._fresh)
        self._fresh = {}
        if closure.unresolved:
            names = ", ".join(sorted(n.decode(errors="replace") for n in closure.unresolved))
            return Narrowed(inputs, note=f"whole trees: cannot tell what {names} includes")
        cut = dict(inputs)
        for name in cast("Sequence[str]", asked["inputs"]):
            if not inputs[name].is_file:
                cut[name] = InputContent(self._cut(mounts, mounts.numbers[name], closure))
        return Narrowed(cut, files=len(closure.files))

    def _cut(self, mounts: _Mounts, number: int, closure: Closure) -> Digest:
        builder = TreeBuilder()
        for mount, path in closure.directories:
            if mount == number:
                builder.add_directory(path)
        for place in closure.files:
            for real in mounts.index.links.get(place, (place,)):
                if real[0] == number:
                    builder.add(real[1], mounts.entries[real])
        root, nodes = builder.build()
        self.content.add_trees(nodes)
        return root

    # -- scanning ----------------------------------------------------------------------------

    def _scan(self, blob: Digest) -> Scan:
        found = self._scans.get(blob)
        if found is None:
            data = self.memo.get(blob)
            if data is not None:
                found = decode(data)
            else:
                with self.content.open_blob(blob) as file:
                    found = scan(file.read())
                self._fresh[blob] = encode(found)
            self._scans[blob] = found
        return found

    # -- indexing ----------------------------------------------------------------------------

    def _indexed(self, derivation: Derivation, inputs: Mapping[str, InputContent]) -> _Mounts:
        trees = {
            entry.name: (entry.at or "/", inputs[entry.name].digest)
            for entry in derivation.inputs
            if not inputs[entry.name].is_file
        }
        key = tuple(sorted(trees.values()))
        names = {name: key.index(value) for name, value in trees.items()}
        known = self._mounts.get(key)
        if known is None:
            index = FileIndex()
            entries: dict[Place, Entry] = {}
            walk = _Walk(self.content, index, entries, [tree for _, tree in key])
            for at, _ in key:
                index.add_mount(at)
            for number in range(len(key)):
                walk.mount(number)
            known = self._mounts[key] = _Mounts(index, entries, names)
        return _Mounts(known.index, known.entries, names)


def _defines(asked: Mapping[str, Value]) -> dict[bytes, list[Definition]]:
    """Macros of the command line, `NAME` or `NAME=BODY` (or `NAME(PARAMETERS)=BODY`)."""
    out: dict[bytes, list[Definition]] = {}
    for text in cast("Sequence[str]", asked.get("defines", ())):
        head, _, body = text.encode().partition(b"=")
        match = re.fullmatch(rb"\s*(\w+)(?:\(([^)]*)\))?\s*", head)
        if match is not None:
            parameters = (
                tuple(p.strip() for p in match[2].split(b",")) if match[2] is not None else None
            )
            out.setdefault(match[1], []).append((parameters, body))
    return out


@dataclass(slots=True)
class _Walk:
    """Fills an index from trees, following symbolic links as the sandbox would."""

    content: ContentStore
    index: FileIndex
    entries: dict[Place, Entry]
    roots: list[Digest]
    _trees: dict[Digest, Tree] = field(default_factory=dict)

    def mount(self, number: int) -> None:
        """Adds everything below a mount."""
        self._directory(number, b"", self.roots[number], (), ((number, b""),))

    def _tree(self, digest: Digest) -> Tree:
        tree = self._trees.get(digest)
        if tree is None:
            tree = self._trees[digest] = self.content.tree(digest)
        return tree

    def _directory(
        self,
        number: int,
        seen_as: bytes,
        digest: Digest,
        through: tuple[Place, ...],
        real: tuple[Place, ...],
    ) -> None:
        """`seen_as` is the path by which the directory is reached, `real[-1]` where it lies."""
        mount, path = real[-1]
        for name, entry in self._tree(digest):
            shown = seen_as + b"/" + name if seen_as else name
            lies = (mount, path + b"/" + name if path else name)
            if isinstance(entry, File):
                self.entries[lies] = entry
                if entry.size <= _MAX_SCANNED:
                    links = (*through, lies) if through else ()
                    self.index.add((number, shown), entry.digest, links)
            elif isinstance(entry, Directory):
                self.index.add_directory((number, shown))
                self._directory(number, shown, entry.digest, through, (*real[:-1], lies))
            else:
                self.entries[lies] = entry
                self._link(number, shown, lies, through, real)

    def _link(
        self,
        number: int,
        shown: bytes,
        lies: Place,
        through: tuple[Place, ...],
        real: tuple[Place, ...],
    ) -> None:
        target = self._resolve(lies, _MAX_LINKS)
        if target is None:
            return
        place, entry, links = target
        if isinstance(entry, File):
            self.entries[place] = entry
            self.index.add((number, shown), entry.digest, (*through, *links, place))
        elif isinstance(entry, Directory) and place not in real and len(through) < _MAX_LINKS:
            self.index.add_directory((number, shown))
            chain = (*real, place)
            self._directory(number, shown, entry.digest, (*through, *links), chain)

    def _resolve(self, link: Place, budget: int) -> tuple[Place, Entry, tuple[Place, ...]] | None:
        """What a link leads to: where it really lies, what it is, and the links on the way."""
        entry = self._at(*link)
        if budget == 0 or not isinstance(entry, Symlink):
            return None
        mount, base = link[0], link[1].rpartition(b"/")[0]
        target = entry.target
        if target.startswith(b"/"):
            mount, target = self._mount_of(target)
            base = b""
        parts = base.split(b"/") if base else []
        links: tuple[Place, ...] = (link,)
        for part in target.split(b"/"):
            if part in (b"", b"."):
                continue
            if part == b"..":
                if not parts:
                    return None
                parts.pop()
                continue
            parts.append(part)
            here = (mount, b"/".join(parts))
            step = self._at(*here)
            if isinstance(step, Symlink):
                self.entries[here] = step
                further = self._resolve(here, budget - 1)
                if further is None:
                    return None
                links += further[2]
                mount, parts = further[0][0], further[0][1].split(b"/") if further[0][1] else []
        place = (mount, b"/".join(parts))
        found = Directory(self.roots[mount]) if not parts else self._at(*place)
        return (place, found, links) if found is not None else None

    def _mount_of(self, absolute: bytes) -> tuple[int, bytes]:
        """The innermost mount that holds an absolute path, and the path in it."""
        best, rest = 0, absolute
        length = -1
        for number, at in enumerate(self.index.at):
            if (absolute == at or absolute.startswith(at + b"/")) and len(at) > length:
                best, rest, length = number, absolute[len(at) :], len(at)
        return best, rest

    def _at(self, mount: int, path: bytes) -> Entry | None:
        here: Entry | None = Directory(self.roots[mount])
        for part in _parts(path):
            if not isinstance(here, Directory):
                return None
            here = self._tree(here.digest).get(part)
        return here


def _parts(path: bytes) -> Iterator[bytes]:
    return (part for part in path.split(b"/") if part)
