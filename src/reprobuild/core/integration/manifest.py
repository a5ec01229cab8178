"""The publishers' composition manifest, and the lock that composing it gives (schema_version 1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from reprobuild.core.digest import GitOid, Sha256
from reprobuild.core.integration.address import check_stated
from reprobuild.core.integration.jsonform import Fields, load
from reprobuild.core.integration.model import (
    EXCLUSION_DISPOSITIONS,
    Exclusion,
    HeadSpec,
    Integration,
    IntegrationSpec,
    SourcePatch,
    Strategy,
    check_patch_path,
    pull_ref,
)
from reprobuild.errors import ReprobuildError

CODE = "E-MANIFEST"
PATCH_NAME = "integration.patch"
LOCK_NAME = "integration.lock.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A composition manifest. `sha256` is the digest of the file's bytes."""

    name: str
    repository: str
    base_ref: str
    strategy: Strategy
    heads: tuple[HeadSpec, ...]
    patches: tuple[SourcePatch, ...]
    exclusions: tuple[Exclusion, ...]
    composition_ref: str
    composition: GitOid | None
    sha256: Sha256

    def refs(self) -> tuple[str, ...]:
        """The refs that composing looks at."""
        refs = [self.base_ref, *(h.full_ref for h in self.heads)]
        if self.composition_ref:
            refs.append(self.composition_ref)
        return tuple(dict.fromkeys(refs))

    def spec(self, base: GitOid) -> IntegrationSpec:
        """The integration that the manifest asks for on a base commit."""
        return IntegrationSpec(
            strategy=self.strategy,
            base=base,
            heads=self.heads,
            patches=self.patches,
            exclusions=self.exclusions,
            composition=self.composition,
            composition_ref=self.composition_ref,
        )

    def lock(self, base: GitOid, done: Integration) -> dict[str, object]:
        """The publishers' lock document, nothing added."""
        dispositions = {h.number: h.disposition.value for h in done.heads}
        composition = None
        if self.composition is not None:
            composition = {"ref": self.composition_ref, "commit": self.composition.hex}
        return {
            "schema_version": 1,
            "name": self.name,
            "manifest": {"sha256": self.sha256.hex},
            "base": {"repository": self.repository, "ref": self.base_ref, "commit": base.hex},
            "composition_strategy": self.strategy.value,
            "composition": composition,
            "pull_requests": [
                {
                    "number": h.number,
                    "ref": h.full_ref,
                    "head": h.head.hex,
                    "commits": [c.hex for c in h.commits],
                    "title": h.title,
                    "disposition": dispositions[h.number],
                }
                for h in self.heads
            ],
            "source_patches": [
                {"path": p.path, "sha256": p.sha256.hex, "title": p.title} for p in self.patches
            ],
            "result": {
                "tree": done.tree.hex,
                "patch": PATCH_NAME,
                "patch_sha256": done.patch_sha256.hex,
            },
        }


def render_lock(lock: Mapping[str, object]) -> bytes:
    """The lock file's bytes: keys sorted, two spaces, one newline at the end."""
    return (json.dumps(lock, indent=2, sort_keys=True) + "\n").encode()


def parse_manifest(data: bytes, name: str) -> Manifest:
    """A manifest out of its file's bytes; raises E-MANIFEST naming the key."""
    fields = Fields.of(load(data, CODE, name), CODE, name)
    if fields.values.get("schema_version") != 1 or fields.values["schema_version"] is True:
        raise fields.error("schema_version", "must be 1: manifest schema_version must be 1")
    for key in ("name", "repository", "base_ref", "pull_requests"):
        if key not in fields.values:
            raise ReprobuildError(CODE, f"{name}: manifest is missing {key!r}", file=name, key=key)
    base_ref = fields.ref("base_ref")
    if not base_ref.startswith("refs/heads/"):
        raise fields.error("base_ref", "must be a full refs/heads/... ref")
    repository = fields.text("repository")
    try:
        check_stated(repository)
    except ReprobuildError as error:
        wrong = fields.error("repository", f"is refused: {error.message}")
        wrong.hint = error.hint
        raise wrong from error
    strategy = _strategy(fields)
    composition_ref, composition = _composition(fields, strategy)
    heads = _heads(fields, strategy)
    exclusions = _exclusions(fields, {h.number for h in heads})
    return Manifest(
        name=fields.text("name"),
        repository=repository,
        base_ref=base_ref,
        strategy=strategy,
        heads=heads,
        patches=parse_patches(fields),
        exclusions=exclusions,
        composition_ref=composition_ref,
        composition=composition,
        sha256=Sha256(hashlib.sha256(data).hexdigest()),
    )


