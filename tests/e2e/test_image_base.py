"""A release over a base image that it is also compiled in; split layers, caches, zstd."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci.delivery import Images
from support.archives import tar_entry
from support.demo import APPLETS, BUSYBOX, Demo, needs_sandbox
from support.images import foreign_image

pytestmark = needs_sandbox

OUTPUT = """
[inputs.base]
kind = "oci"
reference = "oci:base"

[toolchains.base]
root = "inputs.base"

[outputs.based]
components = ["header", "notes"]
toolchain = "base"

[outputs.based.release]
codename = "based"
revision = "r1"
date = 2026-01-02
repository = "example.org/based"
label-prefix = "org.example"
tag = "v1"
cache-fingerprint = "cu{cuda}-header{header.tree:10}"
runtime = { cuda = "13.3" }

[outputs.based.image]
base = "inputs.base"
compression = "zstd"
caches = { JIT_CACHE = "/cache/jit/{fingerprint}" }

[outputs.based.sources.header]
input = "header"
heads = [{ number = 2, title = "One more line" }]
"""


@pytest.fixture
def based(locked: Demo, tmp_path: Path) -> Demo:
    """The small project over a base image of busybox with a merged /usr and a 0700 /root."""
    import tarfile

    store = MemoryStore(tmp_path / "memory")
    links = [tar_entry(f"usr/bin/{name}", kind=tarfile.SYMTYPE, link="busybox") for name in APPLETS]
    layout = foreign_image(
        store,
        [
            [
                tar_entry("bin", kind=tarfile.SYMTYPE, link="usr/bin"),
                tar_entry("usr/bin/busybox", BUSYBOX.read_bytes(), mode=0o755),
                *links,
                tar_entry("root", kind=tarfile.DIRTYPE, mode=0o700),
                tar_entry("usr/share/notes/old.txt", b"of the base\n"),
            ]
        ],
    )
    Images().save(store.materialise(layout), locked.path / "base", form="oci-dir")
    flake = locked.path / "flake-like.toml"
    flake.write_text(flake.read_text() + OUTPUT)
    notes = locked.path / "derivations/notes.toml"
    notes.write_text(
        notes.read_text().replace(
            'place = [{ from = "steps.copy", to = "usr/share/notes" }]',
            'place = [{ from = "steps.copy", to = "usr/share/notes" },\n'
            '  { from = "steps.copy", to = "root" }, { from = "steps.copy", to = "bin" }]\n'
            'remove = ["usr/share/notes/old.txt"]\n'
            'split = { texts = ["usr/share/**"] }',
        )
    )
    locked.run("lock")
    return locked


def test_a_release_over_the_base_that_it_is_built_in(based: Demo, tmp_path: Path) -> None:
    made = based.json("realize", "based")
    facts = made["image"]
    assert [la["component"] for la in facts["layers"]] == [
        "", "header", "notes.texts", "notes", "statement",
    ]  # fmt: skip
    fingerprint = facts["labels"]["org.example.cache.fingerprint"]
    assert fingerprint.startswith("cu133-header")
    seen = based.json("image", "verify", "based")
    assert seen["verified"] is True
    target = tmp_path / "x"
    based.run("image", "save", "based", "-o", str(target), "--format", "oci-dir")
    found = Images().inspect(target)
    assert {la.media_type.rpartition("+")[2] for la in found.layers[1:]} == {"zstd"}
    config = (target / f"blobs/sha256/{found.config_digest.hex}").read_text()
    assert f"JIT_CACHE=/cache/jit/{fingerprint}" in config


def layers(demo: Demo) -> dict[str, str]:
    made = demo.json("realize", "based")["image"]["layers"]
    return {layer["component"]: layer["digest"] for layer in made}


def test_a_change_of_one_part_keeps_the_other(based: Demo) -> None:
    before = layers(based)
    notes = based.path / "derivations/notes.toml"
    text = notes.read_text()
    assert 'to = "bin"' in text
    notes.write_text(text.replace('to = "bin"', 'to = "opt"'))
    after = layers(based)
    assert {name for name in after if after[name] != before[name]} == {"notes", "statement"}


def test_another_base_builds_again(based: Demo) -> None:
    plan = based.json("realize", "based", "--dry-run")["plan"]
    names = {step["name"]: step["deed"] for step in plan}
    assert names["inputs.base.rootfs"] == "build"
    based.run("realize", "based")
    assert based.json("realize", "based")["counts"]["built"] == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('cache-fingerprint = "cu{cuda}-header{header.tree:10}"\n', "", "cache-fingerprint"),
        ("/{fingerprint}", "", "{fingerprint}"),
        ("{cuda}-header", "{cudda}-header", "cudda"),
    ],
)
def test_caches_that_do_not_work_out(based: Demo, old: str, new: str, message: str) -> None:
    flake = based.path / "flake-like.toml"
    flake.write_text(flake.read_text().replace(old, new))
    done = based.run("--json", "show", "based", status=3)
    assert done.error["code"] == "E-FLAKE"
    assert message in done.error["message"]
