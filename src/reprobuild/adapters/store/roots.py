"""Collection roots: named documents that say what must be kept.

A document is canonical JSON with, beside anything else, a key `keep`:
`{"trees": [hex…], "drvs": [hex…], "records": ["<action hex>/<record hex>"…]}`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.names import file_name, root_name
from reprobuild.adapters.store.records import parse_reference, read
from reprobuild.adapters.store.staging import Staging
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import decode, encode
from reprobuild.errors import ReprobuildError

MEMO_ROOT = "=result"
"""Ends the name of a root that remembers an answer; one that no longer holds is of no use."""

OUT_LINK = "out-link:"
"""Begins the name of a root that keeps what a link outside the store leads to, while it does; its
document names both (`link`, `target`)."""


@dataclass(frozen=True, slots=True)
class Keep:
    """What a root keeps: hex digests, and records as (action, record)."""

    trees: tuple[str, ...] = ()
    drvs: tuple[str, ...] = ()
    records: tuple[tuple[str, str], ...] = ()


class Roots:
    """The roots of a store."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._home = staging.layout.directory("roots")

    def write(self, name: str, document: bytes) -> None:
        """Writes a root, durable on return, after all that was added before it."""
        target = self._home / file_name(name)
        self._staging.barrier()
        with durable.writing(self._home, f"the root {name}"):
            durable.write_document(self._staging.temporary(), target, document, replace=True)

    def read(self, name: str) -> bytes | None:
        """A root's document."""
        return read(self._home / file_name(name), "root", name)

    def remove(self, name: str) -> bool:
        """Removes a root; whether it was there."""
        target = self._home / file_name(name)
        with durable.writing(self._home, f"the root {name}"):
            try:
                durable.unlink(target)
            except FileNotFoundError:
                return False
            durable.sync_directory(self._home)
        return True

    def names(self) -> list[str]:
        """All roots, sorted."""
        return sorted(root_name(text) for text in os.listdir(self._home))

    def documents(self) -> Iterator[tuple[str, bytes]]:
        """All roots with their documents, sorted; one that somebody removes meanwhile is let be."""
        for name in self.names():
            document = self.read(name)
            if document is not None:
                yield name, document

    def path(self, name: str) -> Path:
        """A root's file."""
        return self._home / file_name(name)

    def stale_links(self) -> list[str]:
        """Roots of out-links that are gone, or lead elsewhere by now."""
        stale: list[str] = []
        for name, data in self.documents():
            if name.startswith(OUT_LINK):
                document = decode(data)
                link = document.get("link") if isinstance(document, dict) else None
                target = document.get("target") if isinstance(document, dict) else None
                try:
                    if isinstance(link, str) and os.readlink(link) != target:
                        stale.append(name)
                except OSError:
                    stale.append(name)
        return stale

    def forget_answers(self) -> None:
        """Removes the remembered answers: the next run looks for itself."""
        for name in self.names():
            if name.endswith(MEMO_ROOT):
                self.remove(name)


def with_keep(document: bytes, keep: Keep) -> bytes:
    """A root's document with another `keep`; all else in it stays."""
    value = decode(document)
    assert isinstance(value, dict)
    lists = {
        "trees": list(keep.trees),
        "drvs": list(keep.drvs),
        "records": [f"{action}/{record}" for action, record in keep.records],
    }
    return encode({**value, "keep": {key: list(items) for key, items in lists.items() if items}})


def parse_keep(name: str, document: bytes) -> Keep:
    """What a document keeps; raises E-STORE-ROOT when it does not say."""
    try:
        value = decode(document)
    except ReprobuildError as error:
        raise _off(name, error.message) from error
    keep = value.get("keep") if isinstance(value, dict) else None
    if not isinstance(keep, dict) or not set(keep) <= {"trees", "drvs", "records"}:
        raise _off(name, "it has no `keep` of trees, drvs and records")
    lists: dict[str, list[str]] = {}
    for key, items in keep.items():
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise _off(name, f"keep.{key} is no list of texts")
        lists[key] = [str(item) for item in items]
    references = [parse_reference(text.encode()) for text in lists.get("records", [])]
    try:
        trees = tuple(Digest.parse(text).hex for text in lists.get("trees", []))
        drvs = tuple(Digest.parse(text).hex for text in lists.get("drvs", []))
    except ReprobuildError as error:
        raise _off(name, error.message) from error
    if None in references:
        raise _off(name, "keep.records holds something that is no action/record")
    return Keep(trees, drvs, tuple(r for r in references if r is not None))


def _off(name: str, reason: str) -> ReprobuildError:
    return ReprobuildError(
        "E-STORE-ROOT", f"the root {name} does not say what it keeps: {reason}", root=name
    )
