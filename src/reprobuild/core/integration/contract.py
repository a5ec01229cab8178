"""Reading a source merge contract: the text that publishers put into an issue for each release.

The form (a plain or Markdown text): a title; the image reference and its registry digest; for
each component a heading `NAME: BRANCH`, a list of heads `TITLE REPO#NUMBER at COMMIT` each with a
paragraph on what it does, and `Integration tree:` with a git tree. Other sections are prose.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reprobuild.core.digest import GitOid, Sha256
from reprobuild.core.integration.bounds import MAX_NUMBER
from reprobuild.core.integration.contractline import (
    Said,
    head_in_row,
    heads_in,
    mentions_a_head,
    names_a_pull,
    plain,
)
from reprobuild.core.integration.model import MAX_TITLE, check_ref
from reprobuild.errors import ReprobuildError

CODE = "E-CONTRACT"
MAX_BYTES = 4 * 2**20

_BULLET = re.compile(r"\s*(?:[•*+-]|\d{1,3}[.)])\s+(?P<rest>\S.*)\Z")
_HEADING = re.compile(
    r"\s*(?:#{1,6}\s*)?(?:\*\*)?(?P<name>[A-Za-z0-9][A-Za-z0-9_.+ -]{0,60}?)(?:\*\*)?\s*:"
    r"(?:\*\*)?\s+`?(?P<branch>[A-Za-z0-9][A-Za-z0-9._/+@-]{0,200})`?(?:\*\*)?\s*\Z"
)
_TITLED = re.compile(
    r"\s*#{1,6}\s+(?:\*\*)?(?P<name>[A-Za-z0-9][A-Za-z0-9_.+ -]{0,60}?)(?:\*\*)?\s*"
    r"(?:\s[—–-]\s+|[(])`?(?P<branch>[A-Za-z0-9][A-Za-z0-9._/+@-]{0,200})`?[)]?\s*\Z"
)
"""`## NAME — BRANCH` and `## NAME (BRANCH)`: only of a Markdown heading, where no prose stands."""
_TREE = re.compile(
    r"\s*(?:[-*•]\s+)?(?:\*\*)?(?:Integration|Resulting|Composed) tree:?(?:\*\*)?:?\s*"
    r"`?(?P<tree>[0-9A-Za-z]*)`?\.?\s*\Z",
    re.IGNORECASE,
)
_HEX = re.compile(r"\s*`?(?P<tree>[0-9a-f]{40}|[0-9a-f]{64})`?\s*\Z")
_IMAGE = re.compile(
    r"(?:[-•]\s+)?(?:[A-Za-z]+ )?(?:[Ii]mage:?\s+)?"
    r"(?P<image>[a-z0-9][a-z0-9._/:-]*/[a-z0-9._/-]+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})\Z"
)
_DIGEST = re.compile(
    r"(?:[-•]\s+)?registry digest:?\s+(?P<digest>sha256:[0-9a-f]{64})\Z", re.IGNORECASE
)
_MARKS = re.compile(r"[`|]")
_TITLE = re.compile(r"(?:#\s*)?(?P<title>.*?)\s*(?:#(?P<number>\d+))?\s*\Z")
_BASE = re.compile(
    r"\s*(?:[-*•]\s+)?(?:\*\*)?Base(?: commit)?:?(?:\*\*)?:?\s*"
    r"`?(?P<base>[0-9a-f]{40}|[0-9a-f]{64})`?\.?\s*\Z"
)
_STRATEGY = re.compile(
    r"\s*(?:[-*•]\s+)?(?:\*\*)?Strategy:?(?:\*\*)?:?\s*"
    r"`?(?P<strategy>merge|cherry_pick|pinned_branch)`?\.?\s*\Z"
)
_FORGE = re.compile(
    r"https://(?P<host>github\.com|[\w.-]*gitlab[\w.-]*)/(?P<owner>[\w.-]+)/[\w.-]+"
)


@dataclass(frozen=True, slots=True)
class ContractHead:
    """A head of a component, and what the contract says it does."""

    number: int
    head: GitOid
    title: str
    repository: str
    owner: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class ContractSection:
    """A component: the branch that is its base, its heads in order, and the tree they give."""

    name: str
    branch: str
    heads: tuple[ContractHead, ...]
    tree: GitOid | None
    line: int
    base: GitOid | None = None
    strategy: str = ""


@dataclass(frozen=True, slots=True)
class Contract:
    """A whole contract. `forge` is the address (host and owner) that its links lead to."""

    title: str
    number: int | None
    image: str
    digest: Sha256 | None
    sections: tuple[ContractSection, ...]
    forge: str = ""
    unread: tuple[tuple[int, str], ...] = ()
    """Lines (from 1) that look like a head or a tree and could not be read as one."""


def parse_contract(data: bytes, name: str) -> Contract:
    """From the text; raises E-CONTRACT with the line for what looks like a part and is not one."""
    if len(data) > MAX_BYTES:
        raise ReprobuildError(CODE, f"{name} is longer than {MAX_BYTES} bytes", file=name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReprobuildError(CODE, f"{name} is not UTF-8", file=name) from error
    lines = text.replace("\r\n", "\n").split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    if len(first) > MAX_TITLE:
        raise _error(name, 1, f"a title of {len(first)} characters is no title")
    title = _TITLE.match(first)
    assert title is not None
    reader = _Reader(name, lines)
    sections = reader.sections()
    if not sections:
        raise ReprobuildError(
            CODE, f"{name} has no component section (`NAME: BRANCH` and heads)", file=name
        )
    number = title["number"]
    bare = [" ".join(_MARKS.sub(" ", line.replace("**", "")).split()) for line in lines]
    images = [m["image"] for line in bare if (m := _IMAGE.match(line))]
    digests = [m["digest"] for line in bare if (m := _DIGEST.match(line))]
    forge = _FORGE.search(text)
    return Contract(
        title=title["title"],
        number=int(number) if number and len(number) < 10 else None,
        image=images[0] if images else "",
        digest=Sha256.parse(digests[0]) if digests else None,
        sections=tuple(sections),
        forge=f"https://{forge['host']}/{forge['owner']}" if forge else "",
        unread=tuple(reader.unread()),
    )


def _error(name: str, line: int, message: str) -> ReprobuildError:
    return ReprobuildError(CODE, f"{name}:{line}: {message}", file=name, line=line)


class _Reader:
    """Walks the lines; a section is a heading that heads or a tree follow."""

    def __init__(self, name: str, lines: Sequence[str]) -> None:
        self._name, self._lines = name, lines
        self._read: set[int] = set()
        self._passed: set[int] = set()

    def unread(self) -> list[tuple[int, str]]:
        """What `sections` passed over, though it looks like a head or a tree."""
        return [
            (index + 1, line.strip()[:200])
            for index, line in enumerate(self._lines)
            if index
            and index not in self._read
            and (index in self._passed or mentions_a_head(line))
        ]

    def sections(self) -> list[ContractSection]:
        starts = [
            (index, match)
            for index, line in enumerate(self._lines)
            if (match := _HEADING.match(line) or _TITLED.match(line))
            and not any(p.match(line) for p in (_TREE, _BASE, _STRATEGY))
            and "http" not in line
        ]
        found: list[ContractSection] = []
        for place, (index, match) in enumerate(starts):
            end = starts[place + 1][0] if place + 1 < len(starts) else len(self._lines)
            section = self._section(index, end, match)
            if section is not None:
                found.append(section)
        names = [s.name.lower() for s in found]
        for section in found:
            if names.count(section.name.lower()) > 1:
                raise _error(self._name, section.line, f"{section.name} has two sections")
        return found

    def _section(self, start: int, end: int, match: re.Match[str]) -> ContractSection | None:
        heads: list[ContractHead] = []
        tree: GitOid | None = None
        base: GitOid | None = None
        strategy = ""
        index = start + 1
        while index < end:
            line = self._lines[index]
            if _TREE.match(line) and tree is None:
                found, after = self._tree(index, end)
                tree = found
                self._read |= set(range(index, after))
                index = after
            elif (stated := _BASE.match(line)) is not None:
                base = GitOid.parse(stated["base"])
                self._read.add(index)
                index += 1
            elif (how := _STRATEGY.match(line)) is not None:
                strategy = how["strategy"]
                index += 1
            else:
                here = index + 1
                more, index = self._item(index, end, tree is not None)
                for head in more:
                    if any(h.number == head.number for h in heads):
                        raise _error(self._name, here, f"PR #{head.number} is there twice")
                    heads.append(head)
        if not heads and tree is None:
            return None
        branch = match["branch"]
        try:
            check_ref(f"refs/heads/{branch}")
        except ReprobuildError:
            raise _error(self._name, start + 1, f"{branch!r} is no branch name") from None
        section = match["name"].strip()
        # `#628` alone is of the repository that the others are of.
        named = next((h.repository for h in heads if h.repository), section)
        whole = tuple(h if h.repository else replace(h, repository=named) for h in heads)
        return ContractSection(section, branch, whole, tree, start + 1, base, strategy)

    def _tree(self, index: int, end: int) -> tuple[GitOid, int]:
        match = _TREE.match(self._lines[index])
        assert match is not None
        said = match["tree"]
        here = index
        while not said and here + 1 < end and here < index + 3:
            here += 1
            said = self._lines[here].strip().strip("`")
        if not _HEX.match(said):
            raise _error(self._name, here + 1, f"{said[:80]!r} is no git tree")
        return GitOid.parse(said.strip().strip("`")), here + 1

    def _item(self, index: int, end: int, over: bool) -> tuple[list[ContractHead], int]:
        """The heads of a list item, a table's row or a line, and the line behind them.

        Behind the integration tree (`over`) there are only notes.
        """
        line = self._lines[index]
        if over:
            return [], index + 1
        if line.lstrip().startswith("|"):
            row = head_in_row(line)
            if row is None and names_a_pull(plain(line)):
                self._passed.add(index)
            return ([self._made(row, index, "")] if row else []), index + 1
        first = _BULLET.match(line)
        if first is None:
            said = heads_in(plain(line.strip()))
            return [self._made(one, index, "") for one in said], index + 1
        words = [first["rest"].strip()]
        here = index + 1
        while here < end and self._lines[here].strip() and not _BULLET.match(self._lines[here]):
            found = heads_in(plain(" ".join(words)))
            if found and not re.match(r"\s*(?:#|[\w./-]+#\d|\[)", self._lines[here]):
                break
            words.append(self._lines[here].strip())
            here += 1
        text = plain(" ".join(words))
        said = heads_in(text)
        if not said:
            if re.search(r"#\d+\s+at\s", text):
                raise _error(self._name, index + 1, f"{text[-100:]!r} names no head")
            if names_a_pull(text):
                self._passed.add(index)
            return [], here
        summary, after = self._summary(here, end) if len(said) == 1 else ("", here)
        made = [self._made(one, index, summary) for one in said]
        self._read |= set(range(index, after))
        return made, after

    def _made(self, said: Said, index: int, summary: str) -> ContractHead:
        if said.broken:
            raise _error(self._name, index + 1, f"{said.broken[:80]!r} is no full commit name")
        if not 0 < said.number <= MAX_NUMBER or len(said.title) > MAX_TITLE:
            raise _error(
                self._name, index + 1, f"PR #{said.number} has no plausible number or title"
            )
        self._read.add(index)
        head = GitOid.parse(said.head)
        title = said.title.strip()
        return ContractHead(said.number, head, title, said.repository, said.owner, summary)

    def _summary(self, index: int, end: int) -> tuple[str, int]:
        paragraphs: list[list[str]] = [[]]
        while index < end:
            line = self._lines[index]
            if _BULLET.match(line) or _TREE.match(line):
                break
            if line.strip() and not line.startswith((" ", "\t")) and not paragraphs[-1]:
                break  # a paragraph that is not indented belongs to no item
            if line.strip():
                paragraphs[-1].append(line.strip())
            elif paragraphs[-1]:
                paragraphs.append([])
            index += 1
        text = "\n\n".join(" ".join(p) for p in paragraphs if p)
        return text[: 4 * MAX_TITLE], index
