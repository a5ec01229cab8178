"""Stack algebra: which heads commute, which need which, what the tree is without each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import Change, PatchReader, Repository
from reprobuild.core.integration.conflict import works
from reprobuild.core.integration.model import HeadSpec, IntegrationSpec, Strategy
from reprobuild.core.integration.strategies import Stack, no_patches
from reprobuild.errors import ReprobuildError

COMMUTE, COLLIDE, ORDER = "commute", "collide", "order"


@dataclass(frozen=True, slots=True)
class Pair:
    """How two heads stand to each other on the base alone.

    `commute` – both orders give one tree; `collide` – neither works; `order` – both work, or one,
    with different results. `same_paths` – whether they touch a path in common.
    """

    first: int
    second: int
    relation: str
    same_paths: bool


@dataclass(frozen=True, slots=True)
class Without:
    """The whole stack less one head: its tree, or the head that then fails."""

    number: int
    tree: GitOid | None
    fails_at: int = 0


@dataclass(frozen=True, slots=True)
class Algebra:
    """The map of a stack.

    `needs` maps a head to the earlier heads without which it does not go on (or whose commits it
    holds). `core` are the heads that commute with every other one and need none: in any order they
    give `core_tree`. `failed` is the first head that does not go on (0: none).
    """

    heads: tuple[HeadSpec, ...]
    tree: GitOid | None
    failed: int
    pairs: tuple[Pair, ...]
    needs: dict[int, tuple[int, ...]]
    without: tuple[Without, ...]
    core: tuple[int, ...]
    core_tree: GitOid
    stands_alone: dict[int, bool] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """The plain form."""
        return {
            "heads": [
                {"number": h.number, "title": h.title, "alone": self.stands_alone[h.number]}
                for h in self.heads
            ],
            "tree": self.tree.hex if self.tree else None,
            "failed": self.failed or None,
            "pairs": [
                {
                    "first": p.first,
                    "second": p.second,
                    "relation": p.relation,
                    "same_paths": p.same_paths,
                }
                for p in self.pairs
            ],
            "needs": {str(n): list(on) for n, on in self.needs.items() if on},
            "without": [
                {
                    "number": w.number,
                    "tree": w.tree.hex if w.tree else None,
                    "fails_at": w.fails_at or None,
                }
                for w in self.without
            ],
            "core": {"heads": list(self.core), "tree": self.core_tree.hex},
        }


def analyze(
    repository: Repository, spec: IntegrationSpec, read: PatchReader = no_patches
) -> Algebra:
    """Maps a stack by merging, not by guessing: only heads that cannot meet are not tried."""
    if spec.strategy is Strategy.PINNED_BRANCH:
        raise ReprobuildError(
            "E-USAGE", "a pinned branch was composed elsewhere; there is no stack to analyze"
        )
    stack = Stack.start(repository, spec, read)
    failed = 0
    for head in spec.heads:
        if _push(stack, head):
            failed = head.number
            break
    touched = _touched(repository, spec, stack)
    alone = {h.number: works(stack, [h]) for h in spec.heads}
    pairs = [_pair(stack, one, other, touched, alone) for one, other in combinations(spec.heads, 2)]
    needs = {h.number: _needs(stack, h, alone) for h in spec.heads}
    core = _core(spec.heads, pairs, needs, alone)
    core_heads = [h for h in spec.heads if h.number in core]
    core_tree = works(stack, core_heads)
    return Algebra(
        heads=spec.heads,
        tree=None if failed else stack.tree,
        failed=failed,
        pairs=tuple(pairs),
        needs=needs,
        without=tuple(_without(stack, h) for h in spec.heads),
        core=tuple(core),
        core_tree=core_tree or stack.base_tree,
        stands_alone={n: tree is not None for n, tree in alone.items()},
    )


def _push(stack: Stack, head: HeadSpec) -> bool:
    """Pushes; whether it failed."""
    try:
        return stack.push(head).failed
    except ReprobuildError as error:
        if error.code not in ("E-CONFLICT", "E-INTEGRATION"):
            raise
        return True


def _touched(
    repository: Repository, spec: IntegrationSpec, stack: Stack
) -> dict[int, tuple[Change, ...]]:
    """What each head changes since it left the base; everything it can meet another head in."""
    found = {}
    for head in spec.heads:
        parted = repository.merge_base(spec.base, head.head)
        start = repository.commit(parted).tree if parted is not None else stack.base_tree
        found[head.number] = tuple(repository.changes(start, repository.commit(head.head).tree))
    return found


def cannot_meet(one: Sequence[Change], other: Sequence[Change]) -> bool:
    """Whether two sets of changes touch no path in common, above or below each other, and no
    directory that one leaves (renames by directory) and the other adds to."""
    a, b = {c.path for c in one}, {c.path for c in other}
    if a & b or _above(a, b) or _above(b, a):
        return False
    return not (_left(one) & _added(other) or _left(other) & _added(one))


def _above(some: set[bytes], others: set[bytes]) -> bool:
    for path in others:
        parts = path.split(b"/")
        if any(b"/".join(parts[:n]) in some for n in range(1, len(parts))):
            return True
    return False


def _left(changes: Sequence[Change]) -> set[bytes]:
    return {_parent(c.path) for c in changes if c.new is None}


def _added(changes: Sequence[Change]) -> set[bytes]:
    found = set()
    for change in changes:
        if change.old is None:
            directory = _parent(change.path)
            while directory:
                found.add(directory)
                directory = _parent(directory)
            found.add(b"")
    return found


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def _pair(
    stack: Stack,
    one: HeadSpec,
    other: HeadSpec,
    touched: dict[int, tuple[Change, ...]],
    alone: dict[int, GitOid | None],
) -> Pair:
    a, b = touched[one.number], touched[other.number]
    same = bool({c.path for c in a} & {c.path for c in b})
    both = alone[one.number] is not None and alone[other.number] is not None
    if both and cannot_meet(a, b):
        return Pair(one.number, other.number, COMMUTE, same)
    forth = works(stack, [one, other])
    back = works(stack, [other, one])
    if forth is None and back is None:
        return Pair(one.number, other.number, COLLIDE, same)
    relation = COMMUTE if forth == back else ORDER
    return Pair(one.number, other.number, relation, same)


def _needs(stack: Stack, head: HeadSpec, alone: dict[int, GitOid | None]) -> tuple[int, ...]:
    """Earlier heads that it holds, and those it cannot do without in the stack as it is."""
    spec = stack.spec
    place = spec.heads.index(head)
    earlier = spec.heads[:place]
    own = stack.graph.own(head.head)
    needed = {h.number for h in earlier if h.head in own and h.head != head.head}
    if alone[head.number] is None:
        kept = list(earlier)
        if works(stack, [*kept, head]) is None:
            return tuple(h.number for h in earlier if h.number in needed)
        for candidate in earlier:
            fewer = [h for h in kept if h is not candidate]
            if works(stack, [*fewer, head]) is not None:
                kept = fewer
        needed |= {h.number for h in kept}
    return tuple(h.number for h in earlier if h.number in needed)


def _without(stack: Stack, head: HeadSpec) -> Without:
    """Replays what stands after the head; what stands before it is the same."""
    trial = stack.fresh()
    for other in stack.spec.heads:
        if other.number != head.number and _push(trial, other):
            return Without(head.number, None, other.number)
    return Without(head.number, trial.tree)


def _core(
    heads: Sequence[HeadSpec],
    pairs: Sequence[Pair],
    needs: dict[int, tuple[int, ...]],
    alone: dict[int, GitOid | None],
) -> list[int]:
    bound = {n for p in pairs if p.relation != COMMUTE for n in (p.first, p.second)}
    bound |= {n for n, on in needs.items() if on} | {m for on in needs.values() for m in on}
    return [h.number for h in heads if h.number not in bound and alone[h.number] is not None]
