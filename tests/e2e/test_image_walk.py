"""The whole way of an image, by the command alone: a daemon, and a registry that wants a login."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.demo import Demo, make_demo, needs_sandbox
from support.registry import LOGIN, running

pytestmark = [needs_sandbox, pytest.mark.docker]

BOX = """\
version = "1"
input = "box"
result = "steps.copy"

[steps.copy]
kind = "script"
inputs = { source = "source" }
run = "cp -a /inputs/source/. $out/"

[image]
place = [{ from = "steps.copy", to = "" }]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo with busybox inside, so that it runs; realized."""
    home = tmp_path_factory.mktemp("walk")
    demo = make_demo(home / "project", home / "store")
    text = (demo.path / "flake-like.toml").read_text()
    text = text.replace('components = ["header"', 'components = ["box", "header"')
    text = text.replace(
        'entrypoint = ["/opt/program"]', 'entrypoint = ["/bin/cat", "/opt/program"]'
    )
    demo.write("flake-like.toml", text)
    demo.write("derivations/box.toml", BOX)
    demo.run("realize")
    return demo


def docker(host: str, config: Path, *words: str) -> str:
    run = subprocess.run(
        ["docker", "--config", str(config), "-H", host, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_load_run_push_pull_update(
    made: Demo, docker_host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    shutil.copytree(made.path, home / "project", symlinks=True)
    demo = Demo(home / "project", made.store, {"DOCKER_HOST": docker_host})
    first = demo.json("realize")["image"]

    # Load, run, and look at it there.
    loaded = demo.json("image", "load", "--as", "walk/demo:1")
    assert loaded["config_digest"] == first["config_digest"]
    said = docker(docker_host, tmp_path, "run", "--rm", "--network=none", "walk/demo:1")
    assert said.endswith("echo main\n")
    seen = demo.json("image", "verify", "docker:walk/demo:1", "--sources")
    assert (seen["verified"], seen["config_digest"]) == (True, first["config_digest"])
    assert seen["labels"] == first["labels"]

    with running(tmp_path, login=True) as host:
        target = f"{host}/walk/demo"
        push = ["image", "push", "--to", f"{target}:1", "--tag", "latest"]
        refused = demo.run("--json", *push, status=10).error
        assert (refused["code"], refused["facts"]["status"]) == ("E-REGISTRY", 401)
        docker(docker_host, home / ".docker", "login", "-u", "user", "-p", "geheim", host)
        assert LOGIN in (home / ".docker/config.json").read_text()
        pushed = demo.run("--json", "--verbose", *push)
        assert LOGIN not in pushed.out + pushed.err
        assert "geheim" not in pushed.out + pushed.err
        assert pushed.document["manifest_digest"] == first["manifest_digest"]
        assert demo.json(*push)["sent"] == 0

        # Pulled by digest, it is the image that was pushed.
        config = home / ".docker"
        name = f"{target}@{first['manifest_digest']}"
        docker(docker_host, tmp_path, "image", "rm", "walk/demo:1")
        docker(docker_host, config, "pull", name)
        inspected = json.loads(docker(docker_host, config, "image", "inspect", name))[0]
        assert inspected["Id"] in (first["config_digest"], first["manifest_digest"])
        assert inspected["RootFS"]["Layers"] == [la["diff_id"] for la in first["layers"]]
        assert docker(docker_host, config, "run", "--rm", "--network=none", name) == said
        assert demo.json("image", "verify", f"registry:{target}:latest")["verified"]

        # One component changes: its layer and the statement's are sent, and pulled; no other.
        demo.write("notes/notes.txt", "another note\n")
        demo.run("lock", "--update", "notes")
        second = demo.json("realize")["image"]
        pairs = list(zip(first["layers"], second["layers"], strict=True))
        changed = [new for old, new in pairs if old["digest"] != new["digest"]]
        assert [la["component"] for la in changed] == ["notes", "statement"]
        update = demo.json("image", "push", "--to", f"{target}:2")
        bytes_ = sum(la["size"] for la in changed)
        assert (update["uploaded"], update["present"]) == (3, len(pairs) - 2)
        assert bytes_ < update["sent"] < bytes_ + 64 * 1024  # and the config
        # What did not change could not be had again: the registry has it no more.
        blobs = tmp_path / "data/docker/registry/v2/blobs/sha256"
        for old, new in pairs:
            if old["digest"] == new["digest"]:
                bare = new["digest"].partition(":")[2]
                shutil.rmtree(blobs / bare[:2] / bare)
        docker(docker_host, config, "pull", f"{target}@{second['manifest_digest']}")
        docker(
            docker_host, config, "image", "rm", "-f", name, f"{target}@{second['manifest_digest']}"
        )
    whole = sum(la["size"] for la in second["layers"])
    with capsys.disabled():
        print(f"\nan update of one component: {bytes_:,} of {whole:,} bytes of layers pulled")
