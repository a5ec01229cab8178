from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import image as image_builder
from reprobuild.adapters.oci.archive import write_archive, write_directory
from reprobuild.adapters.oci.layout import open_layout, read_layout
from reprobuild.adapters.oci.storelayout import load_image, read_image
from reprobuild.adapters.oci.verify import verify_blobs
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value
from reprobuild.core.image import RunConfig, qualified
from reprobuild.errors import ReprobuildError
from support.archives import tar_entry
from support.images import CREATED, REFERENCE, foreign_image, image, layer, quick_image
from support.trees import Given, listing, make

ROOT: dict[str, Given] = {"usr/bin/x": (b"x", True)}


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def documents(store: MemoryStore, tree: Digest) -> tuple[dict[str, Value], dict[str, Value]]:
    """Manifest and config."""
    found = listing(store, tree)
    facts = read_image(store, tree)
    manifest = found[f"blobs/sha256/{facts.manifest_digest.hex}"]
    config = found[f"blobs/sha256/{facts.config_digest.hex}"]
    assert isinstance(manifest, bytes) and isinstance(config, bytes)
    return json.loads(manifest), json.loads(config)


def test_the_layout_holds_exactly_its_image(store: MemoryStore) -> None:
    tree = quick_image(store)
    facts = read_image(store, tree)
    assert set(listing(store, tree)) == {
        "oci-layout",
        "index.json",
        *(f"blobs/sha256/{d.hex}" for d in (facts.manifest_digest, facts.config_digest)),
        *(f"blobs/sha256/{la.digest.hex}" for la in facts.layers),
    }
    assert facts.reference == REFERENCE
    assert [la.component for la in facts.layers] == ["base", "demo"]
    assert facts.labels["local-inference.base.digest"].startswith("blake3:")


def test_the_command_lines_document(store: MemoryStore) -> None:
    document = read_image(store, quick_image(store)).document()
    assert set(document) == {"reference", "config_digest", "manifest_digest", "layers", "labels"}
    rows = document["layers"]
    assert isinstance(rows, list)
    assert set(rows[0]) == {"component", "diff_id", "digest", "size"}


def test_the_config_to_the_letter(store: MemoryStore) -> None:
    tree = image(
        store,
        {"one": layer(store, ROOT)},
        config={
            "env": {"PATH": "/usr/bin", "A": "b=c"},
            "entrypoint": ["/usr/bin/x"],
            "cmd": [],
            "workdir": "/w",
            "user": "5:6",
            "labels": {"k": "v"},
            "ports": ["80/tcp"],
            "volumes": ["/data"],
            "stop_signal": "SIGINT",
        },
    )
    manifest, config = documents(store, tree)
    (found,) = read_image(store, tree).layers
    assert config == {
        "architecture": "amd64",
        "os": "linux",
        "created": CREATED,
        "config": {
            "Env": ["A=b=c", "PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/x"],
            "Cmd": [],
            "WorkingDir": "/w",
            "User": "5:6",
            "Labels": {"k": "v"},
            "ExposedPorts": {"80/tcp": {}},
            "Volumes": {"/data": {}},
            "StopSignal": "SIGINT",
        },
        "rootfs": {"type": "layers", "diff_ids": [str(found.diff_id)]},
        "history": [{"created": CREATED, "created_by": "reprobuild: one"}],
    }
    assert manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert manifest["layers"] == [
        {
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": str(found.digest),
            "size": found.size,
            "annotations": {"reprobuild.component": "one"},
        }
    ]


def test_a_label_moves_the_config_and_no_layer(store: MemoryStore) -> None:
    layers = {"one": layer(store, ROOT)}
    first = read_image(store, image(store, layers, config={"labels": {"a": "1"}}))
    second = read_image(store, image(store, layers, config={"labels": {"a": "2"}}))
    assert first.layers == second.layers
    assert first.config_digest != second.config_digest


def test_the_reference_moves_neither(store: MemoryStore) -> None:
    layers = {"one": layer(store, ROOT)}
    first = read_image(store, image(store, layers, reference="a/b:1"))
    second = read_image(store, image(store, layers, reference="a/b:2"))
    assert first.manifest_digest == second.manifest_digest


