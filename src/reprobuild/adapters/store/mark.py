"""What is alive: everything that the roots keep, directly or through other objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from reprobuild.adapters.store.blobs import damaged, missing
from reprobuild.adapters.store.layout import Layout
from reprobuild.adapters.store.records import is_derivation, parse_record, read
from reprobuild.adapters.store.roots import Roots, parse_keep
from reprobuild.core.digest import Digest, tagged
from reprobuild.core.encoding import decode as decode_document
from reprobuild.core.tree import DOMAIN, Directory, File, Tree, decode


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


def _raw(name: str) -> bytes:
    try:
        return bytes.fromhex(name)
    except ValueError:
        return b""


def mark(layout: Layout, roots: Roots) -> Live:
    """Follows every root; raises E-STORE-ROOT, E-STORE-MISSING or E-STORE-DAMAGED."""
    live = Live()
    for name in roots.names():
        keep = parse_keep(name, roots.read(name) or b"")
        trees = list(keep.trees)
        for action, record in keep.records:
            trees += _record(layout, live, action, record)
        _drvs(layout, live, keep.drvs)
        _trees(layout, live, trees)
    return live


def _record(layout: Layout, live: Live, action: str, name: str) -> list[str]:
    path = layout.records(action) / name
    data = read(path, "record", name)
    if data is None:
        raise missing("record", name)
    record = parse_record(data, action, name, path)
    live.records.add((action, name))
    if record.log:
        live.logs.add(record.log)
    return [tree.hex for tree in record.outputs.values()]


def _drvs(layout: Layout, live: Live, wanted: Iterable[str]) -> None:
    roots = set(wanted)
    stack = list(roots)
    while stack:
        name = stack.pop()
        if name in live.drvs:
            continue
        live.drvs.add(name)
        path = Path(layout.drv(name))
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


def _trees(layout: Layout, live: Live, wanted: Iterable[str]) -> None:
    stack = [bytes.fromhex(name) for name in wanted]
    while stack:
        raw = stack.pop()
        if raw in live.trees:
            continue
        live.trees.add(raw)
        for _, entry in _read_tree(layout, raw.hex()).entries:
            if isinstance(entry, Directory):
                stack.append(entry.digest.raw)
            elif isinstance(entry, File):
                live.blobs.add(entry.digest.raw + (b"x" if entry.executable else b""))


def _read_tree(layout: Layout, name: str) -> Tree:
    path = Path(layout.tree(name))
    data = read(path, "tree", name)
    if data is None:
        raise missing("tree", name)
    if tagged(DOMAIN, data).hex != name:
        raise damaged("tree", name, path, "its content has another digest")
    return decode(data)
