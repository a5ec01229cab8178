"""What a user names for output: a device, FIFO or directory there is never replaced."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from support.cliin import cli


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    flake = tmp_path / "flake"
    (flake / "derivations").mkdir(parents=True)
    (flake / "flake-like.toml").write_text(
        'format = 0\ndefault = "demo"\n[inputs.text]\nkind = "path"\npath = "text"\n'
        '[outputs.demo]\ncomponents = ["app"]\n'
    )
    (flake / "derivations" / "app.toml").write_text(
        'result = "steps.all"\n[steps.all]\nkind = "join"\n'
        'place = [{ from = "inputs.text", to = "" }]\n'
    )
    (flake / "text").mkdir()
    (flake / "text" / "file").write_text("hello\n")
    assert cli("-C", str(flake), "lock").status == 0
    assert cli("-C", str(flake), "-q", "realize").status == 0
    return flake


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Stands for every device: what is no plain file."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["realize", "--out-link", "{}"],
        ["export", "demo", "--no-tool", "-o", "{}"],
        ["realize", "--check", "--trace", "{}"],
        ["realize", "--check", "--metrics", "{}"],
    ],
    ids=lambda words: words[-2].strip("-") + "-" + words[0],
)
def test_what_is_no_plain_file_is_refused(demo: Path, fifo: Path, words: list[str]) -> None:
    said = cli("-C", str(demo), "-q", *(w.format(fifo) for w in words))
    assert (said.status, "E-USAGE" in said.err) == (2, True), said.err
    assert fifo.is_fifo()
    assert sorted(p.name for p in fifo.parent.iterdir()) == ["flake", "pipe"]


def test_an_out_link_replaces_links_alone(demo: Path, tmp_path: Path) -> None:
    place = tmp_path / "result"
    place.symlink_to("nowhere")
    assert cli("-C", str(demo), "-q", "realize", "--out-link", str(place)).status == 0
    assert (place / "file").read_text() == "hello\n"
    mine = tmp_path / "mine"
    mine.write_text("precious")
    assert cli("-C", str(demo), "-q", "realize", "--out-link", str(mine)).status == 2
    assert mine.read_text() == "precious"


def test_text_goes_into_a_pipe(demo: Path, fifo: Path) -> None:
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_text()), daemon=True)
    reader.start()
    said = cli("-C", str(demo), "graph", "--format", "svg", "-o", str(fifo))
    reader.join(30)
    assert said.status == 0, said.err
    assert fifo.is_fifo()
    assert got and got[0].startswith("<?xml")


RELEASE = """
[outputs.demo.release]
codename = "demo"
revision = "r1"
date = 2026-01-02
repository = "example.org/demo"
tag = "{codename}-{revision}"

[outputs.demo.image]
"""


@pytest.fixture
def release(demo: Path) -> Path:
    flake = demo / "flake-like.toml"
    flake.write_text(flake.read_text() + RELEASE)
    return demo


@pytest.mark.parametrize(
    "words",
    [
        ["release", "contract", "demo", "-o"],
        ["release", "runbook", "demo", "-o"],
        ["graph", "demo", "-o"],
        ["diff", "demo", "demo", "-o"],
        ["inventory", "-o"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_text_goes_to_a_place_that_is_there(
    release: Path, tmp_path: Path, words: list[str]
) -> None:
    for place in (tmp_path / "no" / "x.md", release, release / "text" / "file" / "x.md"):
        said = cli("-C", str(release), *words, str(place))
        assert (said.status, "E-USAGE" in said.err) == (2, True), said.err
    assert not (tmp_path / "no").exists()
    written = tmp_path / "made"
    said = cli("-C", str(release), *words, str(written))
    assert said.status == 0, said.err
    assert said.out.startswith(str(written)), "what was written is named"
    assert written.stat().st_size > 0


def test_files_go_into_directories_alone(release: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for words in (["release", "profiles", "demo", "-d"], ["import", "nothing", "--project"]):
        for place in (mine, mine / "below"):
            said = cli("-C", str(release), *words, str(place))
            assert (said.status, "E-USAGE" in said.err) == (2, True), said.err
            assert "is no directory" in said.err
    assert mine.read_text() == "precious"


def test_without_profiles_nothing_is_made(release: Path, tmp_path: Path) -> None:
    said = cli("-C", str(release), "release", "profiles", "demo", "-d", str(tmp_path / "new"))
    assert said.status == 0
    assert "no serving profiles" in said.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("target", ["{}/no/x", "{}", "999", "9" * 30])
def test_events_that_have_no_place_are_said_at_once(
    demo: Path, tmp_path: Path, target: str
) -> None:
    said = cli("-C", str(demo), "--events", target.format(tmp_path), "show")
    assert (said.status, "E-USAGE" in said.err, said.out) == (2, True, "")


def test_gates_go_by_the_names_that_are_listed(release: Path) -> None:
    flake = release / "flake-like.toml"
    gate = 'smoke = { title = "A first look", kind = "runtime-contract" }'
    flake.write_text(flake.read_text() + f"[outputs.demo.gates]\n{gate}\n")
    listed = cli("-C", str(release), "qualify", "demo", "--list")
    assert (listed.status, listed.out.split()[:2]) == (0, ["not-run", "smoke"]), listed.err
    assert "A first look" in listed.out
    said = cli("-C", str(release), "qualify", "demo", "--gate", "smok")
    assert (said.status, "E-USAGE" in said.err) == (2, True), said.err
    assert "did you mean 'smoke'" in said.err
    assert "its gates: smoke" in said.err


def test_an_output_without_an_image_is_not_open(demo: Path, release: Path) -> None:
    assert "open" not in cli("-C", str(release), "show").out
    flake = release / "flake-like.toml"
    flake.write_text(flake.read_text().replace(RELEASE, ""))
    said = cli("-C", str(release), "show")
    assert said.out.startswith("demo  (default)  no image\n"), said.out
    assert "open" not in said.out
