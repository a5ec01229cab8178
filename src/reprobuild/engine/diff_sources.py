"""The integration trees' level: which files differ, and which head each hunk comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from reprobuild.core.diff.comparison import FileChange, FilesDiff
from reprobuild.core.diff.composed import composed_stack
from reprobuild.core.diff.hunks import BASE, Blame, Hunk, blame, hunks
from reprobuild.core.diff.side import ComponentSide
from reprobuild.core.diff.sources import Base
from reprobuild.core.diff.trees import compare_trees
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.integration.backend import Change, PatchReader, Repository
from reprobuild.core.integration.model import Integration
from reprobuild.core.integration.strategies import integrate
from reprobuild.core.tree import File
from reprobuild.engine.diff_loaded import Loaded, content_at_hand, tree_reader
from reprobuild.errors import ReprobuildError

MAX_FILES = 3000
"""Changed files of one component whose hunks are looked at."""

MAX_BLOB = 8 * 2**20
_GITLINK = 0o160000

Opener = Callable[[ComponentSide, ComponentSide], AbstractContextManager[Repository]]
"""Opens one repository that holds the commits of both sides, without asking any network; raises
E-OFFLINE, E-GIT-MISSING-OBJECT where they are not at hand."""


@dataclass(slots=True)
class SourceFindings:
    """What git says of one component: the base's way, absorbed heads, files with their heads."""

    base: Base
    contained: tuple[int, ...] = ()
    files: FilesDiff = field(default_factory=FilesDiff)


def compare_source(
    old: ComponentSide,
    new: ComponentSide,
    sides: tuple[Loaded, Loaded],
    opener: Opener | None,
    read_patch: tuple[PatchReader, PatchReader],
) -> SourceFindings:
    """Everything about the sources of a component that both sides have."""
    base = Base(old.base, new.base, new.ref or old.ref)
    if old.content or new.content:
        return SourceFindings(base, files=_plain(old.content, new.content, sides))
    quiet = old.tree == new.tree and old.base == new.base
    if (quiet and old.heads == new.heads) or not (old.tree and new.tree):
        return SourceFindings(base)
    if opener is None:
        return SourceFindings(base, files=_missing(old, new, "there is no repository to look into"))
    try:
        with opener(old, new) as repository:
            return _Look(repository, old, new, read_patch).run(base)
    except ReprobuildError as error:
        if error.code not in _ABSENT:
            raise
        why = error.message
        if error.code == "E-OFFLINE":
            why = "its commits are not at hand, and a comparison asks no network"
        return SourceFindings(base, files=_missing(old, new, why))


_ABSENT = (
    "E-OFFLINE", "E-GIT-MISSING-OBJECT", "E-GIT-FETCH", "E-CONFLICT", "E-ANCESTRY", "E-GIT",
    "E-PATCH", "E-FIXTURE", "E-GIT-URL",
)  # fmt: skip
"""What makes a source that cannot be looked into, not a comparison that fails."""


def _missing(old: ComponentSide, new: ComponentSide, why: str) -> FilesDiff:
    if old.tree == new.tree:
        return FilesDiff()
    return FilesDiff(note=f"files were not compared: {why}", compared=False)


def _plain(old: str, new: str, sides: tuple[Loaded, Loaded]) -> FilesDiff:
    """A source that is a plain directory: compared in the store."""
    if old == new:
        return FilesDiff()
    if not all(content_at_hand(tree, *sides) for tree in (old, new) if tree):
        return FilesDiff(note="files were not compared: the trees are not in the store",
                         compared=False)  # fmt: skip
    read = tree_reader(*sides)
    rows: list[FileChange] = []
    for change in compare_trees(
        read, Digest.parse(old) if old else None, Digest.parse(new) if new else None
    ):
        found: tuple[Hunk, ...] | None = None
        if len(rows) < MAX_FILES:
            pair = [_blob(entry, sides) for entry in (change.old, change.new)]
            if pair[0] is not None and pair[1] is not None:
                cut = hunks(pair[0], pair[1])
                found = None if cut is None else tuple(cut)
        path = change.path.decode("utf-8", "backslashreplace")
        rows.append(FileChange(path, change.status, (), found))
    return FilesDiff(tuple(rows))


def _blob(entry: object, sides: Iterable[Loaded]) -> bytes | None:
    if entry is None:
        return b""
    if not isinstance(entry, File) or entry.size > MAX_BLOB:
        return None
    for side in sides:
        if side.store is None:
            continue
        try:
            with side.store.open_blob(entry.digest) as source:
                return source.read()
        except ReprobuildError as error:
            if error.code not in ("E-STORE-MISSING", "E-BUNDLE-INCOMPLETE"):
                raise
    return None