def _strategy(fields: Fields) -> Strategy:
    try:
        return Strategy(fields.text("composition_strategy", "merge"))
    except ValueError:
        raise fields.error(
            "composition_strategy", "must be 'merge', 'cherry_pick', or 'pinned_branch'"
        ) from None


def _composition(fields: Fields, strategy: Strategy) -> tuple[str, GitOid | None]:
    given = [k for k in ("composition_ref", "composition_commit") if fields.values.get(k)]
    if strategy is not Strategy.PINNED_BRANCH:
        if given:
            raise fields.error(given[0], "requires composition_strategy='pinned_branch'")
        return "", None
    ref = fields.ref("composition_ref")
    if not ref.startswith("refs/heads/"):
        raise fields.error(
            "composition_ref", "pinned_branch composition requires a full refs/heads/... ref"
        )
    return ref, fields.oid("composition_commit")


def _heads(fields: Fields, strategy: Strategy) -> tuple[HeadSpec, ...]:
    heads: list[HeadSpec] = []
    seen: set[int] = set()
    for row in fields.rows("pull_requests", missing_ok=False):
        number = row.number("number")
        if number in seen:
            raise row.error("number", f"invalid or duplicate PR number: {number}")
        seen.add(number)
        head = row.oid("head")
        if row.text("ref", pull_ref(number)) != pull_ref(number):
            raise row.error("ref", f"PR #{number} has unexpected ref {row.text('ref')[:80]!r}")
        commits = parse_commits(row, (head,))
        if strategy is Strategy.MERGE and commits != (head,):
            raise row.error(
                "commits", f"PR #{number} declares commits but composition_strategy is merge"
            )
        heads.append(HeadSpec(number, head, row.text("title", ""), pull_ref(number), commits))
    return tuple(heads)


def parse_commits(row: Fields, default: tuple[GitOid, ...]) -> tuple[GitOid, ...]:
    """The `commits` of a pull request, `default` where it has none."""
    value = row.values.get("commits")
    if value is None and "commits" not in row.values:
        return default
    if not isinstance(value, list) or not value:
        raise row.error("commits", "commits must be a non-empty list")
    commits = []
    for commit in value:
        try:
            commits.append(GitOid.parse(commit if isinstance(commit, str) else ""))
        except ReprobuildError:
            raise row.error("commits", "commits must contain 40-character commit SHAs") from None
    return tuple(commits)


def parse_patches(fields: Fields) -> tuple[SourcePatch, ...]:
    """The `source_patches` of a manifest or lock."""
    patches = []
    for index, row in enumerate(fields.rows("source_patches")):
        path = row.text("path")
        try:
            check_patch_path(path)
        except ReprobuildError:
            raise row.error(
                "path",
                f"source patch #{index + 1} must use a relative path below the manifest, "
                f"not {path[:80]!r}",
            ) from None
        patches.append(SourcePatch(path, row.sha256("sha256"), row.text("title", "")))
    return tuple(patches)


def _exclusions(fields: Fields, taken: set[int]) -> tuple[Exclusion, ...]:
    exclusions = []
    seen = set(taken)
    for row in fields.rows("reviewed_exclusions"):
        number = row.number("number")
        if number in seen:
            raise row.error("number", f"PR #{number} is classified more than once")
        seen.add(number)
        disposition, reason = row.text("disposition", ""), row.text("reason", "")
        if disposition not in EXCLUSION_DISPOSITIONS or not reason.strip():
            raise row.error("disposition", f"PR #{number} has an incomplete exclusion record")
        exclusions.append(Exclusion(number, row.oid("head"), disposition, reason))
    return tuple(exclusions)
