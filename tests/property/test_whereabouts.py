"""Places as text are the places that `pathlib` would name, so both ways find the same memo."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprobuild import whereabouts
from reprobuild.settings import Settings

PARTS = st.lists(st.sampled_from(["", ".", "..", "a", "b c", ".hidden", "ü", "/"]), max_size=7)


@given(PARTS, st.sampled_from(["", "/", "//", "///", "./"]))
def test_absolute_is_what_pathlib_says(parts: list[str], start: str) -> None:
    text = start + "/".join(parts)
    assert whereabouts.absolute(text) == str(Path(text).absolute())


@pytest.fixture
def nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A flake two levels above the current directory."""
    (tmp_path / "flake-like.toml").touch()
    deep = tmp_path / "one/two"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    return tmp_path


def test_a_flake_is_found_from_below_unless_named(nested: Path) -> None:
    assert whereabouts.flake_directory(None) == str(nested)
    assert whereabouts.flake_directory("../..") == f"{os.getcwd()}/../.."
    assert whereabouts.flake_directory(".") is None
    (nested / "one/flake-like.toml").mkdir()  # no file
    assert whereabouts.flake_directory(None) == str(nested)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("flake-like.toml", path)])
def test_a_flake_that_is_off_is_not_passed_over(make: Callable[[Path], None], nested: Path) -> None:
    make(nested / "one/flake-like.toml")
    assert whereabouts.flake_directory(None) == str(nested / "one")


def test_no_flake_up_to_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert whereabouts.flake_directory(None) is None


@pytest.mark.parametrize(
    ("named", "by_environment", "expected"),
    [
        ("there", "/else", "{cwd}/there"),
        (None, "/else/", "/else"),
        (None, "", "/p/store"),
        (None, None, "/p/store"),
    ],
)
def test_the_store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: str | None,
    by_environment: str | None,
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = whereabouts.store_directory(named, by_environment, "/p")
    assert found == expected.format(cwd=tmp_path)


def test_the_store_of_a_flake_at_the_root() -> None:
    assert whereabouts.store_directory(None, None, "/") == "/store"


def test_settings_say_the_same(nested: Path) -> None:
    settings = Settings(environment={"REPROBUILD_STORE": "s"})
    assert str(settings.flake_dir) == whereabouts.flake_directory(None)
    assert str(settings.store_path) == whereabouts.store_directory(None, "s", "")
    named = Settings(directory=Path("../.."), store=Path("x"), environment={})
    assert str(named.flake_dir) == whereabouts.flake_directory("../..")
    assert str(named.store_path) == whereabouts.store_directory("x", None, "")