def test_a_changed_component_changes_its_layer_alone(store: MemoryStore) -> None:
    one, two = layer(store, ROOT), layer(store, {"opt/a": b"1"})
    changed = layer(store, {"opt/a": b"2"})
    first = read_image(store, image(store, {"one": one, "two": two}))
    second = read_image(store, image(store, {"one": one, "two": changed}))
    assert first.layers[0] == second.layers[0]
    assert first.layers[1] != second.layers[1]


# -- over a base ---------------------------------------------------------------------------------


def test_a_base_image_keeps_its_layers_and_words(store: MemoryStore) -> None:
    run = RunConfig(
        env={"PATH": "/base", "B": "1"},
        entrypoint=["/base"],
        cmd=["old"],
        labels={"base": "yes", "both": "base"},
        user="9",
    )
    base = foreign_image(store, [[tar_entry("etc/a", b"a")], [tar_entry("etc/b", b"b")]], run)
    known = load_image(store, base)
    own = layer(store, {"etc/c": b"c"}, {"base-0": base})
    tree = image(
        store,
        {"own": own},
        {"base-0": base},
        config={"env": {"PATH": "/own"}, "entrypoint": ["/own"], "labels": {"both": "own"}},
    )
    facts = read_image(store, tree)
    assert [la.digest for la in facts.layers[:2]] == [la.digest for la in known.facts.layers]
    assert [la.component for la in facts.layers] == ["", "", "own"]
    _, config = documents(store, tree)
    run_config = config["config"]
    assert run_config == {
        "Env": ["PATH=/own", "B=1"],
        "Entrypoint": ["/own"],
        "Labels": {"base": "yes", "both": "own"},
        "User": "9",
    }
    history = config["history"]
    assert isinstance(history, list)
    assert len(history) == 3


def test_without_an_entrypoint_the_bases_command_stays(store: MemoryStore) -> None:
    base = foreign_image(store, [[]], RunConfig(entrypoint=["/e"], cmd=["c"]))
    _, config = documents(store, image(store, {"own": layer(store, ROOT)}, {"base-0": base}))
    assert config["config"] == {"Entrypoint": ["/e"], "Cmd": ["c"]}


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"etc/x": b"1"}, {"etc/x": b"2"}),
        ({"etc/x": b"1"}, {"etc/x": (b"1", True)}),
        ({"lib": "usr/lib"}, {"lib/a": b""}),
        ({"a/b": b""}, {"a": b""}),
    ],
)
def test_layers_that_overlap(
    store: MemoryStore, first: dict[str, Given], second: dict[str, Given]
) -> None:
    layers = {"first": layer(store, first), "second": layer(store, second)}
    with pytest.raises(ReprobuildError) as error:
        image(store, layers)
    assert error.value.code == "E-IMAGE-OVERLAP"
    assert (error.value.facts["first"], error.value.facts["second"]) == ("first", "second")


def test_layers_may_share_equal_content(store: MemoryStore) -> None:
    layers = {
        "first": layer(store, {"d/same": b"1", "d/a": b""}),
        "second": layer(store, {"d/same": b"1", "d/b": b""}),
    }
    assert len(read_image(store, image(store, layers)).layers) == 2


def test_a_later_layer_may_replace_what_is_named(store: MemoryStore) -> None:
    layers = {"first": layer(store, {"e/x": b"1"}), "second": layer(store, {"e/x": b"2"})}
    assert len(read_image(store, image(store, layers, replace=["e/*"])).layers) == 2
    with pytest.raises(ReprobuildError):
        image(store, layers, replace=["f/*"])


def test_the_placed_trees_count_where_they_are_given(store: MemoryStore) -> None:
    below = layer(store, {"lib": "usr/lib", "usr/lib/a": b"a"})
    files: dict[str, Given] = {"lib/b": b"b"}
    above = layer(store, files, {"below-0": below["tree"]})
    unplaced = {"out": above["out"], "tree": make(store, files)}
    with pytest.raises(ReprobuildError) as error:
        image(store, {"below": below, "above": unplaced})
    assert error.value.code == "E-IMAGE-OVERLAP"
    tree = image(store, {"below": below, "above": unplaced}, {"placed-1": above["tree"]})
    assert len(read_image(store, tree).layers) == 2


