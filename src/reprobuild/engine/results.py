"""What a realize leaves behind: the root that keeps it, and the memo for the next run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.record import Record
from reprobuild.engine.recall import memo_name


def keep_document(chosen: Mapping[Digest, Record], extra: Mapping[str, Value]) -> bytes:
    """The root document that keeps every tree, derivation and record that was chosen."""
    trees = sorted({t.hex for record in chosen.values() for t in record.outputs.values()})
    records = sorted({f"{r.action.hex}/{r.digest.hex}" for r in chosen.values()})
    drvs = sorted(d.hex for d in chosen)
    return encode({**extra, "keep": {"drvs": drvs, "records": records, "trees": trees}})


def link_root(link: Path, target: str, tree: str) -> tuple[str, bytes]:
    """Name and document of the root that keeps `tree` while the out-link leads to `target`."""
    document: dict[str, Value] = {
        "keep": {"drvs": [], "records": [], "trees": [tree.removeprefix(Digest.PREFIX)]},
        "link": str(link),
        "target": target,
    }
    return f"out-link:{Digest.of(os.fsencode(link)).short}", encode(document)


def memo(
    directory: Path,
    installables: Sequence[str],
    watched: Iterable[str],
    answer: Mapping[str, Value],
    key: str,
) -> tuple[str, bytes]:
    """Name and document of the memo root (engine/recall.py).

    `key` is the fingerprint taken before anything was read, so that a file that changed meanwhile
    makes the memo miss.
    """
    document: dict[str, Value] = {
        "answer": answer,
        "fingerprint": key,
        "keep": {"drvs": [], "records": [], "trees": []},
        "watched": sorted(set(watched)),
    }
    return memo_name(installables, directory), encode(document)
