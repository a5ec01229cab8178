"""What integration needs of a git object database, as a protocol, and the values it speaks in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from reprobuild.core.digest import GitOid, Sha256


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit's parts; `author` is the raw `Name <mail> seconds zone`, `message` raw bytes."""

    tree: GitOid
    parents: tuple[GitOid, ...]
    author: bytes = b""
    message: bytes = b""


@dataclass(frozen=True, slots=True)
class Stage:
    """One side of a conflicted path."""

    mode: int
    oid: GitOid


@dataclass(frozen=True, slots=True)
class ConflictedPath:
    """A path that did not merge, with the sides that have it (ancestor, ours, theirs)."""

    path: bytes
    ancestor: Stage | None = None
    ours: Stage | None = None
    theirs: Stage | None = None


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """`tree` is the merged tree; with `conflicts` it holds conflict markers and is no answer.

    `messages` are git's own, `(kind, paths, text)`: `CONFLICT (contents)` and so on.
    """

    tree: GitOid
    conflicts: tuple[ConflictedPath, ...] = ()
    messages: tuple[tuple[str, tuple[bytes, ...], str], ...] = ()

    @property
    def clean(self) -> bool:
        """Whether it merged."""
        return not self.conflicts


@dataclass(frozen=True, slots=True)
class Change:
    """A path that differs between two trees; mode 0 and no object where a side lacks it."""

    path: bytes
    old_mode: int
    new_mode: int
    old: GitOid | None
    new: GitOid | None


@dataclass(frozen=True, slots=True)
class Graph:
    """The commits that heads have and the base has not, each with its parents."""

    base: GitOid
    parents: Mapping[GitOid, tuple[GitOid, ...]] = field(default_factory=dict)
    _own: dict[GitOid, dict[GitOid, None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def in_base(self, commit: GitOid) -> bool:
        """Whether the base contains `commit`, one of those that the graph was made of."""
        return commit not in self.parents

    def own(self, head: GitOid) -> dict[GitOid, None]:
        """The head's commits that the base has not, ancestors first, first parents first.

        Not to be changed: it is kept.
        """
        known = self._own.get(head)
        if known is None:
            known = self._own[head] = self._walk(head)
        return known

    def _walk(self, head: GitOid) -> dict[GitOid, None]:
        done: dict[GitOid, None] = {}
        stack = [(head, False)]
        while stack:
            commit, expanded = stack.pop()
            if commit in done or commit not in self.parents:
                continue
            if expanded:
                done[commit] = None
                continue
            stack.append((commit, True))
            stack.extend((p, False) for p in reversed(self.parents[commit]))
        return done

    def frontier(self, head: GitOid) -> set[GitOid]:
        """The base's commits on which the head's own commits stand (one for a plain branch)."""
        if head not in self.parents:
            return {head}
        return {p for c in self.own(head) for p in self.parents[c] if p not in self.parents}


class Repository(Protocol):
    """A git object database with a scratch area; never a checkout, never anybody's configuration.

    Everything raises E-GIT-MISSING-OBJECT for an object that is not at hand and E-GIT-OBJECT for
    one that is damaged. Attributes apply as in a checkout of the tip that is merged onto.
    """

    git_version: str

    def has_commit(self, oid: GitOid) -> bool:
        """Whether the commit is at hand."""
        ...

    def commit(self, oid: GitOid) -> Commit:
        """A commit's parts."""
        ...

    def make_commit(self, tree: GitOid, parents: Sequence[GitOid], message: str) -> GitOid:
        """Writes a commit of the composer, with its fixed identity and date."""
        ...

    def graph(self, base: GitOid, heads: Sequence[GitOid]) -> Graph:
        """What the heads have beyond the base, in one walk."""
        ...

    def is_ancestor(self, ancestor: GitOid, descendant: GitOid) -> bool:
        """Whether `descendant` contains `ancestor`."""
        ...

    def merge_base(self, one: GitOid, other: GitOid) -> GitOid | None:
        """The best common ancestor, where there is exactly one; None else."""
        ...

    def merge(self, ours: GitOid, theirs: GitOid, ancestor: GitOid | None = None) -> MergeOutcome:
        """Merges commit `theirs` into commit `ours`.

        `ancestor` is their one merge base, where the caller knows it: it spares work and cannot
        change the answer.
        """
        ...

    def merge_trees(self, ancestor: GitOid | None, ours: GitOid, theirs: GitOid) -> MergeOutcome:
        """Three-way merge of trees (None: the empty tree): what a cherry-pick does."""
        ...

    def foresee(self, start: GitOid, coming: Iterable[tuple[GitOid, GitOid]]) -> None:
        """Merges are to come: of changes, each from a tree to a tree, in order on top of `start`.

        It may work ahead, and cannot change an answer; what is missing it leaves to the merges.
        """
        ...

    def changes(self, old: GitOid, new: GitOid) -> Iterator[Change]:
        """The paths that differ between two trees, sorted by path; no renames."""
        ...

    def entry(self, tree: GitOid, path: bytes) -> Stage | None:
        """What a tree has at a path."""
        ...

    def read_blob(self, oid: GitOid) -> bytes:
        """A blob's whole content."""
        ...

    def edit(self, tree: GitOid, edits: Mapping[bytes, tuple[int, bytes] | None]) -> GitOid:
        """The tree with paths set to (mode, content) or removed."""
        ...

    def apply_patch(self, tree: GitOid, patch: bytes) -> GitOid:
        """The tree after `git apply`; raises E-PATCH, saying why, when it does not."""
        ...

    def patch(self, old: GitOid, new: GitOid, sink: BinaryIO | None = None) -> Sha256:
        """The digest of the published patch form; the bytes go to `sink` where one is given."""
        ...

    def check_whitespace(self, old: GitOid, new: GitOid, patch: bytes | None = None) -> str:
        """What `git diff --check` complains about; empty when nothing.

        `patch`, where it is known already, is what `patch` gave for the two.
        """
        ...

    def blame(self, commit: GitOid, path: bytes) -> list[GitOid]:
        """For each line of a file, the first-parent ancestor of `commit` that brought it."""
        ...

    def first_parents(self, since: GitOid, until: GitOid, paths: Sequence[bytes]) -> list[GitOid]:
        """The first-parent commits after `since` up to `until` that touch `paths`, oldest first."""
        ...

    def patch_ids(self, commits: Sequence[GitOid]) -> Mapping[GitOid, str]:
        """git-patch-id(1) of commits that are no merges. They lie; they only explain."""
        ...

    def range_diff(self, base: GitOid, old: GitOid, new: GitOid) -> str:
        """git-range-diff(1) between what two commits have beyond `base`."""
        ...


PatchReader = Callable[[str], bytes]
"""Gives the content of a source patch or a recorded resolution by its relative path."""


def patch_lines(changes: Iterable[Change]) -> Iterator[bytes]:
    """The setting-independent patch form, to be hashed: for each change, in order of path,

    `<old mode> <new mode> <old blob> <new blob> NUL <path> NUL`, modes in six octal digits and an
    absent side written as mode 000000 and one `0`.
    """
    for change in changes:
        old = change.old.hex if change.old is not None else "0"
        new = change.new.hex if change.new is not None else "0"
        head = f"{change.old_mode:06o} {change.new_mode:06o} {old} {new}"
        yield head.encode() + b"\0" + change.path + b"\0"