@dataclass(slots=True)
class _Look:
    repository: Repository
    old: ComponentSide
    new: ComponentSide
    read: tuple[PatchReader, PatchReader]

    def run(self, base: Base) -> SourceFindings:
        return SourceFindings(self._base(base), self._contained(), self._files())

    def _base(self, base: Base) -> Base:
        if base.old == base.new or not base.old or not base.new:
            return base
        old, new = GitOid.parse(base.old), GitOid.parse(base.new)
        try:
            between = self.repository.graph(old, [new]).parents
            back = self.repository.is_ancestor(new, old)
        except ReprobuildError as error:
            if error.code not in _ABSENT:
                raise
            return base  # history that was cut off: the trees can be compared all the same
        subjects = []
        for commit in list(between)[:20]:
            text = self.repository.commit(commit).message.split(b"\n", 1)[0]
            subjects.append(f"{commit.hex[:10]} {text.decode('utf-8', 'replace')[:100]}")
        return Base(base.old, base.new, base.ref, len(between), back, tuple(subjects))

    def _contained(self) -> tuple[int, ...]:
        """Dropped heads that the new base holds."""
        listed = {h.number for h in self.new.heads}
        found = []
        for head in self.old.heads:
            if head.number in listed or not self.new.base:
                continue
            oid = GitOid.parse(head.head)
            if self.repository.has_commit(oid) and self.repository.is_ancestor(
                oid, GitOid.parse(self.new.base)
            ):
                found.append(head.number)
        return tuple(found)

    def _files(self) -> FilesDiff:
        if self.old.tree == self.new.tree:
            return FilesDiff(attributed=True)
        done = [self._integrated(c, r) for c, r in zip((self.old, self.new), self.read,
                                                       strict=True)]  # fmt: skip
        trees = GitOid.parse(self.old.tree), GitOid.parse(self.new.tree)
        stacks = [
            self._stack(side, spec) for side, spec in zip(done, (self.old, self.new), strict=True)
        ]
        known = stacks[0] is not None and stacks[1] is not None
        rows: list[FileChange] = []
        interesting = self._interesting()
        for change in self.repository.changes(*trees):
            rows.append(self._file(change, stacks, interesting, whole=len(rows) < MAX_FILES))
        note = "" if known else "which head a hunk comes from could not be told"
        return FilesDiff(tuple(rows), note, attributed=known)

    def _integrated(self, side: ComponentSide, read: PatchReader) -> Integration | None:
        """The integration done again, for the tree after each head; None where it cannot be."""
        if side.spec is None:
            return None
        try:
            done = integrate(self.repository, side.spec, read, digest_patch=False)
        except ReprobuildError:
            return None
        return done if done.tree.hex == side.tree else None

    def _stack(
        self, done: Integration | None, side: ComponentSide
    ) -> list[tuple[int, GitOid]] | None:
        """(number, tree) after the base and each head; a source patch counts for nobody."""
        if done is None or done.base_tree is None or side.spec is None:
            return None
        stack: list[tuple[int, GitOid]] | None
        if side.spec.composition is not None:
            stack = composed_stack(self.repository, side.spec)
            if stack is None:
                return None
        elif len(done.tips) != len(side.spec.heads):
            return None
        else:
            numbers = [head.number for head in side.spec.heads]
            stack = [(BASE, done.base_tree), *zip(numbers, done.tips, strict=True)]
        return stack if stack[-1][1] == done.tree else [*stack, (BASE, done.tree)]

    def _interesting(self) -> set[int]:
        before = {h.number: h.head for h in self.old.heads}
        after = {h.number: h.head for h in self.new.heads}
        return {n for n in {*before, *after} if before.get(n) != after.get(n)}

    def _file(
        self,
        change: Change,
        stacks: Sequence[Sequence[tuple[int, GitOid]] | None],
        interesting: set[int],
        *,
        whole: bool,
    ) -> FileChange:
        path = change.path.decode("utf-8", "backslashreplace")
        status = _status(change)
        if _GITLINK in (change.old_mode, change.new_mode):
            return FileChange(path, "submodule")
        blames = [self._blame(stack, change.path) for stack in stacks] if whole else [None, None]
        touched = self._touched(stacks, change.path)
        found: list[Hunk] | None = None
        if whole:
            found = hunks(self._read(change.old), self._read(change.new), *blames)
        if found is not None:
            found = [_telling(hunk, interesting) for hunk in found]
            heads = tuple(sorted({n for hunk in found for n in hunk.heads}))
            return FileChange(path, status, heads, tuple(found))
        heads = tuple(sorted(touched & interesting or touched))
        return FileChange(path, status, heads)

    def _read(self, oid: GitOid | None) -> bytes:
        return b"" if oid is None else self.repository.read_blob(oid)

    def _versions(
        self, stack: Sequence[tuple[int, GitOid]], path: bytes
    ) -> list[tuple[int, GitOid | None]]:
        """The file after the base and after each head that touched it."""
        found: list[tuple[int, GitOid | None]] = []
        for number, tree in stack:
            stage = self.repository.entry(tree, path)
            oid = stage.oid if stage is not None else None
            if not found or found[-1][1] != oid:
                found.append((number, oid))
        return found

    def _touched(
        self, stacks: Sequence[Sequence[tuple[int, GitOid]] | None], path: bytes
    ) -> set[int]:
        return {
            number
            for stack in stacks
            if stack is not None
            for number, _ in self._versions(stack, path)
            if number != BASE
        }

    def _blame(self, stack: Sequence[tuple[int, GitOid]] | None, path: bytes) -> Blame | None:
        if stack is None:
            return None
        return blame([(number, self._read(oid)) for number, oid in self._versions(stack, path)])


def _telling(hunk: Hunk, interesting: set[int]) -> Hunk:
    """Of several heads behind a hunk, those that changed between the sides are meant."""
    chosen = tuple(n for n in hunk.heads if n in interesting)
    if not chosen or chosen == hunk.heads:
        return hunk
    return Hunk(hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines, hunk.lines, chosen)


def _status(change: Change) -> str:
    if change.old is None:
        return "added"
    if change.new is None:
        return "removed"
    return "mode" if change.old == change.new else "changed"
