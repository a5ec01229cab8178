"""What is alive: everything that the roots keep, directly or through other objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from reprobuild.adapters.store.faults import damaged, missing
from reprobuild.adapters.store.layout import QUARANTINE, Layout
from reprobuild.adapters.store.records import is_derivation, parse_record, read
from reprobuild.adapters.store.roots import Roots, parse_keep
from reprobuild.adapters.store.shards import listing
from reprobuild.core import node
from reprobuild.core.blake import tagged_hex
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import decode as decode_document
from reprobuild.core.record import Record
from reprobuild.errors import ReprobuildError


@dataclass(slots=True)
class Live:
    """Live objects; digests of trees and blobs as bytes, to hold a million in little memory."""

    records: set[tuple[str, str]] = field(default_factory=set)
    drvs: set[str] = field(default_factory=set)
    logs: set[str] = field(default_factory=set)
    trees: set[bytes] = field(default_factory=set)
    blobs: set[bytes] = field(default_factory=set)

    def has_tree(self, name: str) -> bool:
        """Whether a file name under trees/ is that of a live tree."""
        return _raw(name) in self.trees

    def has_blob(self, name: str) -> bool:
        """Whether a file name under blobs/ is that of a live blob."""
        bare = name.removesuffix(".x")
        return _raw(bare) + (b"x" if bare != name else b"") in self.blobs

    def merge(self, other: Live) -> None:
        """Adds what is alive in `other`."""
        self.records |= other.records
        self.drvs |= other.drvs
        self.logs |= other.logs
        self.trees |= other.trees
        self.blobs |= other.blobs


def _raw(name: str) -> bytes:
    try:
        return bytes.fromhex(name)
    except ValueError:
        return b""


def mark(layout: Layout, roots: Roots, ignored: Collection[str] = ()) -> Live:
    """Follows every root but the ignored; raises E-STORE-ROOT, E-STORE-MISSING, E-STORE-DAMAGED.

    A record that says something else than a live one of its action lives, too, and so does what
    was set aside (quarantine.py): a disagreement is settled by people, not by collection.
    """
    live = Live()
    for name, document in roots.documents():
        if name not in ignored:
            mark_root(layout, name, document, live)
    for action in {action for action, _ in live.records}:
        _disagreeing(layout, live, action)
    for aside in listing(str(layout.directory(QUARANTINE))):
        if len(aside.name) != 64 or not aside.is_dir(follow_symlinks=False):
            continue  # no action's: nothing was set aside there
        for entry in listing(aside.path):
            record = _read_record(entry.path, aside.name, entry.name)
            _outputs(layout, live, record)
            _disagreeing(layout, live, aside.name, [record])
    return live


def mark_root(layout: Layout, name: str, document: bytes, live: Live) -> None:
    """Adds to `live` what one root keeps."""
    keep = parse_keep(name, document)
    for action, record in keep.records:
        mark_record(layout, live, action, record)
    mark_drvs(layout, live, keep.drvs)
    mark_trees(layout, live, keep.trees)


def mark_record(
    layout: Layout, live: Live, action: str, name: str, base: Live | None = None
) -> Record:
    """Adds a record, its log and its output trees; what `base` has is not added again."""
    record = _read_record(layout.record(action, name), action, name)
    live.records.add((action, name))
    _outputs(layout, live, record, base)
    return record


def _outputs(layout: Layout, live: Live, record: Record, base: Live | None = None) -> None:
    if record.log:
        live.logs.add(record.log)
    mark_trees(layout, live, [tree.hex for tree in record.outputs.values()], base)


def _read_record(path: str, action: str, name: str) -> Record:
    data = read(path, "record", name)
    if data is None:
        raise missing("record", name)
    return parse_record(data, action, name, path)


def _disagreeing(layout: Layout, live: Live, action: str, aside: Sequence[Record] = ()) -> None:
    """Adds the records of an action that say something else than live ones, and than `aside`."""
    names = [entry.name for entry in listing(layout.records(action))]
    if len(names) < 2 and not aside:
        return
    kept = list(aside)
    others: list[tuple[str, Record]] = []
    for name in names:
        alive = (action, name) in live.records
        try:
            record = _read_record(layout.record(action, name), action, name)
        except ReprobuildError:
            if alive:
                raise
            continue  # damaged, and nobody's: it goes
        if alive:
            kept.append(record)
        else:
            others.append((name, record))
    for name, record in others:
        if any(dict(record.outputs) != dict(other.outputs) for other in kept):
            extra = Live()
            try:
                mark_record(layout, extra, action, name, live)
            except ReprobuildError:
                continue  # its trees are not whole: nothing to compare any more
            live.merge(extra)


def mark_drvs(layout: Layout, live: Live, wanted: Iterable[str], base: Live | None = None) -> None:
    """Adds derivations with all that they name as inputs."""
    roots = set(wanted)
    stack = list(roots)
    while stack:
        name = stack.pop()
        if name in live.drvs or (base is not None and name in base.drvs):
            continue
        live.drvs.add(name)
        path = layout.drv(name)
        data = read(path, "derivation", name)
        if data is None:
            if name in roots:
                raise missing("derivation", name)
            continue  # an input whose document was never stored: nothing to keep
        if not is_derivation(Digest(name), data):
            raise damaged("derivation", name, path, "its content has another digest")
        stack += _inputs(data)


def _inputs(data: bytes) -> list[str]:
    document = decode_document(data)
    inputs = document.get("inputs") if isinstance(document, dict) else None
    if not isinstance(inputs, dict):
        return []
    return [str(i["drv"]) for i in inputs.values() if isinstance(i, dict) and "drv" in i]


def mark_trees(layout: Layout, live: Live, wanted: Iterable[str], base: Live | None = None) -> None:
    """Adds trees with all below them; raises E-STORE-MISSING, E-STORE-DAMAGED for a node."""
    stack = [bytes.fromhex(name) for name in wanted]
    while stack:
        raw = stack.pop()
        if raw in live.trees or (base is not None and raw in base.trees):
            continue
        live.trees.add(raw)
        for kind, _, value, _ in _read_tree(layout, raw.hex()):
            if kind == b"d":
                stack.append(value)
            elif kind != b"l":
                blob = value + b"x" if kind == b"x" else value
                if base is None or blob not in base.blobs:
                    live.blobs.add(blob)


def _read_tree(layout: Layout, name: str) -> list[node.Row]:
    path = layout.tree(name)
    data = read(path, "tree", name)
    if data is None:
        raise missing("tree", name)
    if tagged_hex(node.DOMAIN, data) != name:
        raise damaged("tree", name, path, "its content has another digest")
    try:
        return node.rows(data)
    except node.NodeError as error:
        raise damaged("tree", name, path, str(error)) from None
