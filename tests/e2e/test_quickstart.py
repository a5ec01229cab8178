"""The quickstart the whole way: real kernels, real packages, the image and what runs in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.quickstart import Command, copy_quickstart, edit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

COMPONENTS = ["debian", "cuda-runtime", "tvm-ffi", "flashinfer", "lmcache", "b12x", "vllm"]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    base = tmp_path_factory.mktemp("quickstart")
    return Command(copy_quickstart(base / "project"), base / "store")


@pytest.fixture(scope="module")
def first(command: Command) -> dict[str, Any]:
    """What the first realize printed."""
    return command.json("realize")


@pytest.fixture
def variant(command: Command, first: dict[str, Any], tmp_path: Path) -> Command:
    """Another copy to change, over the same store, where the first has been realized."""
    assert first["image"]
    return Command(copy_quickstart(tmp_path / "project"), command.store)


def _layers(document: dict[str, Any]) -> dict[str, str]:
    return {row["component"]: row["diff_id"] for row in document["image"]["layers"]}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    old, new = _layers(before), _layers(after)
    return {name for name in old | new if old.get(name) != new.get(name)}


def test_everything_is_built_once(command: Command, first: dict[str, Any]) -> None:
    assert first["counts"]["built"] > 50
    assert first["counts"]["fetched"] > 50
    assert first["outputs"]["quickstart"]["isolation"] == "full"
    again = command.json("realize", offline=True)
    assert again["counts"]["built"] == again["counts"]["fetched"] == 0
    assert again["image"] == first["image"]
    assert "nothing to do" in command.run("realize")


def test_one_layer_a_component(first: dict[str, Any]) -> None:
    assert [row["component"] for row in first["image"]["layers"]] == [*COMPONENTS, "statement"]
    labels = first["image"]["labels"]
    for name in COMPONENTS:
        assert labels[f"local-inference.{name}.drv"].startswith("blake3:")
        assert labels[f"local-inference.{name}.tree"].startswith("blake3:")
    for name in ("b12x", "lmcache", "vllm"):
        assert len(labels[f"local-inference.{name}.commit"]) == 40
        assert labels[f"local-inference.{name}.integration.heads"].count("@") == 4


def test_another_directory_store_and_surroundings_give_the_same_image(
    first: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Chatham")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("PYTHONHASHSEED", "4242")
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/nonexistent")
    other = Command(copy_quickstart(tmp_path / "else where" / "project"), tmp_path / "store")
    old_mask = os.umask(0o077)
    try:
        second = other.json("realize")
    finally:
        os.umask(old_mask)
    assert second["counts"]["built"] == first["counts"]["built"]
    assert second["image"] == first["image"]
    shutil.rmtree(tmp_path / "store", ignore_errors=True)


def test_one_more_head_changes_one_layer(command: Command, first: dict[str, Any]) -> None:
    newer = command.json("realize", "quickstart-r2")
    assert _changed(first, newer) == {"vllm", "statement"}


def test_a_changed_file_rebuilds_its_component_and_the_image(
    variant: Command, first: dict[str, Any]
) -> None:
    fixture = variant.project / "fixtures" / "vllm"
    edit(fixture / "pull-107/vllm_standin/scheduler.py", "MAX_BATCH = 8", "MAX_BATCH = 4")
    variant.run("realize", status=4)  # the lock still names the old text
    variant.run("lock", "--update", "vllm", offline=True)
    built = {row["name"] for row in _built(variant)}
    assert {name.partition(".")[0] for name in built} == {"quickstart", "vllm"}
    assert {name for name in built if name.endswith(".layer")} == {
        "quickstart.statement.layer",
        "quickstart.vllm.layer",
    }
    assert _changed(first, variant.json("realize")) == {"vllm", "statement"}


def test_a_comment_in_a_header_stops_at_its_object(variant: Command, first: dict[str, Any]) -> None:
    header = variant.project / "fixtures/b12x/pull-40/csrc/b12x/e4m3.cuh"
    edit(header, "#pragma once\n", "#pragma once\n// Nothing but a comment.\n")
    variant.run("lock", "--update", "b12x", offline=True)
    built = {row["name"] for row in _built(variant)}
    assert "b12x.block_dequant:block_dequant.cu" in built
    assert "b12x.block_dequant" not in built
    # The image says which sources it is made of, and they changed.
    assert _changed(first, variant.json("realize")) == {"statement"}


def test_kernels_alone_cost_nothing_more(command: Command, first: dict[str, Any]) -> None:
    assert first["image"]
    document = command.json("realize", "quickstart.flashinfer", offline=True)
    assert document["counts"]["built"] == 0
    (output,) = document["outputs"].values()
    names = {path.name for path in Path(output["path"]).iterdir()}
    assert names == {
        f"{m}.so" for m in ("fp4_kv_dequant", "fp4_kv_quant", "hash_topk", "silu_and_mul")
    }


# -- what runs in it --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def container(
    first: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """The words that run something in the image's files, without a network."""
    for tool in ("skopeo", "umoci"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    base = tmp_path_factory.mktemp("container")
    layout = first["outputs"]["quickstart"]["path"]
    rootless = [] if os.geteuid() == 0 else ["--rootless"]
    for words in (
        ["skopeo", "copy", "-q", f"oci:{layout}", f"oci:{base}/layout:image"],
        ["umoci", "unpack", *rootless, "--image", f"{base}/layout:image", str(base / "bundle")],
    ):
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    process = json.loads((base / "bundle/config.json").read_text())["process"]
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv"]
    words += ["--ro-bind", str(base / "bundle/rootfs"), "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--tmpfs", "/tmp"]
    for pair in process["env"]:
        name, _, value = pair.partition("=")
        words += ["--setenv", name, value]
    yield words
    shutil.rmtree(base, ignore_errors=True)


def _inside(container: list[str], *words: str) -> str:
    done = subprocess.run([*container, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_image_prints_its_contract(container: list[str], first: dict[str, Any]) -> None:
    printed = _inside(container, "/usr/bin/python3", "/usr/share/reprobuild/contract.py")
    assert first["image"]["reference"] in printed
    for name in COMPONENTS:
        assert any(line.split()[0] == name for line in printed.splitlines() if line), name
    assert printed.count("sm_120a") == 3


@pytest.mark.docker
def test_a_docker_daemon_loads_and_runs_it(
    command: Command,
    first: dict[str, Any],
    docker_host: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    command.run("image", "load", "quickstart")
    reference = first["image"]["reference"]
    shown = subprocess.run(
        ["docker", "image", "inspect", reference], check=True, capture_output=True, text=True
    ).stdout
    # A classic daemon names an image by its config, one over containerd by its manifest.
    known = {first["image"]["config_digest"], first["image"]["manifest_digest"]}
    assert json.loads(shown)[0]["Id"] in known
    assert json.loads(shown)[0]["Config"]["Labels"] == first["image"]["labels"]
    ran = subprocess.run(
        ["docker", "run", "--rm", "--network=none", reference],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert reference in ran
    assert ran.count("sm_120a") == 3


def test_flashinfer_s_kernels_load(container: list[str]) -> None:
    program = (
        "import tvm_ffi\n"
        "for name in ('fp4_kv_dequant', 'fp4_kv_quant', 'hash_topk', 'silu_and_mul'):\n"
        "    module = tvm_ffi.load_module(f'/opt/flashinfer/lib/{name}.so')\n"
        "    print(name, module is not None)\n"
        "print(module.get_function('silu_and_mul') is not None)\n"
    )
    assert _inside(container, "python3", "-c", program).split()[-1] == "True"


@pytest.mark.parametrize(
    ("name", "said"), [("b12x", "block_dequant"), ("lmcache", "gather, scatter"), ("vllm", "r3")]
)
def test_a_stand_in_runs_in_the_image(container: list[str], name: str, said: str) -> None:
    printed = _inside(container, "python3", "-m", f"{name}_standin")
    assert json.loads(printed)["stand_in_for"] == name
    assert said in printed


def test_python_s_own_modules_import(container: list[str]) -> None:
    modules = "bz2, ctypes, decimal, hashlib, importlib.metadata, lzma, ssl, tomllib, uuid, zlib"
    _inside(container, "python3", "-c", f"import {modules}")


def _built(command: Command) -> list[dict[str, Any]]:
    """The steps that a realize really built, from its events."""
    events = command.store.parent / "events.jsonl"
    events.unlink(missing_ok=True)
    command.run("--events", str(events), "realize")
    rows = [json.loads(line) for line in events.read_text().splitlines()]
    return [row for row in rows if row.get("how") == "built"]
