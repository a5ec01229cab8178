"""What a user names for output: a device, FIFO or directory there is never replaced."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reprobuild.adapters.git.service import Resolver
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


def test_an_out_link_is_one_link_outside_of_the_store(demo: Path, tmp_path: Path) -> None:
    flake = demo / "flake-like.toml"
    flake.write_text(flake.read_text() + '[outputs.both]\ncomponents = ["app", "other"]\n')
    app = demo / "derivations" / "app.toml"
    (app.with_name("other.toml")).write_text(app.read_text().replace('to = ""', 'to = "sub"'))
    assert cli("-C", str(demo), "lock").status == 0
    link = tmp_path / "result"
    inside = demo / "store" / "blobs" / "mine"
    before = sorted(p for p in (demo / "store").rglob("*"))
    for words, said in (
        (["both", "--out-link", str(link)], "both.app, both.other"),
        (["both.app", "both.other", "--out-link", str(link)], "both.app, both.other"),
        (["demo", "--out-link", ""], "needs a path"),
        (["demo", "--out-link", str(inside)], "inside the store"),
        (["demo", "--out-link", str(demo / "store" / "mine")], "inside the store"),
        (["demo", "--out-link", str(tmp_path / "none" / "link")], "there is no directory"),
    ):
        ran = cli("-C", str(demo), "-q", "realize", *words)
        assert (ran.status, "E-USAGE" in ran.err) == (2, True), ran.err
        assert said in ran.err
    assert not link.is_symlink()
    assert sorted(p for p in (demo / "store").rglob("*")) == before
    one = ["both.other", "both.other", "--out-link", str(link)]
    assert cli("-C", str(demo), "-q", "realize", *one).status == 0
    assert (link / "sub" / "file").read_text() == "hello\n"


@pytest.mark.parametrize("deed", ["--set-aside", "--restore", "--forget"])
@pytest.mark.parametrize("word", ["", "abcde", "blake3:", "no-digest", "0" * 65])
def test_a_record_is_named_by_its_digest(demo: Path, deed: str, word: str) -> None:
    ran = cli("-C", str(demo), "store", "quarantine", deed, word)
    assert (ran.status, "E-USAGE" in ran.err) == (2, True), ran.err
    assert f"{word!r} names no record: six to 64 hexadecimal digits" in ran.err


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


@contextmanager
def no_room(bytes_: int) -> Iterator[None]:
    """No file may become longer: as a full disk does, but for the words of the refusal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_text_without_room_is_not_the_calls_fault(release: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    made = place / "made"
    with no_room(64):
        for words in (
            ["release", "runbook", "demo", "-o"],
            ["graph", "demo", "-o"],
            ["graph", "demo", "--format", "html", "-o"],
            ["diff", "demo", "demo", "-o"],
        ):
            said = cli("-C", str(release), *words, str(made))
            assert (said.status, "E-WRITE" in said.err) == (10, True), said.err
            assert list(place.iterdir()) == [], "nothing half-written stays"


def test_an_inventory_without_room_leaves_nothing(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "out"
    place.mkdir()
    real = Resolver.replace_file

    def full(self: Resolver, path: Path, content: bytes) -> None:
        with no_room(16):  # the store's own files have theirs
            real(self, path, content)

    monkeypatch.setattr(Resolver, "replace_file", full)
    said = cli("-C", str(release), "inventory", "-o", str(place / "made"))
    assert (said.status, "E-WRITE" in said.err) == (10, True), said.err
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["release", "runbook", "demo", "-o"],
        ["graph", "demo", "-o"],
        ["diff", "demo", "demo", "-o"],
        ["inventory", "-o"],
        ["export", "demo", "--no-tool", "-o"],
        ["realize", "--out-link"],
        ["realize", "--check", "--trace"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_name_may_be_as_long_as_names_can_be(
    demo: Path, tmp_path: Path, words: list[str]
) -> None:
    flake = demo / "flake-like.toml"
    if words[0] == "release":
        flake.write_text(flake.read_text() + RELEASE)
    place = tmp_path / "out"
    place.mkdir()
    name = "n" * os.pathconf(place, "PC_NAME_MAX")
    said = cli("-C", str(demo), "-q", *words, str(place / name))
    assert said.status == 0, said.err
    assert os.listdir(place) == [name]


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
