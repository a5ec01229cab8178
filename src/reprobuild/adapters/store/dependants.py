"""Forgetting what was chosen for all that needs a result, when that result comes into doubt.

A memo (`chosen/`) lets a run reuse a result without a look at what is below it. When an action
turns out to have two results, or one of them is set aside, everything made of it must be looked
up again from there. Memos are only ever a short cut: losing one costs a look-up.
"""

from __future__ import annotations

from contextlib import suppress

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.info import files
from reprobuild.adapters.store.layout import Layout
from reprobuild.adapters.store.reading import read_file
from reprobuild.adapters.store.records import parse_memo
from reprobuild.core.encoding import decode
from reprobuild.errors import ReprobuildError


def forget_dependants(layout: Layout, actions: set[str], drvs: set[str]) -> None:
    """Removes the memos of `drvs`, of all that resolved to one of `actions`, and of whatever needs
    one of these, directly or through others. Raises OSError when the disk refuses.
    """
    memos = {entry.name: entry.path for entry in files(f"{layout.root}/chosen")}
    doubtful = set(drvs)
    for name, path in memos.items():
        try:
            reference = parse_memo(read_file(path), name)
        except FileNotFoundError:
            continue
        if reference is not None and reference[0] in actions:
            doubtful.add(name)
    needed_by = _needed_by(layout)
    stack = list(doubtful)
    while stack:
        for above in needed_by.get(stack.pop(), ()):
            if above not in doubtful:
                doubtful.add(above)
                stack.append(above)
    for name in sorted(doubtful & set(memos)):
        with suppress(FileNotFoundError):
            durable.unlink(memos[name])


def _needed_by(layout: Layout) -> dict[str, list[str]]:
    """For each derivation those that name it as an input, by the stored documents."""
    found: dict[str, list[str]] = {}
    for entry in files(f"{layout.root}/drvs"):
        try:
            document = decode(read_file(entry.path))
        except (OSError, ReprobuildError):
            continue  # damaged: verification's business
        inputs = document.get("inputs") if isinstance(document, dict) else None
        if isinstance(inputs, dict):
            for value in inputs.values():
                if isinstance(value, dict):
                    found.setdefault(str(value.get("drv")), []).append(entry.name)
    return found
