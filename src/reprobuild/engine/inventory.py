"""inventory: what a store has, in 32 bytes a closure; and what another's inventory means here."""

from __future__ import annotations

from collections.abc import Iterable

from reprobuild.core.bundle.closure import Closure
from reprobuild.core.bundle.manifest import Requires
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import decode
from reprobuild.engine.transfer import Held
from reprobuild.engine.transferport import TransferStore
from reprobuild.errors import ReprobuildError

MEMO = "exported="
"""Roots that remember what a closure was, and keep nothing of it."""


IMPORT = "imported="
"""Roots of what bundles brought: whoever made the bundle knows their closures."""


def closures(store: TransferStore) -> list[Closure]:
    """The closures that this store's roots speak of, whether all of each is still here or not."""
    return [closure for closure, _ in _closures(store)]


def _closures(store: TransferStore) -> list[tuple[Closure, bool]]:
    """Each with whether another store knows it as well."""
    found: list[tuple[Closure, bool]] = []
    for name in store.roots():
        data = store.root(name)
        try:
            document = decode(data) if data is not None else None
            keep = document.get("keep") if isinstance(document, dict) else None
            memo = document.get("closure") if isinstance(document, dict) else None
            for value in (keep, memo):
                closure = Closure.parse(value).content if isinstance(value, dict) else Closure()
                if closure.trees:
                    found.append((closure, name.startswith((IMPORT, MEMO))))
        except ReprobuildError:
            continue  # a root of another kind says nothing about content
    return found


def is_here(store: TransferStore, closure: Closure) -> bool:
    """Whether every tree and derivation of a closure is in the store."""
    return all(store.contains(Digest(t)) for t in closure.trees) and all(
        store.derivation(Digest(d)) is not None for d in closure.drvs
    )


def known_closures(store: TransferStore) -> dict[Digest, Closure]:
    """The closures that are wholly here, by digest."""
    found = {c.digest: c for c in closures(store)}
    return {digest: c for digest, c in found.items() if is_here(store, c)}


def take_stock(store: TransferStore) -> tuple[tuple[Digest, ...], tuple[Digest, ...]]:
    """(closures, single trees) that together say everything that this store's roots keep.

    A closure that lies wholly within another is left out, unless it came in or went out with a
    bundle: then the other side knows what its digest means. A tree is listed by itself only when
    no closure that is complete here has it.
    """
    complete = known_closures(store)
    shared = {c.digest for c, exchanged in _closures(store) if exchanged}
    kept: dict[Digest, Closure] = {}
    ordered = sorted(complete.items(), key=lambda item: (-len(item[1].trees), item[0]))
    for digest, closure in ordered:
        if digest in shared or not any(_within(closure, other) for other in kept.values()):
            kept[digest] = closure
    covered = {t for c in kept.values() for t in c.trees}
    alone = {
        t
        for c in closures(store)
        for t in c.trees
        if t not in covered and store.contains(Digest(t))
    }
    return tuple(sorted(kept)), tuple(sorted(Digest(t) for t in alone))


def _within(closure: Closure, other: Closure) -> bool:
    return set(closure.trees) <= set(other.trees) and set(closure.drvs) <= set(other.drvs)


def what_is_held(
    store: TransferStore, closure_digests: Iterable[Digest], trees: Iterable[Digest]
) -> Held:
    """What another store has, in terms of this one. Anything unknown here counts as absent."""
    meant = {c.digest: c for c in closures(store)}
    known = [d for d in closure_digests if d in meant]
    singles = [t for t in trees if store.contains(t)]
    held = {Digest(t) for d in known for t in meant[d].trees if store.contains(Digest(t))}
    return Held(
        trees=frozenset(held | set(singles)),
        drvs=frozenset(drv for d in known for drv in meant[d].drvs),
        requires=Requires(tuple(sorted(known)), tuple(sorted(singles))),
    )


def memo_root(closure: Closure) -> str:
    """The root that remembers what a closure was after it went out; it keeps no content."""
    return f"{MEMO}{closure.digest.short}"
