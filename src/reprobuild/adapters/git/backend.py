"""The integration's `Repository` over git: merges without a checkout, in a scratch directory."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import IO, BinaryIO

from reprobuild.adapters.git import plumbing, trees
from reprobuild.adapters.git.contents import ContentMerges
from reprobuild.adapters.git.difftext import patch_text
from reprobuild.adapters.git.foresight import foreseen
from reprobuild.adapters.git.mergetree import UNPACKED, parse_merge
from reprobuild.adapters.git.objects import GITLINK
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.adapters.git.threeway import Met, merged_tree
from reprobuild.adapters.git.treewrite import Side
from reprobuild.core.digest import GitOid, Sha256
from reprobuild.core.integration.backend import (
    Change,
    Commit,
    ConflictedPath,
    Graph,
    MergeOutcome,
    Stage,
)
from reprobuild.core.integration.whitespace import may_fail_check
from reprobuild.errors import ReprobuildError

_HEX = re.compile(rb"[0-9a-f]+")
_FEW = 1000
"""Changed paths that are kept; beyond that git itself is quicker than what goes through them."""
_KEPT = 20_000
"""Changes kept in all, some ten megabytes."""

Supply = Callable[[Sequence[GitOid]], None]


class GitRepository:
    """A `Repository` (see core.integration.backend) over one scratch directory."""

    def __init__(self, scratch: Scratch, supply: Supply | None = None) -> None:
        """`supply`, where there is a remote to ask, brings blobs into one of the sources."""
        self.scratch, self._supply = scratch, supply
        self.git_version = plumbing.version()
        self._shown: tuple[GitOid, dict[bytes, GitOid]] | None = None
        self._commits: dict[GitOid, Commit] = {}
        self._merges: dict[tuple[GitOid, GitOid], MergeOutcome] = {}
        self._few: dict[tuple[GitOid, GitOid], tuple[Change, ...]] = {}
        self._kept = 0
        self._contents = ContentMerges(scratch)
        self._supplied: set[GitOid] = set()

    def run(
        self, *argv: str, stdin: bytes = b"", ok: Sequence[int] = (0,), index: bool = False
    ) -> tuple[int, bytes, bytes]:
        """Runs git in the scratch directory, as `plumbing.run`; `index` for a private index."""
        scratch = self.scratch
        env = scratch.env
        if index:
            env = {**env, "GIT_INDEX_FILE": str(scratch.git_dir / "scratch-index")}
        return plumbing.run(argv, env=env, cwd=scratch.work_tree, stdin=stdin, ok=ok)

    # -- reading ---------------------------------------------------------------------------

    def has_commit(self, oid: GitOid) -> bool:
        """Whether the commit is at hand; raises E-GIT-OBJECT where the name is something else's."""
        try:
            self.commit(oid)
        except ReprobuildError as error:
            if error.code != "E-GIT-MISSING-OBJECT":
                raise
            return False
        return True

    def commit(self, oid: GitOid) -> Commit:
        """A commit's parts."""
        known = self._commits.get(oid)
        if known is None:
            known = self._commits[oid] = parse_commit(self.scratch.reader.read(oid, "commit"))
        return known

    def read_blob(self, oid: GitOid) -> bytes:
        """A blob's whole content."""
        return self.scratch.reader.read(oid, "blob")

    def entry(self, tree: GitOid, path: bytes) -> Stage | None:
        """What a tree has at a path."""
        found = trees.lookup(self.scratch.reader, tree, path)
        return None if found is None else Stage(found.mode, found.oid)

    def changes(self, old: GitOid, new: GitOid) -> Iterator[Change]:
        """The paths that differ between two trees, sorted by path."""
        known = self._few.get((old, new))
        return trees.changes(self.scratch.reader, old, new) if known is None else iter(known)

    def _few_changes(self, old: GitOid, new: GitOid) -> tuple[Change, ...] | None:
        """The same at once, and kept; None where they are many."""
        known = self._few.get((old, new))
        if known is None:
            known = tuple(islice(self.changes(old, new), _FEW + 1))
            if len(known) > _FEW:
                return None
            self._kept += len(known) + 1
            if self._kept > _KEPT:
                self._few.clear()
                self._kept = len(known) + 1
            self._few[old, new] = known
        return known

    def listing(self, tree: GitOid, ending: bytes = b"") -> Iterator[tuple[int, GitOid, bytes]]:
        """Every file below a tree whose path ends so: mode, object, path. Streamed."""
        argv = ("ls-tree", "-r", "-z", "--full-tree", tree.hex)
        scratch = self.scratch
        with plumbing.stream(argv, env=scratch.env, cwd=scratch.work_tree) as out:
            for row in split_nul(out):
                if not row.endswith(ending):
                    continue
                head, _, path = row.partition(b"\t")
                mode, _, oid = head.split(b" ")
                yield int(mode, 8), plumbing.oid(oid), path

    # -- history ---------------------------------------------------------------------------

    def graph(self, base: GitOid, heads: Sequence[GitOid]) -> Graph:
        """What the heads have beyond the base, in one walk."""
        self.scratch.reader.start()
        wanted = "".join(f"{h}\n" for h in heads) + f"^{base}\n"
        _, out, _ = self.run("rev-list", "--parents", "--stdin", stdin=wanted.encode())
        parents = {}
        for line in out.splitlines():
            commit, *others = (plumbing.oid(o) for o in line.split())
            parents[commit] = tuple(others)
        return Graph(base, parents)

    def is_ancestor(self, ancestor: GitOid, descendant: GitOid) -> bool:
        """Whether `descendant` contains `ancestor`."""
        status, _, _ = self.run(
            "merge-base", "--is-ancestor", ancestor.hex, descendant.hex, ok=(0, 1)
        )
        return status == 0

    def merge_base(self, one: GitOid, other: GitOid) -> GitOid | None:
        """The best common ancestor, where there is exactly one."""
        _, out, _ = self.run("merge-base", "--all", one.hex, other.hex, ok=(0, 1))
        lines = out.split()
        return plumbing.oid(lines[0]) if len(lines) == 1 else None

    # -- merging ---------------------------------------------------------------------------

    def make_commit(self, tree: GitOid, parents: Sequence[GitOid], message: str) -> GitOid:
        """Writes a commit of the composer."""
        oid = self.scratch.write_commit(tree, parents, message)
        self._commits[oid] = Commit(tree, tuple(parents))
        return oid

    def _show_attributes(
        self, tree: GitOid, paths: Iterable[bytes] | None = None
    ) -> dict[bytes, GitOid]:
        """Makes the work tree hold a tree's attribute files, and says which those are.

        With `paths`, those that could have a say in them: the ones in directories above.
        """
        reader = self.scratch.reader
        if paths is not None:
            found = trees.attributes_above(reader, tree, paths)
        elif self._shown is None:
            found = trees.all_attributes(self.listing(tree, trees.ATTRIBUTES))
        else:
            found = trees.moved_attributes(reader, self._shown[1], self._shown[0], tree)
        if paths is None:
            self._shown = (tree, found)
        self._need(found.values())
        self.scratch.show_attributes(found)
        return found

    def merge(self, ours: GitOid, theirs: GitOid, ancestor: GitOid | None = None) -> MergeOutcome:
        """Merges commit `theirs` into commit `ours`; the same merge is done once.

        `ancestor` is their one merge base, where the caller knows it.
        """
        known = self._merges.get((ours, theirs))
        if known is None:
            if ancestor is not None:  # so git need not look for it
                start, tip, head = (self.commit(c).tree for c in (ancestor, ours, theirs))
                known = self.merge_trees(start, tip, head)
            else:
                known = self._merge(ours, theirs)
            self._merges[ours, theirs] = known
        return known

    def _merge(self, ours: GitOid, theirs: GitOid) -> MergeOutcome:
        self._show_attributes(self.commit(ours).tree)
        if self._supply is not None:
            self._need(self._merged_blobs(ours, theirs))
        status, out, stderr = self.run(
            *UNPACKED,
            "merge-tree",
            "--write-tree",
            "-z",
            "--messages",
            ours.hex,
            theirs.hex,
            ok=(0, 1, 128),
        )
        if status == 128:
            if b"unrelated histories" in stderr:
                text = f"refusing to merge unrelated histories: {theirs}"
                return MergeOutcome(
                    self.commit(ours).tree,
                    (ConflictedPath(b""),),
                    (("CONFLICT (unrelated histories)", (), text),),
                )
            raise plumbing.failure(("merge-tree",), status, stderr)
        return parse_merge(out)

    def merge_trees(self, ancestor: GitOid | None, ours: GitOid, theirs: GitOid) -> MergeOutcome:
        """Three-way merge of trees. git 2.39 takes commits only, so it is given synthetic ones."""
        start = ancestor or self.scratch.empty_tree
        tree = self.put_together(start, ours, theirs)
        if tree is not None:
            return MergeOutcome(tree)
        root = self.make_commit(start, (), "ancestor")
        left = self.make_commit(ours, (root,), "ours")
        right = self.make_commit(theirs, (root,), "theirs")
        return self.merge(left, right)

    def put_together(self, ancestor: GitOid, ours: GitOid, theirs: GitOid) -> GitOid | None:
        """The same where git need not look at whole trees; None where it has to."""
        reader, write = self.scratch.reader, self.scratch.write_object
        contents = self._merge_contents
        return merged_tree(reader, write, self._few_changes, contents, ancestor, ours, theirs)

    def _merge_contents(self, ours: GitOid, met: Sequence[Met]) -> Sequence[Side | None]:
        attributes = self._show_attributes(ours, [m.path for m in met])
        self._need(oid for m in met for _, oid in (m.old, m.ours, m.theirs))
        return self._contents.merge(met, attributes)

    def foresee(self, start: GitOid, coming: Iterable[tuple[GitOid, GitOid]]) -> None:
        """Merges ahead what the changes (from tree, to tree) will meet on top of `start`."""
        try:
            chains = foreseen(self.scratch.reader, self._few_changes, start, coming)
            if chains:
                attributes = self._show_attributes(start, [c.path for c in chains])
                self._need(oid for c in chains for _, oid in (c.now, *chain(*c.steps)))
                self._contents.work_off(chains, attributes)
        except ReprobuildError:
            return  # the merge that needs what could not be had says so, in its turn

    # -- patches ---------------------------------------------------------------------------

    def edit(self, tree: GitOid, edits: Mapping[bytes, tuple[int, bytes] | None]) -> GitOid:
        """The tree with paths set or removed."""
        scratch = self.scratch
        self.run("read-tree", tree.hex, index=True)
        rows = []
        for path, value in edits.items():
            if value is None:
                rows.append(b"0 " + b"0" * len(tree.hex) + b"\t" + path + b"\0")
            else:
                blob = scratch.write_object("blob", value[1])
                rows.append(f"{value[0]:06o} {blob}".encode() + b"\t" + path + b"\0")
        self.run("update-index", "-z", "--index-info", stdin=b"".join(rows), index=True)
        return plumbing.oid(self.run("write-tree", index=True)[1])

    def apply_patch(self, tree: GitOid, patch: bytes) -> GitOid:
        """The tree after `git apply`; raises E-PATCH."""
        self._show_attributes(tree)
        self.run("read-tree", tree.hex, index=True)
        status, _, stderr = self.run(
            "apply", "--cached", "-", stdin=patch, ok=(0, 1, 128), index=True
        )
        if status:
            raise ReprobuildError("E-PATCH", stderr.decode("utf-8", "replace").strip()[-500:])
        return plumbing.oid(self.run("write-tree", index=True)[1])

    def patch(self, old: GitOid, new: GitOid, sink: BinaryIO | None = None) -> Sha256:
        """The digest of `git diff --binary --full-index` between two trees, with git's defaults."""
        few = self._few_changes(old, new)
        self._show_attributes(new, None if few is None else [c.path for c in few])
        if self._supply is not None:
            self._need(_blobs(self.changes(old, new)))
        hasher = hashlib.sha256()
        for chunk in patch_text(self.scratch, old, new, few):
            hasher.update(chunk)
            if sink is not None:
                sink.write(chunk)
        return Sha256(hasher.hexdigest())

    def check_whitespace(self, old: GitOid, new: GitOid, patch: bytes | None = None) -> str:
        """What `git diff --check` complains about; empty when nothing.

        With a `patch` to look at, git is only asked where it could complain of something;
        attributes may change its rules, so where there are any it is asked in any case.
        """
        few = self._few_changes(old, new)
        plain = not self._show_attributes(new, None if few is None else [c.path for c in few])
        if plain and patch is not None and not may_fail_check(patch):
            return ""
        status, out, _ = self.run("diff", "--check", old.hex, new.hex, ok=(0, 1, 2, 3))
        return out.decode("utf-8", "replace").strip() if status else ""

    # -- blobs that a partial clone lacks --------------------------------------------------

    def _need(self, blobs: Iterable[GitOid]) -> None:
        if self._supply is None:
            return
        wanted = {b: None for b in blobs if b not in self._supplied}
        absent = self.absent(wanted) if wanted else []
        if absent:
            self._supply(absent)
        if len(wanted) <= _FEW:
            self._supplied |= wanted.keys()

    def absent(self, oids: Iterable[GitOid]) -> list[GitOid]:
        """Which objects are not at hand."""
        names = b"".join(o.hex.encode() + b"\n" for o in oids)
        _, out, _ = self.run("cat-file", "--batch-check", "--buffer", stdin=names)
        rows = out.splitlines()
        return [plumbing.oid(r.split()[0]) for r in rows if r.endswith(b" missing")]

    def _merged_blobs(self, ours: GitOid, theirs: GitOid) -> Iterator[GitOid]:
        """What a merge may read: files that both sides changed, and those that could be renames."""
        parted = self.merge_base(ours, theirs)
        if parted is None:
            return
        start = self.commit(parted).tree
        mine = {c.path: c for c in self.changes(start, self.commit(ours).tree)}
        for change in self.changes(start, self.commit(theirs).tree):
            yield from _blobs([change])
            other = mine.pop(change.path, None)
            if other is not None:
                yield from _blobs([other])
        yield from _blobs(c for c in mine.values() if c.old is None or c.new is None)

    def supply_tree(self, tree: GitOid) -> None:
        """Brings every blob of a tree that is not at hand, all at once."""
        if self._supply is not None:
            self._need(oid for mode, oid, _ in self.listing(tree) if mode != GITLINK)

    # -- explaining ------------------------------------------------------------------------

    def blame(self, commit: GitOid, path: bytes) -> list[GitOid]:
        """For each line of a file, the first-parent ancestor of `commit` that brought it."""
        _, out, _ = self.run(
            "blame", "--first-parent", "--porcelain", commit.hex, "--", os.fsdecode(path)
        )
        lines: list[GitOid] = []
        current: GitOid | None = None
        for row in out.split(b"\n"):
            if row.startswith(b"\t"):
                assert current is not None
                lines.append(current)
                continue
            first = row.split(b" ", 1)[0]
            if len(first) in (40, 64) and _HEX.fullmatch(first):
                current = plumbing.oid(first)
        return lines

    def first_parents(self, since: GitOid, until: GitOid, paths: Sequence[bytes]) -> list[GitOid]:
        """The first-parent commits after `since` up to `until` that touch `paths`, oldest first."""
        wanted = [":(literal)" + os.fsdecode(p) for p in paths]
        _, out, _ = self.run(
            "rev-list", "--first-parent", "--reverse", f"{since}..{until}", "--", *wanted
        )
        return [plumbing.oid(line) for line in out.split()]

    def patch_ids(self, commits: Sequence[GitOid]) -> Mapping[GitOid, str]:
        """git-patch-id(1) of commits that are no merges."""
        names = "".join(f"{c}\n" for c in commits).encode()
        _, diff, _ = self.run("diff-tree", "--stdin", "-p", "--root", stdin=names)
        _, out, _ = self.run("patch-id", "--stable", stdin=diff)
        rows = (line.split() for line in out.splitlines())
        return {plumbing.oid(commit): patch.decode() for patch, commit in rows}

    def range_diff(self, base: GitOid, old: GitOid, new: GitOid) -> str:
        """git-range-diff(1) between what two commits have beyond `base`."""
        _, out, _ = self.run(
            "range-diff", "--no-color", "--creation-factor=80", f"{base}..{old}", f"{base}..{new}"
        )
        return out.decode("utf-8", "replace").rstrip()


def _blobs(changes: Iterable[Change]) -> Iterator[GitOid]:
    for change in changes:
        sides = ((change.old_mode, change.old), (change.new_mode, change.new))
        yield from (oid for mode, oid in sides if oid is not None and mode != GITLINK)


def split_nul(out: IO[bytes]) -> Iterator[bytes]:
    """NUL-terminated rows of a stream."""
    rest = b""
    while chunk := out.read(1 << 16):
        rows = (rest + chunk).split(b"\0")
        rest = rows.pop()
        yield from rows


def parse_commit(data: bytes) -> Commit:
    """A commit object's parts; raises E-GIT-OBJECT for a malformed one."""
    head, _, message = data.partition(b"\n\n")
    tree: GitOid | None = None
    parents: list[GitOid] = []
    author = b""
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        if key == b"tree":
            tree = plumbing.oid(value)
        elif key == b"parent":
            parents.append(plumbing.oid(value))
        elif key == b"author":
            author = value
    if tree is None:
        raise ReprobuildError("E-GIT-OBJECT", "a commit object names no tree")
    return Commit(tree, tuple(parents), author, message)
