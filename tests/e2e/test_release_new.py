"""release new and completion, as a user calls them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reprobuild.adapters.toml.load import load_project
from support.cliin import cli
from support.releases import R21, ROOT

FLAKE = """\
# Our flake.
format = 0

[inputs.text]
kind = "path"
path = "text"

[outputs.demo-r1] # the first
description = "Demo r1, after r0"
components = ["text"]

[outputs.demo-r1.release]
codename = "demo"
revision = "r1"
date = 2026-09-01
title = "Demo r1" # said to people
repository = "example/demo"
tag = "{{codename}}-{{revision}}"

[outputs.demo-r1.image]

[outputs.demo-r1.published]
registry-digest = "sha256:{digest}"

[outputs.plain]
components = ["text"]
"""


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    (tmp_path / "derivations").mkdir()
    (tmp_path / "derivations" / "text.toml").write_text('result = "source"\ninput = "text"\n')
    (tmp_path / "text").mkdir()
    (tmp_path / "flake-like.toml").write_text(FLAKE.format(digest="0" * 64))
    return tmp_path


def test_the_next_release_has_all_but_what_was_published(demo: Path) -> None:
    before = load_project(demo).flake.outputs["demo-r1"]
    said = cli(
        "-C", str(demo), "--json", "release", "new", "--from", "demo-r1", "--date", "2026-10-01"
    )
    assert said.status == 0, said.err
    made = json.loads(said.out)
    assert made["output"] == "demo-r2"
    assert made["written"] == ["releases/demo-r2.toml", "flake-like.toml"]
    after = load_project(demo).flake.outputs["demo-r2"]
    assert after.release is not None and before.release is not None
    assert (after.release.revision, str(after.release.date)) == ("r2", "2026-10-01")
    assert after.release.title == "Demo r2"
    assert after.description == "Demo r2, after r0"
    assert not after.published
    assert before.published
    assert after.release.repository == before.release.repository


def test_comments_and_the_old_text_stay(demo: Path) -> None:
    assert cli("-C", str(demo), "release", "new", "--from", "demo-r1").status == 0
    assert "# said to people" in (demo / "releases" / "demo-r2.toml").read_text()
    flake = (demo / "flake-like.toml").read_text()
    assert flake.replace('include = ["releases/demo-r2.toml"]\n', "") == FLAKE.format(
        digest="0" * 64
    )


def test_a_release_in_a_row_needs_no_second_include(demo: Path) -> None:
    text = (demo / "flake-like.toml").read_text()
    (demo / "flake-like.toml").write_text(
        text.replace("format = 0\n", 'format = 0\ninclude = ["releases/*.toml"]\n')
    )
    assert cli("-C", str(demo), "release", "new", "--from", "demo-r1").status == 0
    said = cli("-C", str(demo), "--json", "release", "new", "--from", "demo-r2")
    assert json.loads(said.out)["written"] == ["releases/demo-r3.toml"]
    assert set(load_project(demo).flake.outputs) == {"demo-r1", "demo-r2", "demo-r3", "plain"}


def test_a_number_that_another_output_has_is_passed_over(demo: Path) -> None:
    path = demo / "flake-like.toml"
    text = path.read_text()
    output = text[text.index("[outputs.demo-r1]") : text.index("[outputs.demo-r1.published]")]
    path.write_text(text + "\n" + output.replace("demo-r1", "sibling").replace('"r1"', '"r2"'))
    said = cli("-C", str(demo), "--json", "release", "new", "--from", "demo-r1")
    assert json.loads(said.out)["written"] == ["releases/demo-r3.toml", "flake-like.toml"]


@pytest.mark.parametrize(
    ("words", "code", "exit_"),
    [
        (["--from", "nobody"], "E-UNKNOWN-INSTALLABLE", 2),
        (["--from", "plain"], "E-USAGE", 2),
        (["--from", "demo-r1", "--revision", "r1"], "E-USAGE", 2),
        (["--from", "demo-r1", "--revision", "../../x"], "E-USAGE", 2),
        (["--from", "demo-r1", "--revision", ""], "E-USAGE", 2),
    ],
)
def test_refusals_write_nothing(demo: Path, words: list[str], code: str, exit_: int) -> None:
    before = sorted(str(p) for p in demo.rglob("*"))
    said = cli("-C", str(demo), "--json", "release", "new", *words)
    assert said.status == exit_, said.out
    assert json.loads(said.out)["error"]["code"] == code
    assert sorted(str(p) for p in demo.rglob("*")) == before


def test_what_is_there_is_not_overwritten(demo: Path) -> None:
    (demo / "releases").mkdir()
    (demo / "releases" / "demo-r2.toml").write_text("mine")
    assert cli("-C", str(demo), "release", "new", "--from", "demo-r1").status == 2
    assert (demo / "releases" / "demo-r2.toml").read_text() == "mine"


def test_a_published_release_goes_on(tmp_path: Path) -> None:
    for name in ("flake-like.toml", "flake-like.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("derivations", "releases"):
        shutil.copytree(ROOT / name, tmp_path / name)
    said = cli("-C", str(tmp_path), "release", "new", "--from", R21, "--date", "2026-12-01")
    assert said.status == 0, said.err
    old, new = (load_project(tmp_path).flake.outputs[n] for n in (R21, R21[:-2] + "22"))
    assert new.sources == old.sources
    assert "r21" not in str([p.file for p in new.profiles.values()])
    # Nothing that was shown of the old one is said of the new one.
    assert list(new.gates) == list(old.gates)
    assert not any(gate.published for gate in new.gates.values())
    assert old.documents is not None and new.documents is not None
    assert old.documents.runbook.status and not new.documents.runbook.status
    name = R21[:-2] + "22"
    text = cli("-C", str(tmp_path), "--offline", "release", "runbook", name).out
    assert "tok/s" not in text and "**Status:**" not in text
    assert "not run for this composition" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    said = cli("completion", shell)
    assert said.status == 0
    assert "_REPROBUILD_COMPLETE" in said.out


def test_bash_completes_commands_and_outputs(demo: Path) -> None:
    def complete(*words: str) -> list[str]:
        environment = {
            **os.environ,
            "_REPROBUILD_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("reprobuild", *words)),
            "COMP_CWORD": str(len(words)),
        }
        ran = subprocess.run(
            [sys.executable, "-m", "reprobuild"],
            cwd=demo,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return [line.partition(",")[2] for line in ran.stdout.split()]

    assert complete("reali") == ["realize"]
    assert complete("realize", "demo") == ["demo-r1", "demo-r1.text"]
    (demo / "flake-like.toml").write_text("not toml [")
    assert complete("realize", "demo") == []


def rewritten(demo: Path, how: Callable[[str], str]) -> bytes:
    path = demo / "flake-like.toml"
    data = how(path.read_text()).encode()
    path.write_bytes(data)
    return data


SCATTERED = """format = 0
[outputs.demo-r1]
components = ["text"]
[inputs.text]
kind = "path"
path = "text"
[outputs.demo-r1.release]
codename = "demo"
revision = "r1"
date = 2026-09-01
title = "Demo r1"
repository = "example/demo"
tag = "{codename}-{revision}"
[outputs.demo-r1.image]
"""
RELEASE = (
    '{ codename = "demo", revision = "r1", date = 2026-09-01, title = "Demo r1", '
    'repository = "example/demo", tag = "{codename}-{revision}" }'
)
INPUT = '[inputs.text]\nkind = "path"\npath = "text"\n'
INLINE = (
    f"format = 0\n{INPUT}[outputs]\n"
    f'demo-r1 = {{ components = ["text"], image = {{}}, release = {RELEASE} }}\n'
)
DOTTED = (
    'format = 0\noutputs.demo-r1.components = ["text"]\noutputs.demo-r1.image = {}\n'
    f"outputs.demo-r1.release = {RELEASE}\n{INPUT}"
)


@pytest.mark.parametrize("text", [SCATTERED, INLINE, DOTTED], ids=["scattered", "inline", "dotted"])
def test_an_output_may_be_written_in_any_way(demo: Path, text: str) -> None:
    rewritten(demo, lambda _: text)
    said = cli("-C", str(demo), "release", "new", "--from", "demo-r1")
    assert said.status == 0, said.err
    after = load_project(demo).flake.outputs["demo-r2"]
    assert after.release is not None and after.release.title == "Demo r2"


def test_line_ends_and_odd_characters_stay(demo: Path) -> None:
    data = rewritten(
        demo, lambda text: text.replace("# Our flake.", "# Ours\u2028[b]").replace("\n", "\r\n")
    )
    said = cli("-C", str(demo), "release", "new", "--from", "demo-r1")
    assert said.status == 0, said.err
    after = (demo / "flake-like.toml").read_bytes()
    assert after.count(b"\r\n") >= data.count(b"\r\n")
    assert b"# Ours\xe2\x80\xa8[b]\r\n" in after
    assert set(load_project(demo).flake.outputs) == {"demo-r1", "demo-r2", "plain"}


def test_links_are_not_replaced(demo: Path, tmp_path: Path) -> None:
    (demo / "flake-like.toml").rename(demo / "real.toml")
    (demo / "flake-like.toml").symlink_to("real.toml")
    assert cli("-C", str(demo), "release", "new", "--from", "demo-r1").status == 0
    assert (demo / "flake-like.toml").is_symlink()
    (demo / "releases" / "demo-r3.toml").symlink_to("nowhere")
    assert cli("-C", str(demo), "release", "new", "--from", "demo-r2").status == 2
    assert (demo / "releases" / "demo-r3.toml").is_symlink()


def test_a_directory_elsewhere_is_not_written_to(
    demo: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (demo / "releases").symlink_to(other)
    assert cli("-C", str(demo), "release", "new", "--from", "demo-r1").status == 2
    assert list(other.iterdir()) == []


def test_what_is_said_of_the_next_output_does_not_come_along(demo: Path) -> None:
    rewritten(
        demo, lambda text: text.replace("[outputs.plain]", "# The plain one.\n[outputs.plain]")
    )
    assert cli("-C", str(demo), "release", "new", "--from", "demo-r1").status == 0
    assert "plain one" not in (demo / "releases" / "demo-r2.toml").read_text()
    assert "plain one" in (demo / "flake-like.toml").read_text()
