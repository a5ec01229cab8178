"""The flake of this checkout with its releases, and their documents, for tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from reprobuild.adapters.toml.load import load_project
from reprobuild.core.project import Project
from reprobuild.engine.documents import ReleaseDocuments

ROOT = Path(__file__).resolve().parents[2]
R1, R18, R21 = "jovian-judgement-r1", "infernal-invocation-r18", "infernal-invocation-r21"


@cache
def project() -> Project:
    """Flake, components and lock of the checkout."""
    return load_project(ROOT)


@cache
def documents(output: str) -> ReleaseDocuments:
    """The documents of one of its outputs, without evidence."""
    return ReleaseDocuments(project(), output)


def section(text: str, heading: str) -> str:
    """The part of a Markdown text below a heading of the second level."""
    parts = text.split(f"\n## {heading}\n")
    assert len(parts) == 2, f"{heading!r} is there {len(parts) - 1} times"
    return parts[1].split("\n## ")[0]


def flat(text: str) -> str:
    """Without line breaks, which wrapping put in."""
    return " ".join(text.split())
