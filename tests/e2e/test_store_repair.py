"""A damaged store, as a user meets it: said, never built from, mended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.demo import COMPONENTS, Demo, needs_sandbox

pytestmark = needs_sandbox


def blob_of(demo: Demo, content: bytes) -> Path:
    """The blob that holds `content`."""
    blobs = (demo.store / "blobs").glob("*/*")
    (found,) = (path for path in blobs if path.read_bytes() == content)
    return found


def rot(path: Path) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(bytes([path.read_bytes()[0] ^ 1]))
    path.chmod(0o444)


def test_damage_is_said_and_repaired(realized: Demo) -> None:
    before = realized.json("realize")
    note = blob_of(realized, b"a note\n")
    rot(note)
    realized.component("notes", "cat /inputs/source/notes.txt > $out/again")
    for words in (["realize"], ["realize", "--from-source"]):
        error = realized.run("--json", *words, status=7).error
        assert error["code"] == "E-STORE-DAMAGED" and note.name in error["message"]
    assert "problems" in realized.run("--json", "store", "verify", status=7).error["facts"]
    done = realized.json("store", "repair")
    assert done["blobs"] == [note.name] and done["records"] and done["removed"] > 2
    realized.verify()
    assert realized.run("store", "repair").out == "the store is sound\n"
    changed = realized.json("realize")
    assert changed["image"]["config_digest"] != before["image"]["config_digest"]
    realized.verify()


def test_a_damaged_image_is_the_stores_fault(realized: Demo, tmp_path: Path) -> None:
    image = realized.json("realize")["image"]
    layout = Path(realized.json("realize")["outputs"]["demo"]["path"])
    layer = layout / "blobs/sha256" / image["layers"][0]["digest"].removeprefix("sha256:")
    content = layer.read_bytes()
    for path in {layer, blob_of(realized, content)}:
        if path.read_bytes() == content:  # one inode, or two
            rot(path)
    saved = tmp_path / "image.tar"
    error = realized.run("--json", "image", "save", "demo", "-o", str(saved), status=7).error
    assert error["code"] == "E-STORE-DAMAGED"
    assert not saved.exists()
    realized.run("store", "repair")
    assert realized.json("realize")["image"] == image
    realized.verify()


def test_lost_times_do_not_hide_damage(realized: Demo) -> None:
    realized.run("realize")
    note = blob_of(realized, b"a note\n")
    rot(note)
    objects = [p for kind in ("blobs", "trees", "drvs") for p in realized.store.glob(f"{kind}/*/*")]
    for path in objects:  # as `cp -r` leaves them
        os.utime(path)
    error = realized.run("--json", "store", "verify", status=7).error
    every = error["facts"]["problems"]
    kinds = [problem.partition(":")[0] for problem in every]
    assert kinds == sorted(kinds) and set(kinds) == {"damaged", "mode"}
    assert kinds.count("mode") > 10
    assert any(note.name in p for p in every if p.startswith("damaged: "))
    assert f"modes or times of {kinds.count('mode')} files" in error["message"]
    text = realized.run("store", "verify", status=7).err
    assert text.count("mode: ") == 1
    assert text.index(note.name) < text.index("mode: ")
    out = realized.run("store", "repair").out
    assert "set right the modes and times of " in out
    assert out.count("set right") == 1
    realized.verify()


def test_a_few_wrong_modes_are_named(realized: Demo) -> None:
    note = blob_of(realized, b"a note\n")
    note.chmod(0o644)
    assert note.name in realized.run("store", "verify", status=7).err
    assert f"set right modes: {note.name}" in realized.run("store", "repair").out


@pytest.mark.parametrize("hangs", [False, True])
def test_an_input_that_somebody_changed_is_not_built_from(
    realized: Demo, tmp_path: Path, hangs: bool
) -> None:
    """The build begins before its input was looked at, and its result is not believed."""
    found = realized.store.glob("materialised/*/header.txt")
    (header,) = (path for path in found if "#" not in path.read_text())
    header.parent.chmod(0o755)
    header.unlink()
    header.write_text("bad\n")
    header.parent.chmod(0o555)
    wait = "if grep -q bad $out/program; then sleep 3600; fi" if hangs else ""
    changed = COMPONENTS["program"].replace("echo compiled", f"echo more >> $out/program\n{wait}")
    realized.write("derivations/program.toml", changed)
    ran = realized.run("realize")
    assert "again     " in ran.err and "has been made again" in ran.err
    other = realized.run("--json", "realize", store=tmp_path / "other").document
    assert realized.json("realize")["image"] == other["image"]
    realized.verify()
