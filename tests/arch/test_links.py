"""What README.md and docs/ point to is there: files, headings, commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reprobuild.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchor(heading: str) -> str:
    """As the forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists():
            broken.append(link)
        elif fragment and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            if fragment not in {anchor(h) for h in headings}:
                broken.append(link)
    assert broken == []


def test_every_page_is_in_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert {name(page) for page in PAGES if page.parent.name == "docs"} - linked == set()


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "ROADMAP.md"], ids=name)
def test_files_that_are_named_are_there(page: Path) -> None:
    # the roadmap may name what is yet to be written
    named = set(re.findall(r"`((?:docs|src|tests|derivations|benchmarks)/[\w./-]+\.\w+)`",
                           page.read_text()))  # fmt: skip
    stand_for_any = {path for path in named if re.search(r"\b[A-Z]{4,}\.", path)}
    assert {path for path in named - stand_for_any if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_are_named_are_there(page: Path) -> None:
    called = set(re.findall(r"`(?:\$ )?reprobuild ((?:-\S+ )*)([a-z][a-z-]*)", page.read_text()))
    called |= set(
        re.findall(r"^(?:\$ |    )reprobuild ((?:-\S+ )*)([a-z][a-z-]*)", page.read_text(), re.M)
    )
    assert {word for options, word in called if not options} - set(COMMANDS) == set()
