"""Composing a publishers' manifest, and replaying a publishers' lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self

from reprobuild.core.digest import GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.integration.backend import PatchReader, Repository
from reprobuild.core.integration.chain import check_merge_stack
from reprobuild.core.integration.manifest import LOCK_NAME, PATCH_NAME, Manifest, render_lock
from reprobuild.core.integration.model import Integration, IntegrationSpec, Strategy
from reprobuild.core.integration.moved import MovedHead, both_sides
from reprobuild.core.integration.strategies import integrate
from reprobuild.core.redact import redact
from reprobuild.engine.gitport import SourceRepositories
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.core.integration.upstream import UpstreamLock


class PendingFile(Protocol):
    """A file that takes its name only when it is whole; leaves nothing behind otherwise."""

    @property
    def file(self) -> BinaryIO:
        """What is written to."""
        ...

    @property
    def temporary(self) -> Path:
        """Where the content is until then."""
        ...

    def __enter__(self) -> Self:
        """Itself."""
        ...

    def __exit__(self, *_: object) -> None:
        """Removes what was not committed."""
        ...

    def commit(self) -> None:
        """Makes it durable and gives it its name."""
        ...


def compose(
    manifest: Manifest,
    sources: SourceRepositories,
    read: PatchReader,
    pending: Callable[[str], PendingFile],
) -> dict[str, object]:
    """Integrates a manifest at its branch's present commit; writes its patch and its lock.

    `pending` opens a file of the output directory by its name; nothing is written unless all went
    well. Raises E-HEAD-MOVED, E-CONFLICT, E-PATCH, E-ANCESTRY, E-WHITESPACE, E-REF-MISSING,
    E-OFFLINE, E-GIT-FETCH.
    """
    refs = sources.resolve(manifest.repository, manifest.refs())
    base = _target(manifest, refs, manifest.base_ref)
    spec = manifest.spec(base)
    origin: dict[str, Value] = {
        "kind": "git",
        "url": manifest.repository,
        "ref": manifest.base_ref,
    }
    moved = first_moved(manifest, refs)
    if moved is not None:
        # what stands before it is judged first, as the stack is built in order
        index, error = moved
        _only_judge(origin, replace(spec, heads=spec.heads[:index], patches=()), sources, read)
        raise with_range_diff(error, origin, spec, sources)
    if manifest.composition is not None:
        there = _target(manifest, refs, manifest.composition_ref)
        if there != manifest.composition:
            raise ReprobuildError(
                "E-HEAD-MOVED",
                f"composition branch moved: manifest pins {manifest.composition}, remote is "
                f"{there}; review and update the manifest",
                hint="review the branch, then pin its new commit in the manifest",
                expected=manifest.composition.hex,
                got=there.hex,
            )
    with sources.open(origin, spec) as repository:
        done = integrate(repository, spec, read, digest_patch=False)
        assert done.base_tree is not None
        with pending(PATCH_NAME) as patch:
            sha256 = repository.patch(done.base_tree, done.tree, patch.file)
            done = replace(done, patch_sha256=sha256)
            patch.file.flush()
            content = patch.temporary.read_bytes()
            _refuse_whitespace(repository, base, done, content)
            _check_replay(repository, done, content)
            lock = manifest.lock(base, done)
            with pending(LOCK_NAME) as lock_file:
                lock_file.file.write(render_lock(lock))
                patch.commit()
                lock_file.commit()
    return lock


def _only_judge(
    origin: Mapping[str, Value],
    spec: IntegrationSpec,
    sources: SourceRepositories,
    read: PatchReader,
) -> None:
    if spec.heads and spec.strategy is not Strategy.PINNED_BRANCH:
        with sources.open(origin, spec) as repository:
            integrate(repository, spec, read, digest_patch=False)


def _target(manifest: Manifest, refs: Mapping[str, GitOid], ref: str) -> GitOid:
    found = refs.get(ref)
    if found is None:
        raise ReprobuildError(
            "E-REF-MISSING",
            f"expected exactly one SHA for {redact(manifest.repository)} {ref}, got []",
            ref=ref,
        )
    return found


def first_moved(
    manifest: Manifest, refs: Mapping[str, GitOid]
) -> tuple[int, ReprobuildError] | None:
    """The first head that is not where the manifest has it, and the error that says so."""
    for index, head in enumerate(manifest.heads):
        try:
            live = _target(manifest, refs, head.full_ref)
        except ReprobuildError as error:
            return index, error
        if live != head.head:
            return index, ReprobuildError(
                "E-HEAD-MOVED",
                f"PR #{head.number} moved: manifest pins {head.head}, remote is {live}; review "
                "and update the manifest",
                hint=f"see what changed with `git range-diff {head.head}...{live}`, then pin it",
                pull_request=head.number,
                expected=head.head.hex,
                got=live.hex,
            )
    return None


def with_range_diff(
    error: ReprobuildError,
    origin: Mapping[str, Value],
    spec: IntegrationSpec,
    sources: SourceRepositories,
) -> ReprobuildError:
    """The error for a moved head, with what changed between the two where that can be had."""
    if error.code != "E-HEAD-MOVED":
        return error
    number, live = error.facts["pull_request"], GitOid.parse(str(error.facts["got"]))
    pinned = next(h.head for h in spec.heads if h.number == number)
    wanted = both_sides(spec, MovedHead(int(str(number)), pinned, live))
    assert wanted is not None
    try:
        with sources.open(origin, wanted) as repository:
            text = repository.range_diff(spec.base, pinned, live)
    except ReprobuildError:
        return error  # the pinned commit may be gone for good: the two names still say it
    error.facts["range_diff"] = text.splitlines()[:200]
    return error


def _refuse_whitespace(
    repository: Repository, base: GitOid, done: Integration, patch: bytes
) -> None:
    assert done.base_tree is not None
    complaint = repository.check_whitespace(done.base_tree, done.tree, patch)
    if complaint:
        raise ReprobuildError(
            "E-WHITESPACE", f"git diff --check {base} failed: {complaint[:2000]}", base=base.hex
        )


def _check_replay(repository: Repository, done: Integration, patch: bytes) -> None:
    """The patch must give the tree again: that is all that the publishers' build does."""
    assert done.base_tree is not None
    tree = repository.apply_patch(done.base_tree, patch) if patch else done.base_tree
    if tree != done.tree:
        raise ReprobuildError(
            "E-TREE-MISMATCH",
            f"patch verification produced tree {tree}, expected {done.tree}",
            expected=done.tree.hex,
            got=tree.hex,
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """A published lock against what integrating gives.

    `replayed` – the composed branch was not at hand; its heads were merged anew instead.
    """

    integration: Integration
    differences: tuple[str, ...]
    replayed: bool

    @property
    def matches(self) -> bool:
        """Whether the lock says the truth."""
        return not self.differences


def replay_lock(
    lock: UpstreamLock, directory: Path, sources: SourceRepositories, read: PatchReader
) -> Replay:
    """Integrates what a published lock names, out of a local repository, and compares."""
    origin: dict[str, Value] = {"kind": "git", "url": str(directory)}
    spec = lock.spec()
    try:
        with sources.open(origin, spec) as repository:
            done = integrate(repository, spec, read)
            if lock.stack and not _plain_branch(lock):
                check_merge_stack(repository, spec, lock.candidates)
        return Replay(done, tuple(lock.differences(done)), False)
    except ReprobuildError as error:
        again = lock.replay_spec()
        absent = error.facts.get("objects")
        alone = lock.composition is not None and absent == [lock.composition.hex]
        if error.code != "E-GIT-MISSING-OBJECT" or again is None or not alone:
            raise
    with sources.open(origin, again) as repository:
        done = integrate(repository, again, read)
    return Replay(done, tuple(lock.differences(done, replayed=True)), True)


def _plain_branch(lock: UpstreamLock) -> bool:
    """A source lock without heads pins a branch and says nothing about how it came to be."""
    return not lock.heads and not lock.candidates
