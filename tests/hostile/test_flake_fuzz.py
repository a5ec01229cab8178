"""Sound files with random damage: they load, or end in an error that points into the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reprobuild
from reprobuild.adapters.toml.load import load_components, load_flake, load_lock
from reprobuild.errors import ReprobuildError

ROOT = Path(reprobuild.__file__).parents[2]
FILES = {
    "flake-like.toml": ROOT / "flake-like.toml",
    "flake-like.lock": ROOT / "flake-like.lock",
    "cuda.toml": ROOT / "derivations" / "cuda.toml",
    "tvm-ffi.toml": ROOT / "derivations" / "tvm-ffi.toml",
}
PIECES = st.sampled_from(
    [
        *("", '"', "'''", "[", "]", "{", "}", "=", ".", ",", "\n", "0", "true", "\0", "\ufeff"),
        *("[inputs.x]\n", "kind = 1\n", "[[inputs]]\n", "[inputs]\n", "format = 0\n", "\r\n", "\r"),
        *('kind = "git"\n', "components = []\n", "x = {}\n", '"" = 1\n', "é", "#", "nan"),
        "1979-05-27T07:32:00Z",
    ]
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), PIECES), min_size=1, max_size=4)


def load(path: Path) -> None:
    if path.name == "flake-like.toml":
        load_flake(path)
    elif path.name == "flake-like.lock":
        load_lock(path)
    else:
        load_components(path.parent)


@pytest.mark.parametrize("name", sorted(FILES))
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(edits=EDITS)
def test_damage_is_pointed_at(
    name: str, tmp_path: Path, edits: list[tuple[float, int, str]]
) -> None:
    text = FILES[name].read_text(encoding="utf-8")
    for where, length, piece in edits:
        start = int(where * len(text))
        text = text[:start] + piece + text[start + length :]
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    try:
        load(tmp_path / name)
    except ReprobuildError as error:
        assert error.exit_status == 3
        assert error.message.isprintable()
        line, column = error.facts["line"], error.facts["column"]
        assert isinstance(line, int)
        assert isinstance(column, int)
        lines = text.split("\n")
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1
