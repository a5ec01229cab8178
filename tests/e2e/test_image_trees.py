"""What other tools unpack is what was declared, file by file; and nothing else is in an image."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import requests

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders.decompress import decompressed
from reprobuild.adapters.docker.push import RegistrySink
from reprobuild.adapters.oci.delivery import Images
from reprobuild.adapters.oci.storelayout import read_image
from support.demo import Demo, needs_sandbox
from support.registry import running
from support.unpacked import check_unpacked, over_base


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def run(*words: str | Path) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not shutil.which("umoci"), reason="umoci is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="owners need root")
def test_umoci_unpacks_owners_and_modes(store: MemoryStore, tmp_path: Path) -> None:
    layout = store.materialise(over_base(store))
    Images().verify(layout)
    Images().save(layout, tmp_path / "layout", form="oci-dir", reference="demo:1")
    run("umoci", "unpack", "--image", f"{tmp_path}/layout:demo:1", tmp_path / "out")
    check_unpacked(layout, tmp_path / "out/rootfs")


@pytest.mark.skipif(not shutil.which("buildah"), reason="buildah is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="owners need root")
def test_buildah_takes_it_as_it_is(store: MemoryStore, tmp_path: Path) -> None:
    layout = store.materialise(over_base(store))
    facts = Images().inspect(layout)
    Images().save(layout, tmp_path / "layout", form="oci-dir", reference="demo:1")
    storage: list[str | Path] = [
        *("--root", tmp_path / "root", "--runroot", tmp_path / "run"),
        *("--storage-driver", "vfs"),
    ]
    name = run("buildah", *storage, "from", f"oci:{tmp_path}/layout:demo:1").strip()
    try:
        seen = json.loads(run("buildah", *storage, "inspect", name))
        assert seen["FromImageDigest"] == str(facts.manifest_digest)
        assert seen["FromImageID"] == facts.config_digest.hex
        assert seen["OCIv1"]["rootfs"]["diff_ids"] == [str(la.diff_id) for la in facts.layers]
        check_unpacked(layout, Path(run("buildah", *storage, "mount", name).strip()))
    finally:
        subprocess.run(["buildah", *map(str, storage), "rm", "--all"], check=False)


@pytest.mark.skipif(not shutil.which("skopeo"), reason="skopeo is not installed")
@pytest.mark.skipif(not shutil.which("umoci"), reason="umoci is not installed")
@pytest.mark.skipif(not shutil.which("buildah"), reason="buildah is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="buildah's storage needs root here")
def test_registry_and_tools_agree(store: MemoryStore, tmp_path: Path) -> None:
    """Manifest, config, layers and diffIDs, by what each of them says itself."""
    tree = over_base(store)
    facts = read_image(store, tree)
    layers = [str(la.digest) for la in facts.layers]
    diff_ids = [str(la.diff_id) for la in facts.layers]
    copy = tmp_path / "copied"
    with running(tmp_path) as host:
        RegistrySink(backoff=0).put(store.materialise(tree), f"{host}/demo:1")
        head = requests.head(f"http://{host}/v2/demo/manifests/1", timeout=9, headers={
            "Accept": "application/vnd.oci.image.manifest.v1+json"})  # fmt: skip
        assert head.headers["Docker-Content-Digest"] == str(facts.manifest_digest)
        seen = json.loads(run("skopeo", "inspect", "--tls-verify=false", f"docker://{host}/demo:1"))
        assert (seen["Digest"], seen["Layers"]) == (str(facts.manifest_digest), layers)
        words = ["buildah", f"--root={tmp_path}/root", f"--runroot={tmp_path}/run"]
        words.append("--storage-driver=vfs")
        name = run(*words, "from", "--tls-verify=false", f"{host}/demo:1").strip()
        try:
            seen = json.loads(run(*words, "inspect", name))
            assert seen["FromImageDigest"] == str(facts.manifest_digest)
            assert seen["FromImageID"] == facts.config_digest.hex
            assert seen["OCIv1"]["rootfs"]["diff_ids"] == diff_ids
        finally:
            subprocess.run([*words, "rm", "--all"], check=False)
        run("skopeo", "copy", "--src-tls-verify=false", f"docker://{host}/demo:1", f"oci:{copy}:1")
    again = Images().verify(copy).facts
    assert (again.manifest_digest, again.config_digest) == (
        facts.manifest_digest, facts.config_digest,
    )  # fmt: skip
    stat = json.loads(run("umoci", "stat", "--image", f"{copy}:1", "--json"))
    seen = [h["layer"]["digest"] for h in stat["history"] if h.get("layer")]
    assert seen == layers
    assert [h["diff_id"] for h in stat["history"] if h.get("layer")] == diff_ids


@needs_sandbox
def test_nothing_of_the_building_machine_is_inside(realized: Demo, tmp_path: Path) -> None:
    """No path, host name, user or key of this machine, in no layer and no document."""
    realized.run("key", "generate")
    target = tmp_path / "image"
    realized.run("image", "save", "-o", str(target), "--format", "oci-dir")
    realized.run("image", "attest", "-o", str(tmp_path / "image"))
    secret = (realized.path.parent / ".config/reprobuild/keys/default.pem").read_bytes()
    tokens = {
        "project": str(realized.path), "store": str(realized.store), "tests": str(tmp_path),
        "home": str(Path.home()) + "/", "checkout": str(Path(__file__).parents[2]),
        "key": secret.splitlines()[1].decode(), "private": "PRIVATE KEY",
        "login": '"auths"',
    }  # fmt: skip
    if len(socket.gethostname()) > 5:
        tokens["host"] = socket.gethostname()
    files = [p for p in (*target.rglob("*"), *tmp_path.glob("image.*")) if p.is_file()]
    assert len(files) > 8
    for path in files:
        packed = path.read_bytes()
        texts = [packed, decompressed(io.BytesIO(packed), packed[:8]).read()]
        for name, token in tokens.items():
            assert not any(token.encode() in text for text in texts), (path.name, name)


@needs_sandbox
def test_labels_fit_into_what_a_daemon_takes(realized: Demo) -> None:
    labels = realized.json("image", "inspect")["labels"]
    assert sum(len(k) + len(v) for k, v in labels.items()) < 32 * 1024
    assert all(len(v) < 4096 for v in labels.values())
