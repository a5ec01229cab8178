"""Every pair of neighbouring releases among the published locks, against a few lines of its own.

The locks are looked for where REPROBUILD_UPSTREAM says, else in ../shared/upstream beside the
project.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reprobuild.core.diff.read import upstream_side
from reprobuild.core.diff.report import document
from reprobuild.core.diff.side import Side
from reprobuild.core.integration.upstream import parse_lock
from reprobuild.engine.diff import Differ
from reprobuild.engine.diff_loaded import Loaded

ROOT = Path(__file__).parents[2]
LOCKS = Path(os.environ.get("REPROBUILD_UPSTREAM", ROOT / "../shared/upstream")) / "locks"


def neighbours() -> list[tuple[Path, Path]]:
    rows: dict[tuple[str, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in LOCKS.glob("*.lock.json"):
        match = re.fullmatch(r"(.+)-r(\d+)__(.+?)__(?:integration|source)\.lock\.json", path.name)
        if match:
            rows[match[1], match[3]].append((int(match[2]), path))
    return [(old, new) for found in rows.values() for (_, old), (_, new) in pairwise(sorted(found))]


PAIRS = neighbours()
needs_locks = pytest.mark.skipif(not PAIRS, reason="the published locks are not here")


def side(path: Path) -> Side:
    return upstream_side(path.name, [parse_lock(path.read_bytes(), path.name)])


@needs_locks
def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 8


@needs_locks
@pytest.mark.parametrize(("old", "new"), PAIRS, ids=lambda p: p.name.partition(".")[0])
def test_heads_of_neighbours(old: Path, new: Path) -> None:
    found: Any = document(Differ(Loaded(side(old)), Loaded(side(new))).run())
    (component,) = found["components"].values()
    heads = component["heads"]
    before, after = (
        {row["number"]: row["head"] for row in json.loads(p.read_bytes())["pull_requests"]}
        for p in (old, new)
    )
    assert {(h["number"], h["head"]) for h in heads["added"]} == {
        (n, after[n]) for n in after.keys() - before.keys()
    }
    assert {(h["number"], h["head"]) for h in heads["dropped"]} == {
        (n, before[n]) for n in before.keys() - after.keys()
    }
    assert {(h["number"], h["old"], h["new"]) for h in heads["moved"]} == {
        (n, before[n], after[n]) for n in before.keys() & after.keys() if before[n] != after[n]
    }
    both = [n for n in before if n in after]
    assert bool(heads["reordered"]) == (both != [n for n in after if n in before])
    # taking the named ones out of both lists leaves one order
    left = [n for n in both if n not in heads["reordered"]]
    assert left == [n for n in after if n in left]
    trees = [json.loads(p.read_bytes())["result"]["tree"] for p in (old, new)]
    assert component["tree"] == {
        "equal": trees[0] == trees[1], "old": trees[0], "new": trees[1],
    }  # fmt: skip


@needs_locks
@pytest.mark.parametrize("path", sorted(LOCKS.glob("*.lock.json")), ids=lambda p: p.name)
def test_a_lock_against_itself(path: Path) -> None:
    found: Any = document(Differ(Loaded(side(path)), Loaded(side(path))).run())
    assert found["equal"] is True
    assert found["causes"] == []
