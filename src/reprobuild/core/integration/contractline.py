"""Reading the heads out of one list item, table row or line of a source merge contract.

People write `TITLE vllm#628 at COMMIT`, `#628 at COMMIT – TITLE`, links to pull requests and
commits, several of them in a row, or a table with a column for each. What is read is never guessed:
a pull request without a full commit beside it is no head.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HEX = r"(?:[0-9a-f]{64}|[0-9a-f]{40})"
_LINK = re.compile(r"\[(?P<label>[^\[\]]*)\]\((?P<url>[^()\s]+)\)")
_PULL_URL = re.compile(
    r"https://[^/\s]+/(?P<owner>[\w.-]+)/(?P<repo>[\w.-]+)/(?:-/)?(?:pull|merge_requests)/"
    r"(?P<number>\d+)/?\Z"
)
_COMMIT_URL = re.compile(rf"https://[^/\s]+/[\w./-]+/commits?/(?P<commit>{HEX})/?\Z")
_URL = re.compile(r"<?(https://[^\s<>()\[\]|,;]+)>?")
_PULL = re.compile(
    r"(?<![\w/#])(?:(?:PR|pull request|MR)\s+)?"
    r"(?:(?P<owner>[A-Za-z0-9][\w.-]*)/)?(?P<repo>[A-Za-z0-9][\w.-]*)?#(?P<number>\d+)\b"
    r"|\b(?:PR|[Pp]ull request|MR)\s+(?P<bare>\d+)\b",
)
_AT = re.compile(
    r"\)?\s*\(?\s*(?P<word>at\b|@|head\b|commit\b|[:=→–—|-])\s*(?:head\s+|commit\s+)?"
    r"(?P<head>[0-9A-Za-z]+)\b\)?",
)
_FULL = re.compile(rf"{HEX}\Z")
_EDGES = " \t,;:.–—-→|*()"


@dataclass(frozen=True, slots=True)
class Said:
    """A head as a line says it; `broken` is a commit that is none, where `at` stands before it."""

    title: str
    owner: str
    repository: str
    number: int
    head: str
    broken: str = ""


def plain(text: str) -> str:
    """The text without links: those to pull requests and commits become what they lead to."""
    text = _LINK.sub(_link, text)
    text = _URL.sub(lambda m: _target(m[1]) or m[0], text)
    return re.sub(rf"`({HEX})`", r"\1", text)


def _target(url: str) -> str:
    pull = _PULL_URL.match(url)
    if pull is not None:
        return f"{pull['owner']}/{pull['repo']}#{pull['number']}"
    commit = _COMMIT_URL.match(url)
    return commit["commit"] if commit is not None else ""


def _link(match: re.Match[str]) -> str:
    target, label = _target(match["url"]), match["label"].strip("` ")
    if not target or "#" not in target:
        return target or match["label"]
    rest = re.sub(r"(?:[\w.-]+/)?(?:[\w.-]+)?#\d+\b", "", label).strip()
    return f"{rest} {target}".strip()


def heads_in(text: str) -> list[Said]:
    """The heads of an item or a line, in order; `text` is `plain` already."""
    found: list[tuple[int, int, re.Match[str], str, str]] = []
    for pull in _PULL.finditer(text):
        if found and pull.start() < found[-1][1]:
            continue
        at = _AT.match(text, pull.end())
        if at is None:
            continue
        if _FULL.match(at["head"]):
            found.append((pull.start(), at.end(), pull, at["head"], ""))
        elif at["word"] in ("at", "@") and not pull["bare"]:
            found.append((pull.start(), at.end(), pull, "", at["head"]))
    out: list[Said] = []
    for index, (start, end, pull, head, broken) in enumerate(found):
        before = text[found[index - 1][1] if index else 0 : start].strip(_EDGES)
        after = text[end : found[index + 1][0] if index + 1 < len(found) else len(text)]
        # A title comes before its pull request; where nothing does at all, it comes behind.
        leading = bool(text[: found[0][0]].strip(_EDGES))
        title = before if leading else after.strip(_EDGES)
        out.append(_said(title, pull, head, broken))
    return out


def _said(title: str, pull: re.Match[str], head: str, broken: str = "") -> Said:
    number = int(pull["number"] or pull["bare"])
    return Said(title, pull["owner"] or "", pull["repo"] or "", number, head, broken)


def head_in_row(line: str) -> Said | None:
    """The head of a table's row; None for a head line, a rule, or a row without one."""
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", plain(line).strip().strip("|"))]
    pull = next((m for cell in cells if (m := _PULL.search(cell))), None)
    commit = next((m[0] for cell in cells if (m := re.search(rf"\b{HEX}\b", cell))), "")
    if pull is None or not commit:
        return None
    rest = [c for c in cells if not re.fullmatch(rf"`?{HEX}`?|\d+", c)]
    titles = [_PULL.sub("", c).replace(commit, "").strip(_EDGES) for c in rest]
    title = max(titles, key=len, default="").replace("\\|", "|")
    return _said(title, pull, commit)


def names_a_pull(text: str) -> bool:
    """Whether a text names a pull request, with a commit or without."""
    return _PULL.search(text) is not None


def mentions_a_head(line: str) -> bool:
    """Whether a line looks like it says a head or a tree: what must not be passed over silently."""
    text = plain(line)
    if re.search(rf"\b{HEX}\b", text) and "sha256:" not in text:
        return True
    return bool(re.search(r"#\d+\s+(?:at|@)\s", text + " "))
