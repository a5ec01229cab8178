"""`image verify`: an image checked from nothing but itself; and what goes into its statement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci.archive import write_archive
from reprobuild.adapters.oci.delivery import Images
from reprobuild.adapters.oci.layout import open_layout, read_layout
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from support.images import layer, quick_image
from support.released import DRV, INSTALLED, PREFIX, SOURCE, document, git_tree, released, row

SITE = "usr/lib/python3/dist-packages"


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def problems(store: MemoryStore, layout: Digest) -> list[str]:
    """Everything that verifying it names."""
    with pytest.raises(ReprobuildError) as error:
        Images().verify(store.materialise(layout))
    assert (error.value.code, error.value.exit_status) == ("E-IMAGE-VERIFY", 9)
    found = error.value.facts.get("problems") or [error.value.message]
    assert isinstance(found, list)
    return [str(line) for line in found]


def test_an_image_that_is_what_it_says(store: MemoryStore) -> None:
    result = Images().verify(store.materialise(released(store)))
    assert (len(result.facts.layers), result.components, result.files) == (2, 1, 6)
    assert result.sources == {
        "demo": {
            "different": [],
            "equal": 2,
            "files": 4,
            "git_tree": git_tree(SOURCE),
            "installed": 2,
            "integration_tree": git_tree(SOURCE),
        }
    }


def test_the_statement_accounts_for_everything(store: MemoryStore) -> None:
    statement = Images().statement(store.materialise(released(store)))
    (component,) = statement["components"]
    assert component["attribution"] == {"derivation": 4, "source": 2}
    assert component["tracked"] == {
        "changed": [], "equal": 2, "files": 4, "git_tree": git_tree(SOURCE), "installed": 2,
    }  # fmt: skip
    assert component["packages"] == [
        {"licence": "Apache-2.0", "name": "demo", "type": "pypi", "version": "1.0"}
    ]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({f"{PREFIX}.demo.drv": "blake3:" + "0" * 64}, "label org.example.demo.drv is"),
        ({f"{PREFIX}.demo.commit": None}, "no label org.example.demo.commit"),
        ({f"{PREFIX}.demo.tree": None}, "no label org.example.demo.tree"),
        ({f"{PREFIX}.demo.integration.tree": "f" * 40}, "demo.integration.tree"),
        ({"org.opencontainers.image.version": "v2"}, "image.version is v2"),
        ({f"{PREFIX}.other.commit": "c" * 40}, "knows no label org.example.other.commit"),
    ],
    ids=str,
)
def test_labels_that_do_not_follow(
    store: MemoryStore, labels: dict[str, str | None], message: str
) -> None:
    (found,) = problems(store, released(store, labels=labels))
    assert message in found


def test_a_layer_that_was_exchanged(store: MemoryStore) -> None:
    files = {**INSTALLED, "opt/demo/run": (b"#!/bin/sh\nevil\n", True)}
    found = problems(store, released(store, change=lambda _: layer(store, files, name="demo")))
    assert any("of demo is not in the image" in line for line in found)
    assert any("does not know the layer" in line for line in found)


def test_every_file_that_differs_is_named(store: MemoryStore, tmp_path: Path) -> None:
    """A forger who keeps the diffIDs consistent is caught by the lists, file by file."""
    from reprobuild.adapters.oci.verify import compare
    from reprobuild.core.filelist import Listed

    def entry(path: bytes, **change: Any) -> Listed:
        return Listed(**{"kind": "f", "mode": 0o644, "uid": 0, "gid": 0, "size": 1, "path": path,
                         "content": "0" * 64, **change})  # fmt: skip

    expected = {e.path: e for e in (
        entry(b"same"), entry(b"gone"), entry(b"kind"), entry(b"content"), entry(b"mode"),
        entry(b"owner"), entry(b"x", kind="x", mode=0o755),
    )}  # fmt: skip
    found = {e.path: e for e in (
        entry(b"same"), entry(b"more"), entry(b"kind", kind="l"),
        entry(b"content", content="1" * 64),
        entry(b"mode", mode=0o600), entry(b"owner", uid=7), entry(b"x", mode=0o755),
    )}  # fmt: skip
    assert compare("demo", expected, found) == [
        "/content of demo has other content",
        "/gone of demo is missing",
        "/kind of demo is of another kind",
        "/mode of demo has mode 0600 of 0:0, not 0644 of 0:0",
        "/more of demo is not in the list",
        "/owner of demo has mode 0644 of 7:0, not 0644 of 0:0",
    ]


def test_a_blob_that_is_damaged(store: MemoryStore, tmp_path: Path) -> None:
    with open_layout(store.materialise(released(store))) as files:
        facts = read_layout(files)
        write_archive(files, facts, "x:1", tmp_path / "x.tar")
    data = bytearray((tmp_path / "x.tar").read_bytes())
    with (
        open_layout(store.materialise(released(store))) as files,
        files.open(f"blobs/sha256/{facts.layers[0].digest.hex}") as blob,
    ):
        place = data.find(blob.read())
    data[place + 60] ^= 1
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(ReprobuildError) as error:
        Images().verify(tmp_path / "x.tar")
    assert error.value.code == "E-IMAGE-VERIFY"


@pytest.mark.parametrize(
    ("change", "message"),
    [({"format": 1}, "is off"), ({"release": 1}, "is off"), ({"components": [{"name": 1}]}, "off")],
    ids=str,
)
def test_statements_that_are_off(
    store: MemoryStore, change: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reprobuild.adapters.oci import statement

    with pytest.raises(ReprobuildError) as error:
        statement._parse(json.dumps({**document(row()), **change}).encode())
    assert error.value.code == "E-IMAGE-VERIFY"
    assert message in error.value.message


def test_an_image_without_a_statement(store: MemoryStore) -> None:
    (found,) = problems(store, quick_image(store))
    assert "statement.json" in found


def test_saving_where_nothing_can_be_written(store: MemoryStore, tmp_path: Path) -> None:
    layout = store.materialise(quick_image(store))
    with pytest.raises(ReprobuildError) as error:
        Images().save(layout, tmp_path / "no/such/place.tar")
    assert error.value.code == "E-IMAGE-WRITE"


# -- attribution ----------------------------------------------------------------------------------


def test_an_overlay_over_a_tracked_file_fails(store: MemoryStore) -> None:
    patched = {**INSTALLED, f"{SITE}/demo/engine.py": b"def run() -> None: hotfix()\n"}
    with pytest.raises(ReprobuildError) as error:
        released(store, installed=patched)
    assert (error.value.code, error.value.exit_status) == ("E-ATTRIBUTION", 9)
    assert error.value.facts["paths"] == [f"/{SITE}/demo/engine.py"]
    assert "head or a patch" in error.value.hint


def test_a_declared_change_is_told(store: MemoryStore) -> None:
    patched = {**INSTALLED, f"{SITE}/demo/engine.py": b"def run() -> None: hotfix()\n"}
    said = document(row(modified={f"{SITE}/demo/engine.py": "waits for pull request 9"}))
    result = Images().verify(store.materialise(released(store, installed=patched, stated=said)))
    assert result.sources["demo"]["different"] == [f"/{SITE}/demo/engine.py"]
    assert (result.sources["demo"]["installed"], result.sources["demo"]["equal"]) == (2, 1)


def test_a_file_from_nowhere_fails(store: MemoryStore) -> None:
    made = {k: v for k, v in INSTALLED.items() if k != "opt/demo/run"}
    with pytest.raises(ReprobuildError) as error:
        released(store, made=made)
    assert error.value.code == "E-ATTRIBUTION"
    assert error.value.facts["paths"] == ["/opt/demo/run"]


def test_a_source_that_is_not_its_git_tree_fails(store: MemoryStore) -> None:
    with pytest.raises(ReprobuildError) as error:
        released(store, source={**SOURCE, "demo/engine.py": b"other\n"})
    assert error.value.code == "E-ATTRIBUTION"
    assert git_tree(SOURCE) in error.value.message


def test_packages_known_by_their_pins(store: MemoryStore) -> None:
    pin = {"filename": "nvidia_cuda_runtime.whl", "kind": "wheel", "name": "nvidia-cuda-runtime",
           "sha256": "3" * 64, "version": "13.3.29"}  # fmt: skip
    statement = Images().statement(store.materialise(released(store, pins=(pin,))))
    assert {
        "licence": "LicenseRef-NVIDIA-Proprietary",
        "name": "nvidia-cuda-runtime",
        "type": "pypi",
        "version": "13.3.29",
    } in statement["components"][0]["packages"]
    assert statement["components"][0]["drv"] == DRV
