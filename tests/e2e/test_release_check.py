"""release check: every variable of documents, profiles and images against sources and interface."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from support.cliin import cli
from support.releasedemo import Demo
from support.releases import R18, ROOT


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    made = Demo(tmp_path)
    made.ok("--quiet", "lock")
    return made


def test_check_knows_variables_from_the_sources(demo: Demo) -> None:
    said = demo.ok("--json", "release", "check", "demo").document
    assert list(said["unseen"]) == ["app"]
    assert said["names"]["APP_SIZE"] == "declared by app"
    demo.ok("--quiet", "realize", "demo")
    said = demo.ok("--json", "release", "check", "demo").document
    assert (said["unseen"], said["names"]["APP_SIZE"]) == ({}, "app: serve")
    assert said["names"]["PORT"] == "declared by launcher"


def test_a_variable_that_is_nowhere_fails_the_check(demo: Demo) -> None:
    demo.edit("asks for.", "and `APP_GONE=2` and `--gone-flag` ask for.")
    said = demo.run("--json", "release", "check", "demo")
    assert said.status == 9
    problems = said.document["error"]["facts"]["problems"]
    assert [p.split(" ")[0] for p in problems] == ["--gone-flag", "APP_GONE"]


def test_a_declared_variable_that_the_sources_lost_fails_the_check(tmp_path: Path) -> None:
    demo = Demo(tmp_path, ask="APP_LENGTH")
    demo.ok("--quiet", "lock")
    demo.ok("release", "check", "demo")
    demo.ok("--quiet", "realize", "demo")
    said = demo.run("--json", "release", "check", "demo")
    assert said.status == 9
    assert "does not have it any more" in said.document["error"]["message"].replace(
        "do not have", "does not have"
    )


def test_variables_of_the_image_are_checked_like_those_of_documents(demo: Demo) -> None:
    demo.edit(
        "[outputs.demo.image]\n",
        """\
[outputs.demo.image.env]
LANG = "C.UTF-8"
APP_CACHE_DIR = "/cache"
""",
    )
    said = demo.run("--json", "release", "check", "demo")
    assert said.status == 9
    (problem,) = said.document["error"]["facts"]["problems"]
    assert problem.startswith("APP_CACHE_DIR (image.env) is in no integrated source")
    demo.edit('app = ["APP_SIZE"]', 'app = ["APP_SIZE", "APP_CACHE_DIR"]')
    names = demo.ok("--json", "release", "check", "demo").document["names"]
    assert (names["APP_CACHE_DIR"], names["LANG"]) == ("declared by app", "the system")


def test_a_note_that_speaks_of_a_variable_does_not_read_it(demo: Demo) -> None:
    demo.origin.pull(8, {"NOTES.md": "APP_OLD was set here\n"}, [demo.base])
    demo.edit('app = ["APP_SIZE"]', 'app = ["APP_SIZE", "APP_OLD"]')
    demo.ok("--quiet", "lock", "--update", "app.pulls.8")
    demo.ok("--quiet", "realize", "demo")
    said = demo.run("--json", "release", "check", "demo")
    assert said.status == 9
    assert "APP_OLD is declared by app, whose sources do not" in said.document["error"]["message"]


def mirror() -> Path:
    root = os.environ.get("REPROBUILD_MIRRORS")
    if not root:
        pytest.skip("REPROBUILD_MIRRORS is not set: no mirrors of the published repositories")
    for place in (Path(root) / "b12x.git", *Path(root).glob("*+b12x/repo")):
        if place.is_dir():
            return place
    pytest.skip("REPROBUILD_MIRRORS holds no mirror of b12x")


@pytest.mark.slow
@pytest.mark.network
def test_with_a_mirror_r18s_b12x_is_realized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    url = "https://github.com/local-inference-lab/b12x.git"
    config.write_text(f'[mirrors]\n"{url}" = "{mirror()}"\n')
    monkeypatch.setenv("REPROBUILD_CONFIG", str(config))
    home = tmp_path / "project"
    home.mkdir()
    for part in ("derivations", "fixtures", "releases"):
        shutil.copytree(ROOT / part, home / part)
    for part in ("flake-like.toml", "flake-like.lock"):
        shutil.copy(ROOT / part, home / part)
    name = f"{R18}.b12x"
    said = cli("--quiet", "--json", "-C", str(home), "--store", str(tmp_path / "store"),
               "realize", name, f"{name}.layer")  # fmt: skip
    assert said.status == 0, said
    outputs = said.document["outputs"]
    installed = Path(outputs[name]["path"]) / "usr/lib/python3/dist-packages"
    assert (installed / "b12x" / "__init__.py").is_file()
    assert (installed / "b12x-1.2.3.dist-info" / "METADATA").is_file()
    assert any(Path(outputs[f"{name}.layer"]["path"]).iterdir())
    shown = cli("--json", "-C", str(home), "--store", str(tmp_path / "store"), "show", R18)
    entry = shown.document["outputs"][R18]["components"]["b12x"]
    assert entry["drv"] == outputs[name]["drv"]

    # Its sources are looked into now: what they read is found there, and what they do not is said.
    at = ("-C", str(home), "--store", str(tmp_path / "store"), "release", "check", R18)
    said = cli("--json", *at)
    assert said.status == 0, said
    assert said.document["names"]["B12X_COMPILE_CACHE_DIR"] == "b12x: b12x/_lib/compiler.py"
    file = home / "releases" / f"{R18}.toml"
    read, unread = '["B12X_COMPILE_CACHE_DIR"]', '["B12X_CUTE_COMPILE_CACHE_DIR"]'
    file.write_text(file.read_text().replace(f"b12x = {read}", f"b12x = {unread}"))
    said = cli("--json", *at)
    assert said.status == 9
    assert "B12X_CUTE_COMPILE_CACHE_DIR is declared by b12x" in said.document["error"]["message"]
