"""What an integration is asked for, and what it answered. Frozen values with strict documents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import cast

from reprobuild.core.digest import Digest, GitOid, Sha256
from reprobuild.core.encoding import Value
from reprobuild.core.integration.bounds import MAX_NUMBER
from reprobuild.errors import ReprobuildError

MAX_TITLE = 4096
_REF = re.compile(r"refs/[A-Za-z0-9][^\x00-\x20\x7f~^:?*\[\\]{0,1000}\Z")


class Strategy(StrEnum):
    """How heads are brought onto the base."""

    MERGE = "merge"
    CHERRY_PICK = "cherry_pick"
    PINNED_BRANCH = "pinned_branch"


class Disposition(StrEnum):
    """What happened to a head."""

    MERGED = "merged"
    CHERRY_PICKED = "cherry_picked"
    ALREADY_IN_BASE = "already_in_base"
    RECORDED_IN_COMPOSITION = "recorded_in_composition"
    EXCLUDED = "excluded"


def check_ref(ref: str) -> str:
    """`ref` itself where it is a full ref name (`refs/…`, git-check-ref-format(1)); E-REF else."""
    bad = (
        not _REF.match(ref)
        or ".." in ref
        or "//" in ref
        or "@{" in ref
        or ref.endswith(("/", ".", ".lock"))
        or any(part.startswith(".") or part.endswith(".lock") for part in ref.split("/"))
    )
    if bad:
        raise ReprobuildError("E-REF", f"{ref[:120]!r} is no full ref name", got=ref[:120])
    return ref


def check_number(number: object) -> int:
    """A pull request's number; raises E-INTEGRATION for anything else."""
    if type(number) is not int or not 0 < number <= MAX_NUMBER:
        raise ReprobuildError("E-INTEGRATION", f"{number!r:.80} is no pull request number")
    return number


def pull_ref(number: int) -> str:
    """Where a forge keeps a pull request's head."""
    return f"refs/pull/{number}/head"


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """One pull request's pinned commit.

    `commits` (cherry_pick only) are the commits to pick, in order; empty means the head's own
    range, from where it leaves the base. `merge_commit` (pinned_branch only) is the merge on the
    composed branch whose second parent must be this head.
    """

    number: int
    head: GitOid
    title: str = ""
    ref: str = ""
    commits: tuple[GitOid, ...] = ()
    merge_commit: GitOid | None = None

    @property
    def full_ref(self) -> str:
        """The ref, `refs/pull/N/head` where none was said."""
        return self.ref or pull_ref(self.number)


