"""The verifier inside images, run over an unpacked image by a Python of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders.decompress import decompressed
from reprobuild.adapters.oci.layout import open_layout, read_layout
from reprobuild.core.digest import Digest
from reprobuild.core.kinds.labels import labels_of
from reprobuild.data import verify
from support.released import DRV, INSTALLED, SOURCE, document, git_tree, released, row

SITE = "usr/lib/python3/dist-packages"
PLACE = "usr/share/reprobuild"


def unpack(layout: Path, root: Path) -> dict[str, str]:
    """Puts the layers of an image over one another; its labels."""
    root.mkdir()
    with open_layout(layout) as files:
        facts = read_layout(files)
        for layer in facts.layers:
            with files.open(f"blobs/sha256/{layer.digest.hex}") as source:
                packed = source.read()
            stream = decompressed(io.BytesIO(packed), packed[:8])
            with tarfile.open(fileobj=io.BytesIO(stream.read())) as archive:
                archive.extractall(root, filter="fully_trusted")
    return dict(facts.labels)


@dataclass
class Inside:
    """An unpacked image."""

    root: Path
    labels: dict[str, str]

    def run(self, *words: str) -> tuple[int, str, str]:
        """The verifier, by an interpreter that sees nothing of this environment."""
        program = self.root / PLACE / "verify.py"
        argv = [sys.executable, "-I", str(program), "--root", str(self.root), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def problems(self) -> list[str]:
        """What it names."""
        status, out, _ = self.run("--json")
        found = json.loads(out)
        assert (status, found["holds"]) == ((1, False) if found["problems"] else (0, True))
        return [str(p) for p in found["problems"]]


def inside(tmp_path: Path, **options: Any) -> Inside:
    store = MemoryStore(tmp_path / "store")
    layout: Digest = released(store, **options)
    labels = unpack(store.materialise(layout), tmp_path / "root")
    return Inside(tmp_path / "root", labels)


def test_all_of_it_holds(tmp_path: Path) -> None:
    image = inside(tmp_path)
    status, out, err = image.run()
    assert (status, err) == (0, "all of it holds\n")
    assert "demo: 6 files as listed, 2 of 4 tracked files installed, 2 equal" in out


def test_everything_that_differs_is_named(tmp_path: Path) -> None:
    image = inside(tmp_path)
    (image.root / "opt/demo/run").write_bytes(b"evil\n")
    (image.root / "opt/demo/link").unlink()
    (image.root / "opt/demo/link").symlink_to("elsewhere")
    (image.root / SITE / "demo/__init__.py").chmod(0o600)
    (image.root / SITE / "demo/engine.py").write_bytes(b"hotfix\n")
    (image.root / SITE / "demo/_version.py").unlink()
    (image.root / SITE / "demo/_version.py").mkdir()
    (image.root / SITE / "demo-1.0.dist-info/METADATA").unlink()
    assert sorted(image.problems()) == [
        "/opt/demo/link leads elsewhere",
        "/opt/demo/run has other content",
        f"/{SITE}/demo-1.0.dist-info/METADATA is missing",
        f"/{SITE}/demo/__init__.py has mode 0600, not 0644",
        f"/{SITE}/demo/_version.py is of another kind",
        f"/{SITE}/demo/engine.py has other content",
        f"/{SITE}/demo/engine.py is not as its tracked source",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owners_are_seen_by_root(tmp_path: Path) -> None:
    image = inside(tmp_path)
    os.chown(image.root / "opt/demo/run", 7, 8)
    assert image.problems() == ["/opt/demo/run belongs to 7:8, not 0:0"]


def test_any_file_is_traced_to_its_pull_requests(tmp_path: Path) -> None:
    image = inside(tmp_path)
    path = str(image.root / SITE / "demo/engine.py")
    status, out, _ = image.run("--which", path)
    (found,) = json.loads(out)
    assert status == 0
    assert (found["component"], found["drv"], found["path"]) == (
        "demo", DRV, f"/{SITE}/demo/engine.py",
    )  # fmt: skip
    assert found["layer"].startswith("sha256:")
    assert found["origin"] == {"drv": DRV, "kind": "derivation", "name": "demo.build"}
    assert [p["number"] for p in found["pull_requests"]] == [7]
    assert found["integration_tree"] == git_tree(SOURCE)
    status, out, _ = image.run("--which", str(image.root / "nothing"))
    assert (status, json.loads(out)[0]["component"]) == (1, "")


def test_labels_are_those_of_the_config(tmp_path: Path) -> None:
    image = inside(tmp_path)
    status, out, _ = image.run("--labels")
    assert (status, json.loads(out)) == (0, image.labels)
    config = tmp_path / "inspect.json"
    config.write_text(json.dumps([{"Config": {"Labels": image.labels}}]))
    assert image.run("--against", str(config))[0] == 0
    config.write_text(
        json.dumps({"config": {"Labels": {**image.labels, "org.example.demo.drv": "x"}}})
    )
    status, _, err = image.run("--against", str(config))
    assert (status, "org.example.demo.drv is x" in err) == (1, True)


@pytest.mark.parametrize(
    "release",
    [{}, {"model_revision": "abc"}, {"dirty": ["b", "a"]}, {"cache_fingerprint": "cu133-x"},
     {"runtime": {"cuda": "13.3"}, "labels": {"some.label": "x"}, "title": ""}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(
    "component", [{}, {"archs": ["sm_120a", "sm_90"]}, {"version": ""}], ids=str
)
def test_both_programs_make_the_same_labels(
    release: dict[str, Any], component: dict[str, Any]
) -> None:
    said = document(row(tree="blake3:" + "e" * 64, **component), **release)
    assert verify.labels_of(said) == labels_of(said)
    del said["components"][0]["source"]
    assert verify.labels_of(said) == labels_of(said)


@pytest.mark.parametrize(
    ("stated", "found", "same"),
    [("13.3", "13.3.29", True), ("2.13.0", "2.13.0+cu133", True), ("13.3", "13", True),
     ("13.3", "13.2.1", False), ("2.13.0", "2.12.0", False), ("1", "10", False)],
)  # fmt: skip
def test_versions_that_agree(stated: str, found: str, same: bool) -> None:
    assert verify.agrees(stated, found) is same


def test_runtime_versions_are_held_against_what_is_installed(tmp_path: Path) -> None:
    said = document(row(), runtime={"cuda": "13.3", "nccl": "2.28", "unheard-of": "1"})
    image = inside(tmp_path, stated=said)
    library = image.root / "usr/local/cuda/lib64"
    library.mkdir(parents=True)
    (library / "libcudart.so.13.2.75").write_bytes(b"")
    _, out, _ = image.run("--json")
    assert json.loads(out)["runtime"] == {
        "cuda": {"found": "13.2.75", "stated": "13.3"},
        "nccl": {"found": "", "stated": "2.28"},
        "unheard-of": {"found": "", "stated": "1"},
    }
    assert image.problems() == ["cuda is 13.2.75, the release says 13.3"]


def test_nothing_to_check_against(tmp_path: Path) -> None:
    image = inside(tmp_path)
    for text in ("", "{", "[]", '{"format": 1}'):
        (image.root / PLACE / "statement.json").write_text(text)
        assert image.run("--json")[0] == 2
    (image.root / PLACE / "statement.json").unlink()
    assert image.run()[0] == 2


def test_names_that_are_no_text(tmp_path: Path) -> None:
    odd = {**INSTALLED, "opt/a b\n%25": b"x", "opt/ä": b"y"}
    image = inside(tmp_path, installed=odd)
    assert image.problems() == []
    (image.root / "opt/a b\n%25").write_bytes(b"z")
    assert image.problems() == ["/opt/a b\n%25 has other content"]
