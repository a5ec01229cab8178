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
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Protocol, cast

from reprobuild.core.derivation import Derivation, InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.includes.closure import Closure, close
from reprobuild.core.includes.index import Place, Search
from reprobuild.core.includes.scan import Definition, Scan, decode, encode, scan
from reprobuild.core.kinds.cuda_search import FILE
from reprobuild.core.tree import File
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.engine.mounts import Mounts, index_mounts
from reprobuild.ports import ContentReader, ContentStore

_MAX_SCANNED = 64 * 2**20
"""Bytes of a file that is looked into; a larger one that could be included needs whole trees."""
_MAX_LIST = 2**20


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
class ReadSets:
    """What derivations could read, out of the trees that they are given. Nothing is stored."""

    content: ContentReader
    memo: ScanMemo = field(default_factory=NoMemo)
    _mounts: dict[tuple[tuple[str, Digest], ...], Mounts] = field(default_factory=dict)
    _scans: dict[Digest, Scan] = field(default_factory=dict)
    _fresh: dict[Digest, bytes] = field(default_factory=dict)

    def reads(
        self, derivation: Derivation, inputs: Mapping[str, InputContent]
    ) -> Mapping[str, frozenset[bytes]] | None:
        """By input, the paths that its part would hold, for those that may be cut; None where the
        rule cannot tell, and for a derivation that asks for no cut."""
        asked = derivation.narrow
        if asked is None:
            return None
        asked = cast("Mapping[str, Value]", asked)
        mounts, numbers, closure = self.closed(derivation, asked, inputs)
        if closure.unresolved:
            return None
        found: dict[str, frozenset[bytes]] = {}
        for name in cast("Sequence[str]", asked["inputs"]):
            if not inputs[name].is_file:
                places = (mounts.real(place) for place in closure.files)
                number = numbers[name]
                found[name] = frozenset(p[1] for some in places for p in some if p[0] == number)
        return found

    def closed(
        self,
        derivation: Derivation,
        asked: Mapping[str, Value],
        inputs: Mapping[str, InputContent],
    ) -> tuple[Mounts, dict[str, int], Closure]:
        """The trees as an index, the number of each input's tree in it, and the set."""
        mounts, numbers = self._indexed(derivation, inputs)
        starts = [text.encode() for text in cast("Sequence[str]", asked["starts"])]
        search, directories = self._search(asked, mounts, inputs)
        closure = close(mounts.index, starts, self._scan, _defines(asked), search)
        closure.directories |= directories
        self.memo.put(self._fresh)
        self._fresh = {}
        return mounts, numbers, closure

    # -- scanning ----------------------------------------------------------------------------

    def _scan(self, blob: Digest) -> Scan:
        found = self._scans.get(blob)
        if found is None:
            data = self.memo.get(blob)
            if data is not None:
                found = decode(data)
            else:
                with self.content.open_blob(blob) as file:
                    text = file.read(_MAX_SCANNED + 1)
                    while len(text) <= _MAX_SCANNED and (more := file.read(_MAX_SCANNED)):
                        text += more
                found = scan(text) if len(text) <= _MAX_SCANNED else Scan(whole=b"a huge file")
                self._fresh[blob] = encode(found)
            self._scans[blob] = found
        return found

    # -- searching ---------------------------------------------------------------------------

    def _search(
        self, asked: Mapping[str, Value], mounts: Mounts, inputs: Mapping[str, InputContent]
    ) -> tuple[Search | None, set[Place]]:
        """The compiler's list of directories, where all of it is known, and those on it that must
        be there: a directory that is not is left out of the list."""
        stated = [text.encode() for text in cast("Sequence[str]", asked.get("directories", ()))]
        own = self._listed(asked, inputs)
        places = {mounts.directory_at(path) for path in (*stated, *(own or ()))} - {None}
        found = cast("set[Place]", places)
        if own is None:
            return None, found
        return Search(frozenset(mounts.index.absolute(p).rstrip(b"/") for p in found)), found

    def _listed(
        self, asked: Mapping[str, Value], inputs: Mapping[str, InputContent]
    ) -> list[bytes] | None:
        """What the toolchain's compiler said (core/kinds/cuda_search.py); None where it did not."""
        name = cast("str | None", asked.get("search"))
        if name is None:
            return None
        file = self.content.tree(inputs[name].digest).get(FILE.encode())
        if not isinstance(file, File):
            return None
        with self.content.open_blob(file.digest) as stream:
            lines = stream.read(_MAX_LIST).splitlines()
        if lines[-1:] != [b"exit 0"]:
            return None
        return [line for line in lines[:-1] if line.startswith(b"/")]

    # -- indexing ----------------------------------------------------------------------------

    def _indexed(
        self, derivation: Derivation, inputs: Mapping[str, InputContent]
    ) -> tuple[Mounts, dict[str, int]]:
        trees = {
            entry.name: (entry.at or "/", inputs[entry.name].digest)
            for entry in derivation.inputs
            if not inputs[entry.name].is_file
        }
        key = tuple(sorted(trees.values()))
        known = self._mounts.get(key)
        if known is None:
            known = self._mounts[key] = index_mounts(self.content, key)
        return known, {name: key.index(value) for name, value in trees.items()}


@dataclass(slots=True)
class Narrower:
    """Cuts down inputs of derivations that ask for it (`Derivation.narrow`)."""

    content: ContentStore
    memo: InitVar[ScanMemo | None] = None
    _sets: ReadSets = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self, memo: ScanMemo | None) -> None:
        self._sets = ReadSets(self.content, memo or NoMemo())

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
        mounts, numbers, closure = self._sets.closed(derivation, asked, inputs)
        if closure.unresolved:
            names = ", ".join(sorted(_shown(text) for text in closure.unresolved)[:5])
            return Narrowed(inputs, note=f"whole trees: cannot tell what is read by {names}")
        cut = dict(inputs)
        for name in cast("Sequence[str]", asked["inputs"]):
            if not inputs[name].is_file:
                cut[name] = InputContent(self._cut(mounts, numbers[name], closure))
        return Narrowed(cut, files=len(closure.files))

    def _cut(self, mounts: Mounts, number: int, closure: Closure) -> Digest:
        builder = TreeBuilder()
        for mount, path in closure.directories:
            if mount == number and path:
                builder.add_directory(path)
        for link in mounts.kept_links:
            if link[0] == number:
                builder.add(link[1], mounts.entries[link])
        for place in closure.files:
            behind = mounts.behind.get(place)
            for passed in behind.directories if behind is not None else ():
                if passed[0] == number and passed[1]:
                    builder.add_directory(passed[1])
            for real in mounts.real(place):
                if real[0] == number:
                    builder.add(real[1], mounts.entries[real])
        root, nodes = builder.build()
        self.content.add_trees(nodes)
        return root


def _shown(text: bytes) -> str:
    return repr(text[:80].decode(errors="replace"))[1:-1]


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