@pytest.mark.parametrize(
    "params",
    [
        {"created": "yesterday"},
        {"created": "2026-01-31T00:00:00+01:00"},
        {"reference": "no tag"},
        {"reference": "UPPER/case:1"},
        {"reference": "a/b:bad tag"},
        {"components": ["one", "two"]},
        {"components": []},
        {"config": {"env": {"A=B": ""}}},
        {"config": {"environment": {}}},
        {"tree_labels": {"x": "tree-7"}},
        {"config": {"labels": {"x": ""}}, "tree_labels": {"x": "tree-0"}},
    ],
    ids=str,
)
def test_parameters_that_are_off(store: MemoryStore, params: dict[str, Value]) -> None:
    layers = {"one": layer(store, ROOT)}
    with pytest.raises(ReprobuildError) as error:
        image(store, layers, {}, **params)
    assert error.value.code == "E-PARAMS"


def test_too_many_layers(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_builder, "MAX_LAYERS", 1)
    layers = {"a": layer(store, {"a": b""}), "b": layer(store, {"b": b""})}
    with pytest.raises(ReprobuildError) as error:
        image(store, layers)
    assert error.value.code == "E-PARAMS"


def changed(store: MemoryStore, tree: Digest, path: str, data: bytes | None) -> Digest:
    """The layout with one file replaced, or taken away."""
    files = listing(store, tree)
    if data is None:
        del files[path]
    else:
        files[path] = data
    return make(store, files)


def test_layouts_that_are_off(store: MemoryStore) -> None:
    tree = quick_image(store)
    facts = read_image(store, tree)
    index = listing(store, tree)["index.json"]
    assert isinstance(index, bytes)
    manifest = f"blobs/sha256/{facts.manifest_digest.hex}"
    config = f"blobs/sha256/{facts.config_digest.hex}"
    first = f"blobs/sha256/{facts.layers[0].digest.hex}"
    two = json.loads(index)
    two["manifests"] *= 2
    other = json.loads(index)
    other["manifests"][0]["platform"]["architecture"] = "arm64"
    bad: list[tuple[str, bytes | None]] = [
        ("oci-layout", None),
        ("oci-layout", b"["),
        ("index.json", None),
        ("index.json", b"[]"),
        ("index.json", b'{"manifests": 5}'),
        ("index.json", b'{"manifests": [{"digest": "sha256:../../etc/passwd", "size": 1}]}'),
        ("index.json", b'{"manifests": [{"digest": "md5:00", "size": 1}]}'),
        ("index.json", b"[" * 100_000),
        ("index.json", json.dumps(two).encode()),
        ("index.json", json.dumps(other).encode()),
        (manifest, None),
        (manifest, b"{}"),
        (config, None),
        (config, b"{}"),
        (first, None),
        (first, b"short"),
    ]
    for path, data in bad:
        with pytest.raises(ReprobuildError) as error:
            read_image(store, changed(store, tree, path, data))
        assert error.value.code in ("E-IMAGE", "E-DIGEST"), (path, data)


# -- on the disk ---------------------------------------------------------------------------------


def test_archive_and_directory_hold_the_same_image(store: MemoryStore, tmp_path: Path) -> None:
    tree = quick_image(store)
    facts = read_image(store, tree)
    with open_layout(store.materialise(tree)) as files:
        assert read_layout(files) == facts
        verify_blobs(files, facts)
        size = write_archive(files, facts, "other/name:2", tmp_path / "a.tar")
        write_archive(files, facts, "other/name:2", tmp_path / "b.tar")
        write_directory(files, facts, "other/name:2", tmp_path / "dir")
    assert (tmp_path / "a.tar").stat().st_size == size
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    for path in (tmp_path / "a.tar", tmp_path / "dir"):
        with open_layout(path) as files:
            copy = read_layout(files)
            verify_blobs(files, copy)
        assert copy.reference == "other/name:2"
        assert (copy.config_digest, copy.manifest_digest, copy.layers) == (
            facts.config_digest,
            facts.manifest_digest,
            facts.layers,
        )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "b.tar", "dir", "store"]


