"""This repository's own project: sound, and its lock in canonical form."""

from __future__ import annotations

from pathlib import Path

import reprobuild
from reprobuild.adapters.toml.load import load_project
from reprobuild.adapters.toml.render_lock import render_lock

ROOT = Path(reprobuild.__file__).parents[2]


def test_the_project_is_sound() -> None:
    project = load_project(ROOT)
    assert project.flake.default == "quickstart"
    assert set(project.flake.outputs["quickstart"].components) <= set(project.components)


def test_the_committed_lock_round_trips_byte_for_byte() -> None:
    project = load_project(ROOT)
    assert project.lock is not None
    assert render_lock(project.lock).encode() == project.texts["flake-like.lock"]
