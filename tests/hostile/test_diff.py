"""Sides and texts made to break out of a report, or to exhaust it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reprobuild.adapters.diff.page import render_page
from reprobuild.cli.main import main
from reprobuild.core.diff.changelog import changelog
from reprobuild.core.diff.markdown import cell, code, escape, render_markdown
from reprobuild.core.diff.read import answer_side, labels_side, statement_side
from reprobuild.core.diff.report import document
from reprobuild.core.diff.side import ImageSide
from reprobuild.core.diff.text import render_text
from reprobuild.engine.diff import Differ
from reprobuild.engine.diff_loaded import Loaded
from reprobuild.errors import ReprobuildError

EVIL = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> "
    "\x1b[31m`|` @someone #1 \x07\u202e"
)


def statement(revision: str, title: str, name: str = "evil") -> dict[str, Any]:
    heads = [{"number": 7, "head": revision * 40, "disposition": "merged", "title": title}]
    source = {
        "base": "b" * 40, "heads": heads, "integration_tree": revision * 40, "strategy": "merge",
        "repository": EVIL, "ref": EVIL,
    }  # fmt: skip
    return {
        "format": 0,
        "components": [
            {"name": name, "drv": f"blake3:{revision * 64}", "tree": "", "version": title,
             "source": source}
        ],
        "release": {"codename": EVIL, "revision": revision, "reference": EVIL},
    }  # fmt: skip


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    old = statement_side(EVIL, statement("a", "plain"))
    new = statement_side("new", statement("c", EVIL))
    return dict(document(Differ(Loaded(old), Loaded(new)).run()))


class Tags(HTMLParser):
    """Counts what a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_a_page_holds_no_markup_of_others(report: dict[str, Any]) -> None:
    page = render_page(report)
    seen = Tags()
    seen.feed(page)
    assert seen.tags.count("script") == 1
    assert "img" not in seen.tags
    assert not any(name.startswith("on") for name in seen.attributes)
    assert "alert(1)" in page  # it is there, as text
    assert "unsafe-inline" not in page
    assert not re.search(r"(?:src|href)=\"(?!#)", page)


def test_a_terminal_gets_no_control_characters(report: dict[str, Any]) -> None:
    for everything in (False, True):
        text = render_text(report, everything=everything)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)


def test_markdown_shows_texts_as_they_are(report: dict[str, Any]) -> None:
    for text in (render_markdown(report), changelog([report])):
        outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)  # less what is code
        assert not re.search(r"(?<!\\)<(?:script|img)", outside)
        assert "@someone" not in outside
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)


def test_escaping() -> None:
    assert escape("a_b*c [x](y) <i>") == r"a\_b\*c \[x\](y) \<i\>"
    assert code("a`b") == "``a`b``"
    assert code("`x`") == "`` `x` ``"
    assert cell("a|b") == r"`a\|b`"
    assert escape("two\nlines") == "two lines"


@pytest.mark.parametrize(
    "document",
    [
        {"format": 1, "components": [], "release": {}},
        {"format": 0, "components": {}, "release": {}},
        {"format": 0, "components": [], "release": []},
        {"format": 0, "components": ["x"], "release": {}},
        {"format": 0, "components": [{"drv": "x"}], "release": {}},
        {
            "format": 0,
            "components": [{"name": "x", "source": {"heads": [{"head": "a"}]}}],
            "release": {},
        },
    ],
)
def test_statements_that_are_off(document: dict[str, Any]) -> None:
    with pytest.raises(ReprobuildError) as caught:
        statement_side("s", document)
    assert caught.value.code == "E-RELEASE-SIDE"


@pytest.mark.parametrize(
    "answer",
    [
        {"outputs": {"a": {"drv": 1}}},
        {"outputs": {"a": "x"}},
        {"outputs": {"a": {"drv": "x", "tree": "y", "isolation": "full"}}, "image": {"layers": 1}},
    ],
)
def test_answers_that_are_off(answer: dict[str, Any]) -> None:
    with pytest.raises(ReprobuildError) as caught:
        answer_side("s", answer)
    assert caught.value.code == "E-RELEASE-SIDE"


def test_labels_of_any_text() -> None:
    labels = {
        "a.b.integration.heads": "1@zz,2@" + "a" * 40 + ":merged,,@,999999999999@" + "b" * 40,
        "a.b.drv": "no digest",
        "": "",
        "....": EVIL,
        "x.release.": EVIL,
    }
    side = labels_side("s", "docker", ImageSide(labels=labels))
    assert [h.number for h in side.components["b"].heads] == [2]
    document(Differ(Loaded(side), Loaded(side)).run())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty", b""),
        ("not-json", b"{"),
        ("deep", b"{" + b'"a":[' * 100_000),
        ("list", b"[]"),
        ("other", b'{"a": 1}'),
        ("tar", b"\0" * 1024),
        ("binary", bytes(range(256)) * 10),
        ("lock", b'{"schema_version": 1}'),
        ("lock-2", b'{"schema_version": 1, "upstream_base": 3}'),
    ],
)
def test_files_that_are_nothing(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    done = CliRunner().invoke(main, ["diff", f"file:{path}", f"file:{path}"], obj=None)
    assert isinstance(done.exception, ReprobuildError), done.exception
    assert done.exception.exit_status in (2, 3, 9)


def test_many_components_end_early(tmp_path: Path) -> None:
    def side(revision: str) -> dict[str, Any]:
        rows = [statement(revision, "t", f"c{n}")["components"][0] for n in range(2000)]
        return {"format": 0, "components": rows, "release": {"revision": revision}}

    found = Differ(
        Loaded(statement_side("old", side("a"))), Loaded(statement_side("new", side("c")))
    ).run()
    report = document(found)
    assert len(render_text(report).splitlines()) < 60
    assert len(render_text(report, everything=True).splitlines()) > 4000
    assert len(json.dumps(report)) < 20_000_000