def test_names_may_be_as_long_as_names_can_be(store: MemoryStore, tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    with open_layout(store.materialise(quick_image(store))) as files:
        facts = read_layout(files)
        write_archive(files, facts, "a:1", tmp_path / ("a" * longest))
        write_directory(files, facts, "a:1", tmp_path / ("d" * longest))
    assert sorted(len(p.name) for p in tmp_path.iterdir()) == [5, longest, longest]


def test_a_directory_that_exists_is_left_alone(store: MemoryStore, tmp_path: Path) -> None:
    tree = quick_image(store)
    (tmp_path / "dir").mkdir()
    with open_layout(store.materialise(tree)) as files, pytest.raises(ReprobuildError) as error:
        write_directory(files, read_layout(files), "a:1", tmp_path / "dir")
    assert error.value.code == "E-USAGE"


def test_a_full_disk_leaves_the_old_file(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = quick_image(store)
    (tmp_path / "image.tar").write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("reprobuild.adapters.oci.archive.os.fsync", full)
    with open_layout(store.materialise(tree)) as files:
        facts = read_layout(files)
        with pytest.raises(OSError, match="No space"):
            write_archive(files, facts, "a:1", tmp_path / "image.tar")
        with pytest.raises(OSError, match="No space"):
            write_directory(files, facts, "a:1", tmp_path / "dir")
    assert (tmp_path / "image.tar").read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["image.tar", "store"]


def test_a_damaged_layer_is_found(store: MemoryStore, tmp_path: Path) -> None:
    tree = quick_image(store)
    facts = read_image(store, tree)
    path = f"blobs/sha256/{facts.layers[0].digest.hex}"
    data = listing(store, tree)[path]
    assert isinstance(data, bytes)
    for position in (0, 20, len(data) - 3):
        damaged = bytearray(data)
        damaged[position] ^= 1
        bad = store.materialise(changed(store, tree, path, bytes(damaged)))
        for write in (
            lambda files: verify_blobs(files, facts),
            lambda files: write_archive(files, facts, "a:1", tmp_path / "a.tar"),
            lambda files: write_directory(files, facts, "a:1", tmp_path / "dir"),
        ):
            with open_layout(bad) as files, pytest.raises(ReprobuildError) as error:
                write(files)
            assert error.value.code == "E-IMAGE-VERIFY"
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("make_it", ["missing", "text", "empty-directory", "linked"])
def test_what_is_no_layout(tmp_path: Path, make_it: str) -> None:
    path = tmp_path / "x"
    if make_it == "text":
        path.write_bytes(b"hello" * 500)
    elif make_it != "missing":
        path.mkdir()
    if make_it == "linked":
        (path / "oci-layout").symlink_to("/etc/passwd")
    with pytest.raises(ReprobuildError) as error, open_layout(path) as files:
        read_layout(files)
    assert error.value.code == "E-IMAGE"


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("a:1", "docker.io/library/a:1"),
        ("a/b:1", "docker.io/a/b:1"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        ("localhost/a:1", "localhost/a:1"),
        ("host:5000/a:1", "host:5000/a:1"),
    ],
)
def test_qualified_references(given: str, full: str) -> None:
    assert qualified(given) == full


def test_golden_image(store: MemoryStore) -> None:
    # These move only together with a version of the `layer` or `image` built-in.
    facts = read_image(store, quick_image(store))
    assert [
        facts.config_digest.hex,
        facts.manifest_digest.hex,
        *(la.diff_id.hex for la in facts.layers),
        *(la.digest.hex for la in facts.layers),
    ] == [
        "228bb2986c26d5499a6fbe96a6f2ae02929d9baff732fa4dfd15b67f66b60ab9",
        "b1c441317060bfe0623fd02405e81caa3a18e808bd62f9344e87c14f98664ecd",
        "cda9739d517add78da03b30623c3806e0c3cba2ec33ed5e274fd87eff01b51fc",
        "ed9f33c6f62c84f0a07674e8f32464564e1c174ed4cf2248baa58ad8aa1e4d5b",
        "654c7fe47430e8a6f07e486d01d943814044d8ffa5f628fd1d575bf8c30ec910",
        "07266b99a0dc3770dd25a31fe2391f76311513ac754ac9c52069a9f6a8a25536",
    ]


def test_blobs_are_what_they_are_called(store: MemoryStore) -> None:
    import hashlib

    for path, data in listing(store, quick_image(store)).items():
        if path.startswith("blobs/"):
            assert isinstance(data, bytes)
            assert hashlib.sha256(data).hexdigest() == path.rpartition("/")[2]
    assert Sha256(hashlib.sha256(io.BytesIO(b"").read()).hexdigest()).hex.startswith("e3b0c442")
