"""Locks as the publishers commit them: `integration.lock.json` and `source.lock.json`.

Both are read into one value. Keys that are not known are left alone, since the form grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.digest import GitOid, Sha256
from reprobuild.core.integration.address import check_stated
from reprobuild.core.integration.jsonform import Fields, load
from reprobuild.core.integration.manifest import parse_commits, parse_patches
from reprobuild.core.integration.model import (
    Disposition,
    HeadSpec,
    Integration,
    IntegrationSpec,
    SourcePatch,
    Strategy,
)
from reprobuild.errors import ReprobuildError

CODE = "E-UPSTREAM-LOCK"


@dataclass(frozen=True, slots=True)
class UpstreamLock:
    """A published lock.

    `stack` says that it is a source lock: its composed branch must be the base plus merges of the
    heads, in order. `candidates` are commits beyond the pull requests (head, integration commit).
    `composition_repository` is where a composed branch lives when it is not the base's.
    """

    name: str
    repository: str
    base_ref: str
    base: GitOid
    strategy: Strategy
    heads: tuple[HeadSpec, ...]
    dispositions: Mapping[int, Disposition]
    patches: tuple[SourcePatch, ...]
    tree: GitOid
    patch_sha256: Sha256 | None
    composition: GitOid | None = None
    composition_ref: str = ""
    composition_repository: str = ""
    stack: bool = False
    candidates: tuple[tuple[GitOid, GitOid], ...] = ()
    manifest_sha256: Sha256 | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    def spec(self) -> IntegrationSpec:
        """The integration that gives the lock's tree, when the composed branch is at hand."""
        return IntegrationSpec(
            strategy=self.strategy,
            base=self.base,
            heads=self.heads,
            patches=self.patches,
            composition=self.composition,
            composition_ref=self.composition_ref,
        )

    def replay_spec(self) -> IntegrationSpec | None:
        """The same tree by merging the heads anew; None where that is not what was done."""
        if not self.stack or self.candidates:
            return None
        return IntegrationSpec(
            strategy=Strategy.MERGE, base=self.base, heads=self.heads, patches=self.patches
        )

    def differences(self, done: Integration, *, replayed: bool = False) -> list[str]:
        """How an integration differs from what the lock states; empty when it is right."""
        found = []
        if done.tree != self.tree:
            found.append(f"tree: the lock has {self.tree}, integrating gives {done.tree}")
        if self.patch_sha256 is not None and done.patch_sha256 != self.patch_sha256:
            found.append(
                f"patch_sha256: the lock has {self.patch_sha256.hex}, "
                f"integrating gives {done.patch_sha256.hex}"
            )
        for head in () if replayed else done.heads:
            stated = self.dispositions.get(head.number)
            if stated is not None and stated is not head.disposition:
                found.append(
                    f"PR #{head.number}: the lock has {stated.value}, "
                    f"integrating gives {head.disposition.value}"
                )
        return found


def parse_lock(data: bytes, name: str) -> UpstreamLock:
    """Either form, told apart by its keys; raises E-UPSTREAM-LOCK naming the key."""
    fields = Fields.of(load(data, CODE, name), CODE, name)
    if fields.values.get("schema_version") != 1 or fields.values["schema_version"] is True:
        raise fields.error("schema_version", "must be 1")
    if "upstream_base" in fields.values:
        return _source_lock(fields)
    return _integration_lock(fields)


def _address(fields: Fields, key: str) -> str:
    url = fields.text(key)
    try:
        return check_stated(url)
    except ReprobuildError as error:
        wrong = fields.error(key, f"is refused: {error.message}")
        wrong.hint = error.hint
        raise wrong from error


def _head(row: Fields, seen: set[int]) -> HeadSpec:
    number = row.number("number")
    if number in seen:
        raise row.error("number", f"PR #{number} is there twice")
    seen.add(number)
    head = row.oid("head")
    merge = row.oid("merge_commit") if "merge_commit" in row.values else None
    ref = row.ref("ref") if "ref" in row.values else ""
    return HeadSpec(number, head, row.text("title", ""), ref, parse_commits(row, (head,)), merge)


def _integration_lock(fields: Fields) -> UpstreamLock:
    base, result = fields.object("base"), fields.object("result")
    try:
        strategy = Strategy(fields.text("composition_strategy", "merge"))
    except ValueError:
        raise fields.error("composition_strategy", "is no strategy that is known") from None
    seen: set[int] = set()
    heads, dispositions = [], {}
    for row in fields.rows("pull_requests", missing_ok=False):
        head = _head(row, seen)
        heads.append(head)
        try:
            dispositions[head.number] = Disposition(row.text("disposition"))
        except ValueError:
            raise row.error("disposition", "is no disposition that is known") from None
    composition, composition_ref = None, ""
    if strategy is Strategy.PINNED_BRANCH:
        place = fields.object("composition")
        composition, composition_ref = place.oid("commit"), place.ref("ref")
    manifest = fields.values.get("manifest")
    return UpstreamLock(
        name=fields.text("name"),
        repository=_address(base, "repository"),
        base_ref=base.ref("ref"),
        base=base.oid("commit"),
        strategy=strategy,
        heads=tuple(heads),
        dispositions=dispositions,
        patches=parse_patches(fields),
        tree=result.oid("tree"),
        patch_sha256=result.sha256("patch_sha256"),
        composition=composition,
        composition_ref=composition_ref,
        manifest_sha256=(
            fields.object("manifest").sha256("sha256") if manifest is not None else None
        ),
    )


def _source_lock(fields: Fields) -> UpstreamLock:
    base, source = fields.object("upstream_base"), fields.object("source")
    seen: set[int] = set()
    heads = tuple(_head(row, seen) for row in fields.rows("pull_requests", missing_ok=False))
    candidates = tuple(
        (row.oid("head"), row.oid("integration_commit"))
        for row in fields.rows("qualification_candidate_commits")
    )
    known = {"schema_version", "component", "source", "upstream_base", "pull_requests"}
    known |= {"source_patches", "qualification_candidate_commits"}
    return UpstreamLock(
        name=fields.text("component"),
        repository=_address(base, "repository"),
        base_ref=base.ref("ref"),
        base=base.oid("commit"),
        strategy=Strategy.PINNED_BRANCH,
        heads=heads,
        dispositions={},
        patches=parse_patches(fields),
        tree=source.oid("tree"),
        patch_sha256=None,
        composition=source.oid("commit"),
        composition_ref=source.ref("ref"),
        composition_repository=_address(source, "repository"),
        stack=True,
        candidates=candidates,
        extra={k: v for k, v in fields.values.items() if k not in known},
    )
