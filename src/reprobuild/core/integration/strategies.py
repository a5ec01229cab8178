"""Applying heads to a base: merge, cherry_pick, pinned_branch, then source patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest, GitOid, tagged
from reprobuild.core.integration.ahead import coming
from reprobuild.core.integration.backend import (
    Graph,
    MergeOutcome,
    PatchReader,
    Repository,
    patch_lines,
)
from reprobuild.core.integration.model import (
    Disposition,
    HeadResult,
    HeadSpec,
    Integration,
    IntegrationSpec,
    Resolution,
    SourcePatch,
    Strategy,
)
from reprobuild.core.integration.patchfile import source_patch
from reprobuild.errors import ReprobuildError

PATCH_DOMAIN = "reprobuild/patch/v0"
MESSAGE = "release composition: PR #{}"


def no_patches(path: str) -> bytes:
    """A reader for specs that carry no files."""
    raise ReprobuildError("E-PATCH", f"{path} is needed, and there is nowhere to read it from")


@dataclass(slots=True)
class Step:
    """One head on the way: the tip it met and what came of it."""

    head: HeadSpec
    before: GitOid
    outcome: MergeOutcome | None = None
    commit: GitOid | None = None
    result: HeadResult | None = None

    @property
    def failed(self) -> bool:
        """Whether the head did not go on."""
        return self.result is None


@dataclass(slots=True)
class Stack:
    """Heads applied so far; `tip` is a commit whose tree is the integration tree so far."""

    spec: IntegrationSpec
    repository: Repository
    read: PatchReader
    tip: GitOid
    tree: GitOid
    base_tree: GitOid
    graph: Graph
    remark: bool = True
    steps: list[Step] = field(default_factory=list)
    held: dict[GitOid, int] = field(default_factory=dict)
    """Commits that merged heads brought, and by which head each came first."""

    @classmethod
    def start(
        cls, repository: Repository, spec: IntegrationSpec, read: PatchReader = no_patches
    ) -> Stack:
        """A stack with no head on it yet; raises E-GIT-MISSING-OBJECT naming absent commits."""
        commits = [c for c in spec.commits_needed() if c != spec.base]
        try:
            graph = repository.graph(spec.base, commits) if commits else Graph(spec.base)
        finally:  # git's own complaint would say neither whose a missing commit is nor that all are
            check_present(repository, spec)
        base_tree = repository.commit(spec.base).tree
        return cls(spec, repository, read, spec.base, base_tree, base_tree, graph)

    def fresh(self) -> Stack:
        """The bare base again, for a trial: nothing is remarked on, only trees matter."""
        base, tree = self.spec.base, self.base_tree
        return Stack(
            self.spec, self.repository, self.read, base, tree, tree, self.graph, remark=False
        )

    def push(self, head: HeadSpec) -> Step:
        """Applies one head; the step says how it went, and the stack moves only when it went."""
        step = Step(head, self.tip)
        if self.spec.strategy is Strategy.CHERRY_PICK:
            self._pick(step)
        else:
            self._merge(step)
        self.steps.append(step)
        return step

    def touching(self, paths: Sequence[bytes]) -> list[int]:
        """The numbers of the heads on the stack that changed any of the paths."""
        found = []
        for index, step in enumerate(self.steps):
            if step.result is None:
                continue
            after = self.steps[index + 1].before if index + 1 < len(self.steps) else self.tip
            old, new = self.repository.commit(step.before).tree, self.repository.commit(after).tree
            look = self.repository.entry
            if old != new and any(look(old, p) != look(new, p) for p in paths if p):
                found.append(step.head.number)
        return found

    def _settle(
        self, step: Step, outcome: MergeOutcome
    ) -> tuple[GitOid, tuple[Resolution, ...]] | None:
        from reprobuild.core.integration.resolve import settle

        step.outcome = outcome
        if outcome.clean:
            return outcome.tree, ()
        return settle(self.repository, outcome, self.spec.resolutions, self.read)

    def _merge(self, step: Step) -> None:
        head = step.head
        if self.graph.in_base(head.head):
            step.result = HeadResult(head.number, head.head, Disposition.ALREADY_IN_BASE)
            return
        holder = self.held.get(head.head, 0)
        squashed = self.squashed(head.head)
        resolved: tuple[Resolution, ...] = ()
        if not holder:
            settled = self._settle(
                step, self.repository.merge(self.tip, head.head, self._parted(head.head))
            )
            if settled is None:
                return
            self.tree, resolved = settled
            message = MESSAGE.format(head.number)
            self.tip = self.repository.make_commit(self.tree, (self.tip, head.head), message)
            for commit in self.graph.own(head.head):
                self.held.setdefault(commit, head.number)
        step.result = HeadResult(
            head.number, head.head, Disposition.MERGED, squashed, holder, resolved=resolved
        )

    def _pick(self, step: Step) -> None:
        head = step.head
        declared = head.commits
        commits = declared or tuple(self.graph.own(head.head))
        if all(self.graph.in_base(c) for c in commits):
            step.result = HeadResult(
                head.number, head.head, Disposition.ALREADY_IN_BASE, commits=commits
            )
            return
        tree, tip = self.tree, self.tip
        resolved: list[Resolution] = []
        for commit in commits:
            step.commit = commit
            parts = self.repository.commit(commit)
            if len(parts.parents) > 1:
                raise self._cannot_pick(head, commit, commits)
            parent = self.repository.commit(parts.parents[0]).tree if parts.parents else None
            settled = self._settle(step, self.repository.merge_trees(parent, tree, parts.tree))
            if settled is None:
                return
            if settled[0] == tree and declared:
                raise ReprobuildError(
                    "E-CONFLICT",
                    f"PR #{head.number} commit {commit} conflicts with the clean stack: nothing "
                    "is left of it, its change is there already",
                    hint="drop the commit from the list",
                    pull_request=head.number,
                )
            tree = settled[0]
            resolved += settled[1]
            tip = self.repository.make_commit(tree, (tip,), MESSAGE.format(head.number))
        squashed = self.squashed(head.head)
        self.tree, self.tip = tree, tip
        step.result = HeadResult(
            head.number,
            head.head,
            Disposition.CHERRY_PICKED,
            squashed,
            commits=commits,
            resolved=tuple(resolved),
        )

    def _cannot_pick(
        self, head: HeadSpec, merge: GitOid, commits: Sequence[GitOid]
    ) -> ReprobuildError:
        """The refusal of a merge among `commits`, as `git cherry-pick` without -m refuses it.

        What a merge resolved stands in no other commit, so leaving it out is for a person to
        decide; the facts have the list that is left then.
        """
        return ReprobuildError(
            "E-INTEGRATION",
            f"PR #{head.number} commit {merge} conflicts with the clean stack: it is a merge, "
            "which cannot be picked",
            hint="where the merge resolved nothing, write the head's `commits` without it (the "
            "list in `without_merges`); otherwise use the merge strategy",
            pull_request=head.number,
            commit=merge.hex,
            without_merges=[c.hex for c in commits if len(self.repository.commit(c).parents) < 2],
        )

    def squashed(self, head: GitOid) -> bool:
        """Whether a head that changes something merges into the bare base with no change.

        Most heads are told apart without a merge: one that changes a path which the base left as
        it was since they parted cannot be absorbed.
        """
        if not self.remark:
            return False
        parted = self._left_base(head) or self.repository.merge_base(self.spec.base, head)
        head_tree = self.repository.commit(head).tree
        if parted is not None:
            verdict = self._absorbed_plainly(self.repository.commit(parted).tree, head_tree)
            if verdict is not None:
                return verdict
        outcome = self.repository.merge(self.spec.base, head, parted)
        return outcome.clean and outcome.tree == self.base_tree

    def _left_base(self, head: GitOid) -> GitOid | None:
        """Where the head left the base, when it did so once."""
        frontier = self.graph.frontier(head)
        return frontier.pop() if len(frontier) == 1 else None

    def _parted(self, head: GitOid) -> GitOid | None:
        """The one merge base of the tip and a head that shares no commit with earlier heads."""
        if not self.held.keys().isdisjoint(self.graph.own(head)):
            return None
        return self._left_base(head)

    def _absorbed_plainly(self, old: GitOid, head_tree: GitOid) -> bool | None:
        """What can be told path by path: the base has all that the head changed, or left some of
        it as it was; None when only a merge can tell."""
        if old == head_tree:
            return False
        if old == self.base_tree:
            return False
        same = True
        for change in self.repository.changes(old, head_tree):
            here = self.repository.entry(self.base_tree, change.path)
            side = (here.mode, here.oid) if here is not None else (0, None)
            if side == (change.old_mode, change.old):
                return False
            same = same and side == (change.new_mode, change.new)
        return True if same else None


def check_present(repository: Repository, spec: IntegrationSpec) -> None:
    """Raises E-GIT-MISSING-OBJECT that names every commit which is not at hand, and its head."""
    owners = {h.head: h.number for h in spec.heads}
    for head in spec.heads:
        owners.update(dict.fromkeys(head.commits, head.number))
    absent = [c for c in spec.commits_needed() if not repository.has_commit(c)]
    if absent:
        names = [f"{c} (PR #{owners[c]})" if c in owners else f"{c} (base)" for c in absent]
        raise ReprobuildError(
            "E-GIT-MISSING-OBJECT",
            f"commits are not in any repository at hand: {', '.join(names)}",
            objects=[c.hex for c in absent],
            pull_requests=sorted({owners[c] for c in absent if c in owners}),
        )


def check_commits_belong(repository: Repository, graph: Graph, head: HeadSpec) -> None:
    """Raises E-ANCESTRY unless the head contains each commit declared for it."""
    own = graph.own(head.head)
    for commit in head.commits:
        if commit not in own and not repository.is_ancestor(commit, head.head):
            raise ReprobuildError(
                "E-ANCESTRY",
                f"PR #{head.number} does not contain declared commit {commit}",
                pull_request=head.number,
                commit=commit.hex,
            )


def conflict_error(step: Step, stack: Stack) -> ReprobuildError:
    """The error for a head that did not go on; `collides_with` are the earlier heads that touched
    the paths in which it conflicts."""
    outcome = step.outcome
    assert outcome is not None
    number = step.head.number
    texts = [text.strip() for kind, _, text in outcome.messages if kind.startswith("CONFLICT")]
    detail = "; ".join(texts[:20]) or "no common history"
    commit = f" commit {step.commit}" if step.commit is not None else ""
    return ReprobuildError(
        "E-CONFLICT",
        f"PR #{number}{commit} conflicts with the clean stack: {detail}",
        pull_request=number,
        head=step.head.head.hex,
        paths=sorted({c.path.decode("utf-8", "replace") for c in outcome.conflicts}),
        collides_with=stack.touching([c.path for c in outcome.conflicts]),
    )


def integrate(
    repository: Repository,
    spec: IntegrationSpec,
    read: PatchReader = no_patches,
    *,
    digest_patch: bool = True,
) -> Integration:
    """Applies the spec's heads and patches; the same spec always gives the same answer.

    Raises E-CONFLICT naming the pull request, E-ANCESTRY, E-PATCH, E-GIT-MISSING-OBJECT.
    `digest_patch=False` spares the published patch digest where only the tree is wanted.
    """
    stack = Stack.start(repository, spec, read)
    for head in spec.heads:
        check_commits_belong(repository, stack.graph, head)
    results: Sequence[HeadResult]
    tips: list[GitOid] = []
    if spec.strategy is Strategy.PINNED_BRANCH:
        results = _pinned(stack)
    else:
        repository.foresee(stack.base_tree, coming(repository, spec, stack.graph))
        for head in spec.heads:
            step = stack.push(head)
            if step.failed:
                raise conflict_error(step, stack)
            tips.append(stack.tree)
        results = [s.result for s in stack.steps if s.result is not None]
    tree = stack.tree
    for index, patch in enumerate(spec.patches):
        tree = apply_source_patch(repository, tree, index, patch, read)
    return describe(
        repository,
        spec,
        stack.base_tree,
        tree,
        results=results,
        tips=tips,
        digest_patch=digest_patch,
    )


def describe(
    repository: Repository,
    spec: IntegrationSpec,
    base_tree: GitOid,
    tree: GitOid,
    *,
    results: Sequence[HeadResult] = (),
    tips: Sequence[GitOid] = (),
    digest_patch: bool = True,
) -> Integration:
    """The answer for a tree that was reached, with both of its patch digests."""
    from reprobuild.core.digest import Sha256

    sha256 = repository.patch(base_tree, tree) if digest_patch else Sha256("0" * 64)
    return Integration(
        tree=tree,
        patch_sha256=sha256,
        patch_digest=patch_digest(repository, base_tree, tree),
        heads=tuple(results),
        tips=tuple(tips),
        base_tree=base_tree,
        git_version=repository.git_version,
        strategy=spec.strategy,
    )


def patch_digest(repository: Repository, old: GitOid, new: GitOid) -> Digest:
    """The setting-independent patch digest between two trees."""
    return tagged(PATCH_DOMAIN, b"".join(patch_lines(repository.changes(old, new))))


def apply_source_patch(
    repository: Repository, tree: GitOid, index: int, patch: SourcePatch, read: PatchReader
) -> GitOid:
    """The tree after one digest-pinned patch; raises E-PATCH."""
    content = source_patch(index, patch, read)
    try:
        return repository.apply_patch(tree, content)
    except ReprobuildError as error:
        if error.code != "E-PATCH":
            raise
        raise ReprobuildError(
            "E-PATCH",
            f"source patch #{index + 1} does not apply to the composed tree: {error.message}",
            file=patch.path,
        ) from error


def _pinned(stack: Stack) -> list[HeadResult]:
    spec, repository = stack.spec, stack.repository
    composition = spec.composition
    assert composition is not None
    if composition != spec.base and not _descends(stack, composition):
        raise ReprobuildError(
            "E-ANCESTRY",
            f"composition commit {composition} does not descend from base {spec.base}",
            commit=composition.hex,
            base=spec.base.hex,
        )
    if spec.merge_stack:
        from reprobuild.core.integration.chain import check_merge_stack

        check_merge_stack(repository, spec)
    stack.tip, stack.tree = composition, repository.commit(composition).tree
    return [
        HeadResult(h.number, h.head, Disposition.RECORDED_IN_COMPOSITION, commits=h.commits)
        for h in spec.heads
    ]


def _descends(stack: Stack, composition: GitOid) -> bool:
    return stack.repository.is_ancestor(stack.spec.base, composition)
