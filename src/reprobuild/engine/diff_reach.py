"""What a head really touches: from its files, through what each step could read, to where the
content comes out the same.

A recipe changes as soon as anything below it does. A build is touched only by what it is given: a
step that takes a directory by what lies in it, a compile by the files that it could read
(engine/narrow.py), and whatever stands on a step whose output came out the same by nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from reprobuild.core.derivation import Derivation, InputContent
from reprobuild.core.diff.causes import Cause
from reprobuild.core.diff.comparison import FilesDiff, OutputChange, Touch
from reprobuild.core.diff.dag import GraphDiff, NodeChange
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.engine.diff_loaded import Loaded
from reprobuild.engine.resolve import input_content
from reprobuild.errors import ReprobuildError

MAX_READ = 500
"""Compiles whose reads are looked at; more count as touched by whatever their source is."""

DESCRIBING = ("builtin:statement", "builtin:image")
"""What says which heads are in: touched by every one of them."""


class Reads(Protocol):
    """What a compile could read (engine.narrow.Narrower)."""

    def reads(
        self, derivation: Derivation, inputs: Mapping[str, InputContent]
    ) -> Mapping[str, frozenset[bytes]] | None:
        """By input, paths; None where it cannot be told."""
        ...


ReadsOf = Callable[[Loaded], "Reads | None"]
"""Looks into the store of a side; None where it has none."""


@dataclass(slots=True)
class Reach:
    """One comparison's graph, and both sides that it is of."""

    sides: tuple[Loaded, Loaded]
    graph: GraphDiff
    outputs: Mapping[str, OutputChange]
    reads_of: ReadsOf
    left_out: int = 0
    """Compiles that were not looked at, being too many."""

    _looked: int = 0
    _keys: dict[str, str] = field(default_factory=dict)
    _reads: dict[tuple[str, int], Mapping[str, frozenset[bytes]] | None] = field(
        default_factory=dict
    )
    _inputs: dict[tuple[int, str], tuple[Derivation, Mapping[str, InputContent]] | None] = field(
        default_factory=dict
    )
    _readers: tuple[Reads | None, Reads | None] = (None, None)

    def __post_init__(self) -> None:
        self._readers = self.reads_of(self.sides[0]), self.reads_of(self.sides[1])
        for key, change in self.graph.changes.items():
            for drv in (change.old, change.new):
                if drv:
                    self._keys[drv] = key

    def touches(self, cause: Cause, files: FilesDiff, heads: Sequence[int]) -> dict[int, Touch]:
        """By head, what its files reach in the graph; empty where heads were not told apart."""
        sources = {
            key for key in cause.nodes if any(side for side in self.graph.changes[key].fixed)
        }
        if not files.attributed or not sources:
            return {}
        found = {}
        for number in heads:
            paths = [f.path for f in files.files if number in f.heads]
            found[number] = self._touched(sources, paths)
        return found

    def _touched(self, sources: set[str], paths: Sequence[str]) -> Touch:
        names = [path.encode("utf-8", "surrogateescape") for path in paths]
        keys: dict[str, None] = {}
        units: list[str] = []
        narrowed, blind = 0, False
        for key, change in self.graph.changes.items():  # inputs come before what uses them
            if change.builder in DESCRIBING or (key in sources and paths):
                keys[key] = None
                continue
            given = self._given(change, sources)
            is_unit = any(asked is not None for _, _, asked in given)
            narrowed += is_unit
            blind = blind or (is_unit and not self._at_hand(key, change))
            if self._by_source(key, change, given, names) or self._by_build(change, keys, sources):
                keys[key] = None
                if is_unit:
                    units.append(key)
        # where what a compile was given is not at hand, nothing is said of compiles
        if blind:
            return Touch(tuple(keys), told=False)
        return Touch(tuple(keys), tuple(units), narrowed)

    def _at_hand(self, key: str, change: NodeChange) -> bool:
        """Whether the trees that a compile is given are known on every side that has it."""
        return all(
            self._readers[number] is not None and self._contents(number, drv) is not None
            for number, drv in enumerate((change.old, change.new))
            if drv
        )

    def _by_build(self, change: NodeChange, keys: Mapping[str, None], sources: set[str]) -> bool:
        """Whether something that it uses was touched, and came out differently."""
        return any(
            below in keys
            and below not in sources
            and (below not in self.outputs or self.outputs[below].verdict != "identical")
            for below in change.below
        )

    def _given(
        self, change: NodeChange, sources: set[str]
    ) -> list[tuple[int, Mapping[str, Value], str | None]]:
        """(side, input, its name where a compile reads a part of it) for each input out of the
        sources."""
        found = []
        for number, drv in enumerate((change.old, change.new)):
            node = self.sides[number].look(drv) if drv else None
            if node is None:
                continue
            rows = cast("Mapping[str, Mapping[str, Value]]", node.document.get("inputs") or {})
            narrow = node.document.get("narrow")
            asked = cast("Sequence[str]", narrow["inputs"]) if isinstance(narrow, Mapping) else ()
            for name, below in node.inputs.items():
                if self._keys.get(below) in sources:
                    found.append((number, rows[name], name if name in asked else None))
        return found

    def _by_source(
        self,
        key: str,
        change: NodeChange,
        given: Sequence[tuple[int, Mapping[str, Value], str | None]],
        names: Sequence[bytes],
    ) -> bool:
        for number, row, asked in given:
            place = str(row.get("path") or "").encode()
            inner = list(_below(place, names))
            if not inner:
                continue
            if asked is None:
                return True
            reads = self._read(key, change, number)
            if reads is None or asked not in reads or not reads[asked].isdisjoint(inner):
                return True
        return False

    def _read(
        self, key: str, change: NodeChange, number: int
    ) -> Mapping[str, frozenset[bytes]] | None:
        """What a compile could read on one side; None where that cannot be told."""
        place = (key, number)
        if place not in self._reads:
            self._looked += 1
            if self._looked > 2 * MAX_READ:
                self.left_out += 1
                self._reads[place] = None
            else:
                drv = change.new if number else change.old
                given, reader = self._contents(number, drv), self._readers[number]
                self._reads[place] = None
                if given is not None and reader is not None:
                    self._reads[place] = reader.reads(*given)
        return self._reads[place]

    def _contents(
        self, number: int, drv: str
    ) -> tuple[Derivation, Mapping[str, InputContent]] | None:
        """A derivation with what its inputs came out as; None where one is not at hand."""
        if (number, drv) not in self._inputs:
            self._inputs[number, drv] = _contents(self.sides[number], drv)
        return self._inputs[number, drv]


def _contents(side: Loaded, drv: str) -> tuple[Derivation, Mapping[str, InputContent]] | None:
    if side.graph is None or side.store is None:
        return None
    derivation = side.graph.nodes.get(Digest(drv))
    if derivation is None:
        return None
    inputs: dict[str, InputContent] = {}
    for entry in derivation.inputs:
        tree = side.output(entry.drv.hex, entry.output)
        if not tree or not side.store.contains(Digest(tree)):
            return None
        try:
            inputs[entry.name] = input_content(side.store, entry, Digest(tree), derivation.name)
        except ReprobuildError as error:
            if error.code != "E-INPUT-PATH":
                raise
            return None
    return derivation, inputs


def _below(place: bytes, names: Sequence[bytes]) -> Iterator[bytes]:
    """Those of the paths that lie in `place`, as they are called there."""
    for name in names:
        if not place:
            yield name
        elif name == place:
            yield b""
        elif name.startswith(place + b"/"):
            yield name[len(place) + 1 :]
