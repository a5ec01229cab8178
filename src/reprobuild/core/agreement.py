"""Whether a pin says what the flake says, wherever both say it.

A pin's `spec` tells that its declaration changed. That the pin itself was changed, by hand or by a
merge of two branches, is told here: what it states goes into labels and statements.
"""

from __future__ import annotations

from reprobuild.core.flake import FixtureInput, GitInput, Source
from reprobuild.core.lock import GitPin, PinnedSource


def input_disagrees(declared: GitInput | FixtureInput, pin: GitPin) -> str:
    """How the pin of a repository differs from its declaration, in words; "" where it does not."""
    rev = declared.rev if isinstance(declared, GitInput) else None
    return _differs([("ref", pin.ref, declared.ref), ("rev", pin.rev, rev or pin.rev)])


def source_disagrees(declared: GitInput | FixtureInput, wanted: Source, pin: PinnedSource) -> str:
    """The same of the pin of a component's source; `declared` is the input it is of."""
    numbers = [head.number for head in pin.heads]
    rows: list[tuple[str, object, object]] = [
        ("strategy", pin.strategy, wanted.strategy),
        ("base-ref", pin.base_ref, wanted.base or declared.ref),
        ("base", pin.base, wanted.base_commit or pin.base),
        ("composition", pin.composition, wanted.composition_commit),
        ("heads", _listed(numbers), _listed([head.number for head in wanted.heads])),
    ]
    for head, asked in zip(pin.heads, wanted.heads, strict=False):
        rows += [
            (f"head #{head.number}", head.head, asked.head or head.head),
            (f"commits of #{head.number}", _listed(head.commits), _listed(asked.commits)),
        ]
    return _differs(rows)


def _listed(items: object) -> str:
    return ", ".join(map(str, items)) if isinstance(items, (list, tuple)) and items else "none"


def _differs(rows: list[tuple[str, object, object]]) -> str:
    for what, pinned, stated in rows:
        if pinned != stated:
            return f"{what} is {pinned} in the lock and {stated} in the flake"
    return ""
