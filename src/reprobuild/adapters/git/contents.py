"""Contents of files that both sides changed, merged by git: each once, several at a time.

git merges trees, so it is given trees that hold the files in question and nothing else, under a
made-up ancestor. Where attributes could apply the files keep their paths, since attributes go by
them; elsewhere a number is name enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reprobuild.adapters.git import trees
from reprobuild.adapters.git.background import cores, shared_out
from reprobuild.adapters.git.mergers import Merger, Mergers
from reprobuild.adapters.git.objects import ObjectReader
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.adapters.git.threeway import FILES, Met
from reprobuild.adapters.git.treewrite import NotPlainError, Side, rewritten
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import MergeOutcome

_KEPT = 10_000
_WORTH = 1 << 18
"""Bytes of files from which a second process is worth its start."""
_LARGE = 1 << 25
"""Bytes of one file from which memory is dearer than time."""

Attributes = Mapping[bytes, GitOid]
"""Attribute files of a tree: path → blob."""
_Key = tuple[Met, tuple[tuple[bytes, GitOid], ...]]
_Batch = list[tuple[Met, bytes]]
"""Files that are merged together, and the name that each has there."""


@dataclass(slots=True)
class Chain:
    """A file that heads change one after the other: (as the head found it, as it left it)."""

    path: bytes
    now: Side
    steps: list[tuple[Side, Side]]

    def next(self) -> Met | None:
        """The next merge that git has to do; None when there is none."""
        while self.steps:
            old, theirs = self.steps[0]
            if theirs in (self.now, old):
                self.steps.pop(0)
            elif self.now == old:
                self.now = theirs
                self.steps.pop(0)
            else:
                return Met(self.path, old, self.now, theirs)
        return None

    def settle(self, made: Side | None) -> None:
        """Takes the outcome of that merge; one that failed is the end of the chain."""
        if made is None:
            self.steps.clear()
        else:
            self.now = made
            self.steps.pop(0)


_Job = tuple[Merger, list[Chain], _Batch]


class ContentMerges:
    """What came of merging files, kept by all that it depends on."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._known: dict[_Key, Side | None] = {}

    def merge(self, wanted: Sequence[Met], attributes: Attributes) -> list[Side | None]:
        """Merges files, under the attributes that the work tree shows; None: git did not."""
        chains = [Chain(m.path, m.ours, [(m.old, m.theirs)]) for m in wanted]
        self.work_off(chains, attributes)
        return [self._known[_key(m, attributes)] for m in wanted]

    def work_off(self, chains: Iterable[Chain], attributes: Attributes) -> None:
        """Merges chains of files to their ends, under the attributes that the work tree shows."""
        if len(self._known) > _KEPT:
            self._known.clear()
        waiting = [chain for chain in chains if self._wanted(chain, attributes) is not None]
        if not waiting:
            return
        with Mergers[_Job](self._scratch) as mergers:
            for group in _groups(self._scratch.reader, waiting):
                self._launch(mergers, (mergers.merger(), group, []), attributes)
            for (merger, group, batch), outcome in mergers.answers():
                made = self._sides(batch, outcome)
                for (met, _), side in zip(batch, made, strict=True):
                    self._known[_key(met, attributes)] = side
                self._launch(mergers, (merger, group, []), attributes)

    def _wanted(self, chain: Chain, attributes: Attributes) -> Met | None:
        """The next merge of the chain that nobody has done yet."""
        while (met := chain.next()) is not None:
            key = _key(met, attributes)
            if key not in self._known:
                return met
            chain.settle(self._known[key])
        return None

    def _launch(self, mergers: Mergers[_Job], job: _Job, attributes: Attributes) -> None:
        """Asks for the next merge of each chain of a group; chains at their end drop out."""
        merger, group, batch = job
        wanted = [(c, met) for c in group if (met := self._wanted(c, attributes)) is not None]
        group[:] = [chain for chain, _ in wanted]
        batch += [(m, m.path if attributes else b"%d" % n) for n, (_, m) in enumerate(wanted)]
        if not batch:
            return
        try:
            ours, theirs = self._commits(batch)
        except NotPlainError:
            self._known.update((_key(met, attributes), None) for met, _ in batch)
            return
        last = all(len(chain.steps) == 1 for chain in group)
        mergers.ask(merger, ours, theirs, job, last=last)

    def _commits(self, batch: _Batch) -> tuple[GitOid, GitOid]:
        """Two commits whose trees hold the files of a batch, and whose ancestor does as well."""
        reader, write = self._scratch.reader, self._scratch.write_object
        made: list[GitOid] = []
        for sides in (
            {name: met.old for met, name in batch},
            {name: met.ours for met, name in batch},
            {name: met.theirs for met, name in batch},
        ):
            tree = rewritten(reader, write, None, sides)
            assert tree is not None
            made.append(self._scratch.write_commit(tree, made[:1], "one side"))
        return made[1], made[2]

    def _sides(self, batch: _Batch, outcome: MergeOutcome | None) -> list[Side | None]:
        """What came of each file of a batch."""
        if outcome is None:
            return [None] * len(batch)
        failed = {c.path for c in outcome.conflicts}
        found: list[Side | None] = []
        for _, name in batch:
            entry = trees.lookup(self._scratch.reader, outcome.tree, name)
            plain = entry is not None and entry.mode in FILES and name not in failed
            found.append((entry.mode, entry.oid) if plain and entry is not None else None)
        return found


def _key(met: Met, attributes: Attributes) -> _Key:
    """A merge with the attribute files that could have a say in it: those above the file."""
    above = tuple(
        sorted(
            (path, blob)
            for path, blob in attributes.items()
            if met.path.startswith(path.removesuffix(trees.ATTRIBUTES))
        )
    )
    return met, above


def _groups(reader: ObjectReader, chains: Sequence[Chain]) -> list[list[Chain]]:
    """Chains in as many groups as are worth a process of their own."""
    sizes = reader.sizes([theirs[1] for chain in chains for _, theirs in chain.steps])
    whole = sum(sizes) < _WORTH or max(sizes) > _LARGE
    each = iter(sizes)
    weights = [sum(next(each) for _ in chain.steps) for chain in chains]
    return [[chains[i] for i in group] for group in shared_out(weights, 1 if whole else cores())]
