"""The release audit: every open pull request is included, or excluded with a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.address import is_remote
from reprobuild.core.integration.jsonform import Fields, load
from reprobuild.core.integration.model import EXCLUSION_DISPOSITIONS
from reprobuild.errors import ReprobuildError

MANIFEST, PULLS = "E-MANIFEST", "E-PULLS"


@dataclass(frozen=True, slots=True)
class OpenPull:
    """An open pull request as the forge tells it."""

    number: int
    head: GitOid
    title: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """A classified pull request whose head is another commit now."""

    number: int
    disposition: str
    pinned: GitOid
    live: GitOid


@dataclass(frozen=True, slots=True)
class Audit:
    """What the audit found; `open_count` open pull requests were looked at."""

    open_count: int
    unclassified: tuple[OpenPull, ...]
    moved: tuple[Moved, ...]

    @property
    def passed(self) -> bool:
        """Whether the release may go on."""
        return not self.unclassified and not self.moved

    def complaints(self) -> list[str]:
        """One sentence for each finding."""
        return [f"open PR #{p.number} is not classified" for p in self.unclassified] + [
            f"open PR #{m.number} ({m.disposition}) moved: pinned {m.pinned}, live {m.live}"
            for m in self.moved
        ]

    def document(self) -> dict[str, object]:
        """The `--json` form."""
        return {
            "open": self.open_count,
            "unclassified": [
                {"number": p.number, "head": p.head.hex, "title": p.title}
                for p in self.unclassified
            ],
            "moved": [
                {
                    "number": m.number,
                    "disposition": m.disposition,
                    "pinned": m.pinned.hex,
                    "live": m.live.hex,
                }
                for m in self.moved
            ],
        }


@dataclass(frozen=True, slots=True)
class Classified:
    """What a manifest says about pull requests: number → (included or excluded, pinned head)."""

    repository: str
    base: str
    heads: Mapping[int, tuple[str, GitOid]]


def parse_classified(data: bytes, name: str) -> Classified:
    """The classification out of a manifest's bytes; raises E-MANIFEST."""
    fields = Fields.of(load(data, MANIFEST, name), MANIFEST, name)
    for key in ("pull_requests", "reviewed_exclusions"):
        if not isinstance(fields.values.get(key), list):
            raise ReprobuildError(
                MANIFEST,
                "manifest must contain pull_requests and reviewed_exclusions",
                file=name,
                key=key,
            )
    heads: dict[int, tuple[str, GitOid]] = {}
    for disposition, key in (("included", "pull_requests"), ("excluded", "reviewed_exclusions")):
        for row in fields.rows(key):
            number = row.number("number")
            if number in heads:
                raise row.error("number", f"PR #{number} is classified more than once")
            try:
                head = row.oid("head")
            except ReprobuildError as error:
                raise row.error(
                    "head", f"PR #{number} has an invalid pinned head: {error.message}"
                ) from error
            if disposition == "excluded":
                category, reason = row.text("disposition", ""), row.text("reason", "")
                if category not in EXCLUSION_DISPOSITIONS or not reason.strip():
                    raise row.error(
                        "disposition", f"PR #{number} has an incomplete exclusion record"
                    )
            heads[number] = (disposition, head)
    return Classified(
        fields.text("repository", ""),
        fields.text("base_ref", "").removeprefix("refs/heads/"),
        heads,
    )


def parse_pulls(data: bytes, name: str) -> tuple[OpenPull, ...]:
    """A forge's list of open pull requests (GitHub's `GET /repos/{owner}/{repo}/pulls`)."""
    value = load(data, PULLS, name)
    rows = Fields({"pulls": value}, PULLS, name).rows("pulls", missing_ok=False)
    pulls = []
    for row in rows:
        head = row.object("head").oid("sha")
        title = row.values.get("title")
        pulls.append(OpenPull(row.number("number"), head, title if isinstance(title, str) else ""))
    return tuple(pulls)


def audit(classified: Classified, pulls: Sequence[OpenPull]) -> Audit:
    """Compares the manifest with what is open."""
    unclassified, moved = [], []
    for pull in pulls:
        record = classified.heads.get(pull.number)
        if record is None:
            unclassified.append(pull)
        elif record[1] != pull.head:
            moved.append(Moved(pull.number, record[0], record[1], pull.head))
    return Audit(len(pulls), tuple(unclassified), tuple(moved))


def with_drafts(data: bytes, found: Audit) -> bytes:
    """The manifest's bytes with an entry for each unclassified pull request.

    The entries lack disposition and reason, so the audit refuses them until a person has decided.
    """
    document = json.loads(data)
    document["reviewed_exclusions"] += [
        {"number": p.number, "head": p.head.hex, "title": p.title, "disposition": "", "reason": ""}
        for p in found.unclassified
    ]
    return (json.dumps(document, indent=2, ensure_ascii=data.isascii()) + "\n").encode()


def repository_slug(repository: str) -> str:
    """`owner/name` of a forge's repository address; raises E-MANIFEST."""
    from urllib.parse import urlsplit

    path = urlsplit(repository).path
    if "://" not in repository and ":" in repository:
        path = repository.rpartition(":")[2]
    slug = path.removesuffix(".git").strip("/")
    parts = slug.split("/")
    plain = all(p and all(c.isalnum() or c in "._-" for c in p) for p in parts)
    if (
        not is_remote(repository)
        or len(parts) != 2
        or not plain
        or any(p in (".", "..") for p in parts)
    ):
        raise ReprobuildError(
            MANIFEST, f"unsupported GitHub repository URL: {repository[:120]!r}", got=slug[:120]
        )
    return slug