@dataclass(frozen=True, slots=True)
class SourcePatch:
    """A patch file applied after the heads: a relative path, and the digest that pins it."""

    path: str
    sha256: Sha256
    title: str = ""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A pull request that was looked at and left out, and why."""

    number: int
    head: GitOid
    disposition: str
    reason: str


EXCLUSION_DISPOSITIONS = frozenset(
    {"alternative", "experimental", "out_of_scope", "research-only", "superseded", "unsupported"}
)


@dataclass(frozen=True, slots=True)
class Resolution:
    """A reviewed answer to one conflict, keyed by the three blobs it resolves.

    A side that did not have the file is None. `result` is the blob to use (None: the file goes),
    `content_path` where its bytes lie, relative to the flake. It is void as soon as a side moves.
    """

    path: str
    ancestor: GitOid | None
    ours: GitOid | None
    theirs: GitOid | None
    result: GitOid | None
    author: str
    reason: str
    content_path: str = ""
    executable: bool = False


@dataclass(frozen=True, slots=True)
class IntegrationSpec:
    """A base and what goes on top of it, all pinned: the same spec gives the same tree anywhere.

    `composition` (pinned_branch only) is the composed branch's commit; `composition_ref` says
    where it was found. `merge_stack` asks for the stricter check: the composition's first-parent
    chain leads to the base and each merge's second parent is the expected head, in order.
    """

    strategy: Strategy
    base: GitOid
    heads: tuple[HeadSpec, ...] = ()
    patches: tuple[SourcePatch, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    composition: GitOid | None = None
    composition_ref: str = ""
    merge_stack: bool = False

    def __post_init__(self) -> None:
        seen: set[int] = set()
        for number in (*(h.number for h in self.heads), *(e.number for e in self.exclusions)):
            if number in seen:
                raise ReprobuildError(
                    "E-INTEGRATION", f"PR #{number} is there twice", pull_request=number
                )
            seen.add(number)
        if (self.strategy is Strategy.PINNED_BRANCH) != (self.composition is not None):
            raise ReprobuildError(
                "E-INTEGRATION", "pinned_branch, and nothing else, names a composition commit"
            )

    def without(self, *numbers: int) -> IntegrationSpec:
        """The same, less some heads."""
        return replace(self, heads=tuple(h for h in self.heads if h.number not in numbers))

    def commits_needed(self) -> tuple[GitOid, ...]:
        """Every commit the integration starts from, each once, the base first."""
        found: dict[GitOid, None] = {self.base: None}
        for head in self.heads:
            found.setdefault(head.head)
            found.update(dict.fromkeys(head.commits))
        if self.composition is not None:
            found.setdefault(self.composition)
        return tuple(found)

    def document(self) -> dict[str, Value]:
        """The plain form that locks and origins carry; empty parts are left out."""
        out: dict[str, Value] = {"strategy": self.strategy.value, "base": self.base.hex}
        if self.heads:
            out["heads"] = [_head_document(h) for h in self.heads]
        if self.patches:
            out["patches"] = [
                {"path": p.path, "sha256": p.sha256.hex, "title": p.title} for p in self.patches
            ]
        if self.exclusions:
            out["exclusions"] = [
                {
                    "number": e.number,
                    "head": e.head.hex,
                    "disposition": e.disposition,
                    "reason": e.reason,
                }
                for e in self.exclusions
            ]
        if self.resolutions:
            out["resolutions"] = [resolution_document(r) for r in self.resolutions]
        if self.composition is not None:
            out["composition"] = self.composition.hex
        if self.composition_ref:
            out["composition_ref"] = self.composition_ref
        if self.merge_stack:
            out["merge_stack"] = True
        return out

    @classmethod
    def parse(cls, document: Mapping[str, Value]) -> IntegrationSpec:
        """From `document()`, other keys ignored; raises E-INTEGRATION, E-DIGEST or E-REF."""
        try:
            return cls(
                strategy=Strategy(_text(document.get("strategy", "merge"))),
                base=GitOid.parse(_text(document["base"])),
                heads=tuple(_head(h) for h in _rows(document, "heads")),
                patches=tuple(
                    SourcePatch(
                        check_patch_path(_text(p["path"])),
                        Sha256.parse(_text(p["sha256"])),
                        _text(p.get("title", "")),
                    )
                    for p in _rows(document, "patches")
                ),
                exclusions=tuple(
                    Exclusion(
                        check_number(e["number"]),
                        GitOid.parse(_text(e["head"])),
                        _text(e["disposition"]),
                        _text(e["reason"]),
                    )
                    for e in _rows(document, "exclusions")
                ),
                resolutions=tuple(parse_resolution(r) for r in _rows(document, "resolutions")),
                composition=_oid(document.get("composition")),
                composition_ref=_optional_ref(document.get("composition_ref")),
                merge_stack=document.get("merge_stack", False) is True,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ReprobuildError(
                "E-INTEGRATION", f"not an integration document: {error!s:.200}"
            ) from error


@dataclass(frozen=True, slots=True)
class HeadResult:
    """What one head came to.

    `squashed_in_base` – merging it into the bare base changes nothing although it is not empty.
    `contained_in` – the number of an earlier head whose history holds it (0: none).
    `commits` – what was picked (cherry_pick). `resolved` – the recorded resolutions it took.
    """

    number: int
    head: GitOid
    disposition: Disposition
    squashed_in_base: bool = False
    contained_in: int = 0
    commits: tuple[GitOid, ...] = ()
    resolved: tuple[Resolution, ...] = ()

    def document(self) -> dict[str, Value]:
        """The plain form."""
        out: dict[str, Value] = {
            "number": self.number,
            "head": self.head.hex,
            "disposition": self.disposition.value,
        }
        if self.squashed_in_base:
            out["squashed_in_base"] = True
        if self.contained_in:
            out["contained_in"] = self.contained_in
        if self.commits:
            out["commits"] = [c.hex for c in self.commits]
        if self.resolved:
            out["resolved"] = [r.path for r in self.resolved]
        return out


@dataclass(frozen=True, slots=True)
class Integration:
    """The answer.

    `tree` is the integration tree; `patch_sha256` the digest of `git diff --binary --full-index
    BASE` with every setting at git's default (the published form); `patch_digest` hashes sorted
    (path, modes, blobs), which no setting and no zlib can move. `tips` are the trees after each
    head. `git_version` says who merged.
    """

    tree: GitOid
    patch_sha256: Sha256
    patch_digest: Digest
    heads: tuple[HeadResult, ...] = ()
    tips: tuple[GitOid, ...] = ()
    base_tree: GitOid | None = None
    git_version: str = ""
    strategy: Strategy = Strategy.MERGE

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "tree": self.tree.hex,
            "patch_sha256": self.patch_sha256.hex,
            "patch_digest": str(self.patch_digest),
            "heads": [h.document() for h in self.heads],
            "git_version": self.git_version,
        }


@dataclass(frozen=True, slots=True)
class HeadRequest:
    """A head that `lock` is to pin: by `rev` where given, else by what `ref` points to."""

    number: int
    ref: str = ""
    rev: GitOid | None = None
    title: str = ""
    commits: tuple[GitOid, ...] = ()

    @property
    def full_ref(self) -> str:
        """The ref, `refs/pull/N/head` where none was said."""
        return self.ref or pull_ref(self.number)


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What `lock` asks to have pinned: a base (`rev`, else what `ref` points to) and its heads.

    `tree` is the published answer, where there is one: with it a base that is not named is looked
    for along the branch, when what the branch points to now gives another tree.
    """

    url: str
    ref: str = ""
    rev: GitOid | None = None
    strategy: Strategy = Strategy.MERGE
    heads: tuple[HeadRequest, ...] = ()
    patches: tuple[SourcePatch, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    composition_ref: str = ""
    composition: GitOid | None = None
    tree: GitOid | None = None


@dataclass(frozen=True, slots=True)
class SourcePin:
    """A pinned source: the spec that says how, the integration that says what."""

    spec: IntegrationSpec
    integration: Integration
    refs: Mapping[str, GitOid] = field(default_factory=dict)


def check_patch_path(path: str) -> str:
    """A relative path that stays below its directory; raises E-INTEGRATION else."""
    parts = path.split("/")
    if (
        not path
        or len(path) > MAX_TITLE
        or any(ord(c) < 32 or c in "\\\x7f" for c in path)
        or any(p in ("", ".", "..") for p in parts)
    ):
        raise ReprobuildError(
            "E-INTEGRATION", f"{path[:120]!r} must use a relative path inside its directory"
        )
    return path


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, got {value!r:.60}")
    return value


def _oid(value: object) -> GitOid | None:
    return None if value is None else GitOid.parse(_text(value))


def _optional_ref(value: object) -> str:
    return "" if value in (None, "") else check_ref(_text(value))


def _rows(document: Mapping[str, Value], key: str) -> Sequence[Mapping[str, Value]]:
    rows = document.get(key, ())
    if not isinstance(rows, (list, tuple)) or not all(isinstance(r, Mapping) for r in rows):
        raise TypeError(f"{key} must be a list of objects")
    return cast("Sequence[Mapping[str, Value]]", rows)


def _head_document(head: HeadSpec) -> dict[str, Value]:
    out: dict[str, Value] = {"number": head.number, "head": head.head.hex}
    if head.title:
        out["title"] = head.title
    if head.ref:
        out["ref"] = head.ref
    if head.commits:
        out["commits"] = [c.hex for c in head.commits]
    if head.merge_commit is not None:
        out["merge_commit"] = head.merge_commit.hex
    return out


def _head(row: Mapping[str, Value]) -> HeadSpec:
    commits = row.get("commits", ())
    if not isinstance(commits, (list, tuple)):
        raise TypeError("commits must be a list")
    title = _text(row.get("title", ""))
    if len(title) > MAX_TITLE:
        raise ReprobuildError("E-INTEGRATION", f"a title of {len(title)} characters is no title")
    return HeadSpec(
        number=check_number(row["number"]),
        head=GitOid.parse(_text(row["head"])),
        title=title,
        ref=_optional_ref(row.get("ref")),
        commits=tuple(GitOid.parse(_text(c)) for c in commits),
        merge_commit=_oid(row.get("merge_commit")),
    )


def resolution_document(resolution: Resolution) -> dict[str, Value]:
    """The plain form of a recorded resolution."""
    sides = {n: getattr(resolution, n) for n in ("ancestor", "ours", "theirs", "result")}
    return {
        "path": resolution.path,
        **{n: None if oid is None else oid.hex for n, oid in sides.items()},
        "author": resolution.author,
        "reason": resolution.reason,
        "content": resolution.content_path,
        "executable": resolution.executable,
    }


def parse_resolution(row: Mapping[str, Value]) -> Resolution:
    """From `resolution_document`; raises KeyError, TypeError, ValueError or a ReprobuildError."""
    author, reason = _text(row["author"]).strip(), _text(row["reason"]).strip()
    if not author or not reason:
        raise ReprobuildError("E-INTEGRATION", "a resolution names its author and its reason")
    content = _text(row.get("content", ""))
    return Resolution(
        path=check_patch_path(_text(row["path"])),
        ancestor=_oid(row.get("ancestor")),
        ours=_oid(row.get("ours")),
        theirs=_oid(row.get("theirs")),
        result=_oid(row.get("result")),
        author=author,
        reason=reason,
        content_path=check_patch_path(content) if content else "",
        executable=row.get("executable", False) is True,
    )
