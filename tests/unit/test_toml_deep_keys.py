"""Keys of too many parts are refused wherever they stand, and looked for only where they can be."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from reprobuild.adapters.toml import read
from reprobuild.adapters.toml.positions import MAX_KEY_PARTS
from reprobuild.errors import ReprobuildError

SPELLINGS = {
    "bare": ["a", "b-c", "_1"],
    "basic": ['"a.b"', '"c=\\"d"'],
    "literal": ["'a.b'", "'{x,'"],
    "mixed": ["a", "'b.c'", "d", '"e"', "f"],
    "one quoted": [*["a"] * 8, "'b'", *["c"] * 8],
}
PLACES = [
    "{key} = 1",
    "[{key}]",
    "[[{key}]]",
    "x = {{ y = 'a.b', {key} = 1 }}",
    "z = [{{{key}=1}}]",
]


def parsed(tmp_path: Path, text: str) -> dict[str, object]:
    path = tmp_path / "a.toml"
    path.write_text(text)
    return read.read_toml(path, "a.toml", "E-FLAKE").data


@pytest.mark.parametrize("blank", ["", " ", "\t "])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("spelling", list(SPELLINGS))
def test_too_many_parts(tmp_path: Path, spelling: str, place: str, blank: str) -> None:
    dot = f"{blank}.{blank}"
    parts = list(itertools.islice(itertools.cycle(SPELLINGS[spelling]), MAX_KEY_PARTS + 1))
    with pytest.raises(ReprobuildError) as raised:
        parsed(tmp_path, place.format(key=dot.join(parts)) + "\n")
    assert f"more than {MAX_KEY_PARTS} parts" in raised.value.message
    assert raised.value.facts["line"] == 1
    assert parsed(tmp_path, place.format(key=dot.join(parts[1:])) + "\n")


def test_a_line_with_many_references_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(text: str) -> None:
        raise AssertionError("read twice")

    monkeypatch.setattr(read, "scan", scan)
    places = ", ".join(f'{{ from = "steps.s{n}", to = "usr/lib{n}.so" }}' for n in range(400))
    assert len(parsed(tmp_path, f"place = [{places}]\n")["place"]) == 400  # type: ignore[arg-type]


LONG = 2**20


@pytest.mark.parametrize(
    "text",
    [
        "a" * LONG + "." * MAX_KEY_PARTS,
        "a " * (LONG // 2) + "." * MAX_KEY_PARTS,
        '"' * LONG + "x.x." * MAX_KEY_PARTS,
        "a." * (MAX_KEY_PARTS - 1) + " " * LONG,
        ("a." * (MAX_KEY_PARTS - 1) + "a ") * (LONG // 32),
        "." * MAX_KEY_PARTS + " " * LONG,
    ],
    ids=range(6),
)
def test_a_long_line_ends(tmp_path: Path, text: str) -> None:
    # Quadratic, each of these would take hours.
    with pytest.raises(ReprobuildError):
        parsed(tmp_path, text + "\n")
