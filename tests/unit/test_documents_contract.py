"""Contracts as people write them, and the one that we write read back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprobuild.core.digest import GitOid, Sha256
from reprobuild.core.documents.contract import contract_of, render_contract
from reprobuild.core.documents.state import stated
from reprobuild.core.integration.contract import Contract, parse_contract
from reprobuild.errors import ReprobuildError
from support.releases import documents

ONE, TWO, THREE, TREE = "1" * 40, "2" * 40, "3" * 40, "a" * 40


def read(text: str) -> Contract:
    return parse_contract(text.encode(), "c.md")


def heads(text: str) -> list[tuple[int, str, str, str]]:
    (section,) = read(text).sections
    return [(h.number, h.head.hex, h.repository, h.title) for h in section.heads]


@pytest.mark.parametrize(
    "output",
    ["jovian-judgement-r1", "infernal-invocation-r21", "infernal-invocation-r18", "quickstart"],
)
def test_what_is_written_is_read_back_without_loss(output: str) -> None:
    made = documents(output)
    got = parse_contract(made.contract().encode(), "c.md")
    assert got.unread == ()
    bare = replace(got, sections=tuple(replace(s, line=0) for s in got.sections), forge="")
    assert bare == contract_of(made.facts, made.values)


def test_what_was_left_out_is_written_and_is_no_head() -> None:
    made = documents("infernal-invocation-r21")
    view = made.facts.sources[1]
    left = replace(view, exclusions=((9, "out_of_scope", "another model (see #10 at noon)"),))
    facts = replace(made.facts, sources=(made.facts.sources[0], left, *made.facts.sources[2:]))
    text = render_contract(facts, made.values, {v.component: stated(v) for v in facts.sources})
    assert "b12x/pull/9) (out of scope): another model" in text
    found = read(text)
    assert [h.number for h in found.sections[1].heads] == [h.number for h in view.heads]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"• A title vllm#1 at\n  {ONE}", [(1, ONE, "vllm", "A title")]),
        (f"- A title (o/vllm#1) at `{ONE}`.", [(1, ONE, "vllm", "A title")]),
        (f"- #1 at {ONE} – what it does", [(1, ONE, "vLLM", "what it does")]),
        (
            f"* [A title](https://github.com/o/vllm/pull/1) at "
            f"[`{ONE[:7]}`](https://github.com/o/vllm/commit/{ONE})",
            [(1, ONE, "vllm", "A title")],
        ),
        (f"1. https://github.com/o/vllm/pull/1 @ {ONE}", [(1, ONE, "vllm", "")]),
        (
            f"- vllm#1 at {ONE}, #2 at {TWO}; #3 at {THREE}",
            [(1, ONE, "vllm", ""), (2, TWO, "vllm", ""), (3, THREE, "vllm", "")],
        ),
        (
            f"vllm#1 at {ONE}, then vllm#2 at {TWO}",
            [(1, ONE, "vllm", ""), (2, TWO, "vllm", "then")],
        ),
        (
            "| PR | Head | What |\n|---|:-:|---|\n"
            f"| vllm#1 | `{ONE}` | First, with a \\| in it |\n"
            f"| [#2](https://github.com/o/vllm/pull/2) | {TWO} | Second |",
            [(1, ONE, "vllm", "First, with a | in it"), (2, TWO, "vllm", "Second")],
        ),
        (f"- PR 1: head {ONE} (A title)", [(1, ONE, "vLLM", "A title")]),
        (f"- A title, pull request 1 at {ONE}", [(1, ONE, "vLLM", "A title")]),
    ],
)
def test_ways_to_write_heads(lines: str, expected: list[tuple[int, str, str, str]]) -> None:
    got = heads(f"Title\n\nvLLM: dev/x\n\n{lines}\n\nIntegration tree: {TREE}\n")
    assert [row[:2] for row in got] == [row[:2] for row in expected]
    assert [row[2] for row in got] == [row[2] for row in expected]
    assert [row[3] for row in got if row[3] != "then"] == [
        row[3] for row in expected if row[3] != "then"
    ]


def test_what_could_not_be_read_is_listed_with_its_line() -> None:
    found = read(
        "Title\n\nStatus: all is well\n\nvLLM: dev/x\n\n"
        f"- A title vllm#1 at {ONE}\n\n"
        f"By the way, {TWO} is good, too.\n"  # line 9
        "And vllm#9 is not in it.\n\n"
        f"Integration tree: {TREE}\n\nNotes.\n\nAlso #7 at {THREE}\n"  # line 16
    )
    assert [number for number, _ in found.unread] == [9, 16]
    assert found.unread[0][1].startswith("By the way")
    assert [h.number for h in found.sections[0].heads] == [1]


def test_pull_requests_without_a_commit_are_listed_not_guessed() -> None:
    found = read(
        "Title\n\nvLLM: dev/x\n\n| PR | Head |\n|---|---|\n"
        f"| #1 | {ONE} |\n| #2 | TBD |\n\n* needs vllm#3 first\n\n"  # lines 8 and 10
        f"Integration tree: {TREE}\n\n| vLLM | still to be merged: #1, #2 |\n"
    )
    assert [number for number, _ in found.unread] == [8, 10]
    assert [h.number for h in found.sections[0].heads] == [1]


@pytest.mark.parametrize(
    "heading",
    [
        "vLLM: dev/x",
        "**vLLM**: `dev/x`",
        "## vLLM: dev/x",
        "## vLLM — `dev/x`",
        "### vLLM – dev/x",
        "## **vLLM** (`dev/x`)",
        "# vLLM - dev/x",
    ],
)
@pytest.mark.parametrize(
    "tree", ["Integration tree:\n{}", "- Resulting tree: `{}`.", "**Integration tree:** {}"]
)
def test_ways_to_write_headings_and_trees(heading: str, tree: str) -> None:
    said = tree.format(TREE)
    found = read(f"Title\n\n{heading}\n\n- vllm#1 at {ONE}\n\n{said}\n\n## What (else)\n\nx\n")
    (section,) = found.sections
    assert (section.name, section.branch, section.tree) == ("vLLM", "dev/x", GitOid.parse(TREE))
    assert found.unread == ()


@pytest.mark.parametrize(
    "lines",
    [
        "o/n:tag-1\nregistry digest: sha256:{}",
        "Image: `o/n:tag-1`\n\n**Registry digest:** `sha256:{}`",
        "| Image | `o/n:tag-1` |\n| Registry digest | `sha256:{}` |",
        "- **Image**: o/n:tag-1\n- Registry digest: sha256:{}",
    ],
)
def test_ways_to_write_the_image(lines: str) -> None:
    digest = "d" * 64
    found = read(f"T\n\n{lines.format(digest)}\n\nvLLM: dev/x\n\n- vllm#1 at {ONE}\n")
    assert (found.image, found.digest) == ("o/n:tag-1", Sha256(digest))


def test_prose_is_no_heading_and_no_image() -> None:
    found = read(
        "T\n\nThe image runs on o/n:tag-1 or later\n\nvLLM — dev/y\n\n## vLLM: dev/x\n\n"
        f"- vllm#1 at {ONE}\n\nPR 1 at noon was fine.\n"
    )
    assert (found.image, [s.branch for s in found.sections]) == ("", ["dev/x"])


def test_base_and_strategy_are_read_where_they_stand() -> None:
    (section,) = read(
        f"T\n\n## vLLM: dev/x\n\nBase: `{TWO}`\n\nStrategy: `cherry_pick`\n\n"
        f"- vllm#1 at {ONE}\n\nIntegration tree:\n{TREE}\n"
    ).sections
    assert section.base is not None
    assert (section.base.hex, section.strategy) == (TWO, "cherry_pick")


@pytest.mark.parametrize(
    "line",
    [
        "- A vllm#1 at deadbeef",
        "- A vllm#1 at master",
        f"- A vllm#1 at {ONE}\n- B vllm#1 at {TWO}",
        f"- A vllm#99999999999 at {ONE}",
        f"- A vllm#0 at {ONE}",
    ],
)
def test_a_head_that_is_none_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        read(f"Title\n\nvLLM: dev/x\n\n{line}\n")
    assert caught.value.code == "E-CONTRACT"
    assert caught.value.facts["line"] in (5, 6)


def test_an_imported_contract_keeps_what_it_could_not_read() -> None:
    from reprobuild.core.integration.imported import from_contract

    text = f"T\n\nvLLM: dev/x\n\n- A o/vllm#1 at {ONE}\n\nand {TWO}\n"
    imported = from_contract(read(text), "c.md")
    assert any("line 7 of c.md could not be read" in note for note in imported.notes)
