"""release and qualify as a user calls them, over a demo and over this checkout's flake."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reprobuild.core.integration.contract import parse_contract
from support.cliin import cli
from support.releasedemo import FLAKE, Demo, line
from support.releases import R1, R18, R21, ROOT


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    made = Demo(tmp_path)
    made.ok("--quiet", "lock")
    return made


# -- included files --------------------------------------------------------------------------------


def test_an_output_of_an_included_file_is_one_like_any_other(demo: Demo) -> None:
    shown = demo.ok("--json", "show").document["outputs"]
    assert shown["demo"]["reference"].startswith("example/demo:demo-app")
    demo.ok("--quiet", "realize", "demo")
    assert demo.ok("--json", "--quiet", "realize", "demo").document["counts"]["built"] == 0
    demo.edit('title = "Demo r1"', 'title = "Demo, the first"')
    again = demo.ok("--json", "--quiet", "realize", "demo").document
    assert again["counts"]["built"] > 0  # what an included file says is part of the fingerprint
    assert again["image"]["labels"]["org.opencontainers.image.title"] == "Demo, the first"


def test_a_problem_in_an_included_file_is_said_with_its_place(demo: Demo) -> None:
    demo.edit('components = ["app"]', 'components = ["ap"]')
    said = demo.run("--json", "show")
    assert said.status == 3
    error = said.document["error"]
    assert (error["facts"]["file"], error["facts"]["line"]) == ("parts/demo.toml", 9)
    assert error["facts"]["nearest"] == "app"


def test_nothing_is_declared_twice(demo: Demo) -> None:
    (demo.path / "parts" / "more.toml").write_text(
        'format = 0\n[inputs.text]\nkind = "path"\npath = "text"\n'
    )
    said = demo.run("--json", "show")
    assert said.status == 3
    assert "declared in flake-like.toml, too" in said.document["error"]["message"]
    assert said.document["error"]["facts"]["file"] == "parts/more.toml"


@pytest.mark.parametrize(
    "pattern",
    ["*.toml", "../x/*.toml", "/etc/*.toml", "parts/**/*.toml", "parts/x", "derivations/*.toml",
     "parts/[a].toml"],
)  # fmt: skip
def test_what_cannot_be_included(demo: Demo, pattern: str) -> None:
    path = demo.path / "flake-like.toml"
    path.write_text(FLAKE.replace("parts/*.toml", pattern))
    said = demo.run("--json", "show")
    assert (said.status, said.document["error"]["facts"]["key"]) == (3, "include")


def test_a_file_that_is_named_must_be_there(demo: Demo) -> None:
    path = demo.path / "flake-like.toml"
    path.write_text(FLAKE.replace("parts/*.toml", "parts/absent.toml"))
    said = demo.run("--json", "show")
    assert (said.status, said.document["error"]["facts"]["file"]) == (3, "parts/absent.toml")


# -- documents -------------------------------------------------------------------------------------


def test_the_contract_is_read_back_and_verified(demo: Demo, tmp_path: Path) -> None:
    path = tmp_path / "contract.md"
    demo.ok("release", "contract", "demo", "-o", str(path))
    read = parse_contract(path.read_bytes(), "c")
    (section,) = read.sections
    assert [(h.number, h.head) for h in section.heads] == [(7, demo.seven), (8, demo.eight)]
    assert section.base == demo.base
    assert read.unread == ()

    state = demo.ok("--json", "--quiet", "release", "contract", "demo", "--verify").document
    assert state["components"]["app"]["to_merge"] == [7, 8]
    assert state["components"]["app"]["from_pins"] == "yes"
    # Pull request 7 lands on the branch; then 8 does, too.
    merged = demo.origin.commit(
        {"a": line(2, "two"), "serve": "env APP_SIZE\n"},
        [demo.base, demo.seven],
        ref="refs/heads/main",
    )
    state = demo.ok("--json", "--quiet", "release", "contract", "demo", "--verify").document
    assert state["components"]["app"]["to_merge"] == [8]
    demo.origin.commit(
        {"a": line(2, "two").replace("line 5\n", "five\n"), "serve": "env APP_SIZE\n"},
        [merged, demo.eight],
        ref="refs/heads/main",
    )
    state = demo.ok("--json", "--quiet", "release", "contract", "demo", "--verify").document
    assert state["components"]["app"]["to_merge"] == []
    assert state["components"]["app"]["from_branches"].startswith("yes: the branch at ")


def test_a_pin_that_gives_another_tree_fails_the_contract(demo: Demo) -> None:
    demo.edit("[outputs.demo.sources.app]\n", f'[outputs.demo.sources.app]\ntree = "{"1" * 40}"\n')
    said = demo.run("--json", "release", "contract", "demo", "--verify")
    assert said.status == 4


def test_a_repository_that_is_not_here_is_said_to_be_unverified(demo: Demo, tmp_path: Path) -> None:
    demo.origin.path.rename(tmp_path / "elsewhere.git")
    path = tmp_path / "contract.md"
    said = demo.run("--offline", "release", "contract", "demo", "--verify", "-o", str(path))
    assert (said.status, "not looked into: app" in said.err) == (4, True)
    assert "| app | stated; not verified here | not verified here | #7, #8 |" in path.read_text()
    again = demo.run("--json", "release", "contract", "demo", "--verify").document
    assert again["error"]["facts"]["components"] == ["app"]
    assert again["components"]["app"]["from_branches"] == "not verified here"


def test_a_base_that_nobody_stated_is_looked_for_by_the_tree(demo: Demo) -> None:
    tree = demo.ok("--json", "integrate", "demo.app").document["tree"]
    (demo.path / "flake-like.lock").unlink()
    demo.edit("[outputs.demo.sources.app]\n", f'[outputs.demo.sources.app]\ntree = "{tree}"\n')
    demo.origin.commit({"later": "x\n"}, [demo.base], ref="refs/heads/main")
    state = demo.ok("--json", "--quiet", "release", "contract", "demo", "--verify").document
    assert state["components"]["app"]["from_pins"] == "yes"
    demo.edit(f'tree = "{tree}"', f'tree = "{"1" * 40}"')
    state = demo.ok("--json", "--quiet", "release", "contract", "demo", "--verify").document
    pins = state["components"]["app"]["from_pins"]
    assert pins.startswith("open: no base commit is stated, and none of the branch")


def test_profiles_are_written_and_checked(demo: Demo, tmp_path: Path) -> None:
    said = demo.ok("--json", "release", "profiles", "demo", "-d", str(tmp_path / "out"))
    assert said.document["files"] == ["small.yml"]
    text = (tmp_path / "out" / "small.yml").read_text()
    assert 'APP_SIZE: "${APP_SIZE:-1}"' in text
    good = demo.ok("--json", "release", "profiles", "demo", "--set", "PORT=9000").document
    assert good["profiles"]["small"]["settings"]["PORT"] == 9000
    bad = demo.run("--json", "release", "profiles", "demo", "--set", "PORT=80")
    assert (bad.status, bad.document["error"]["facts"]["rule"]) == (9, "no-low-ports")


# -- qualification ---------------------------------------------------------------------------------


def states(document: dict[str, Any]) -> dict[str, str]:
    return {name: row["state"] for name, row in document["gates"].items()}


@pytest.mark.skipif(
    not any(
        shutil.which(words[0])
        and subprocess.run([*words, "version"], capture_output=True, check=False).returncode == 0
        for words in (["docker", "compose"], ["docker-compose"])
    ),
    reason="no docker compose, no docker-compose",
)
def test_gates_are_run_recorded_and_shown(demo: Demo) -> None:
    first = demo.ok("--json", "--quiet", "qualify", "demo").document
    assert states(first) == {"composed": "passed", "fast": "passed", "large": "not-run"}
    assert "64 GPUs" in first["gates"]["large"]["reason"]
    assert first["gates"]["fast"]["detail"] == f"12 steps/s of {first['reference']}"
    kept = json.loads((demo.path / "evidence" / "demo" / "fast.json").read_text())
    assert kept["image"] == ""
    assert kept["drv"].startswith("blake3:")
    demo.ok("--quiet", "realize", "demo")
    demo.ok("--quiet", "qualify", "demo", "--gate", "fast")
    kept = json.loads((demo.path / "evidence" / "demo" / "fast.json").read_text())
    assert kept["image"].startswith("sha256:")
    assert "PASS" in demo.ok("release", "runbook", "demo").out
    # Another composition: none of it counts.
    demo.edit('revision = "r1"', 'revision = "r2"')
    assert set(states(demo.ok("--json", "qualify", "demo", "--list").document).values()) == {
        "not-run"
    }
    assert "PASS" not in demo.ok("release", "runbook", "demo").out


def test_a_gate_that_fails_is_evidence_and_an_error(demo: Demo) -> None:
    demo.edit("echo 12 steps/s", "exit 3 #")
    said = demo.run("--json", "--quiet", "qualify", "demo", "--gate", "fast")
    assert (said.status, said.document["error"]["facts"]["gates"]) == (9, ["fast"])
    assert states(demo.ok("--json", "qualify", "demo", "--list").document)["fast"] == "failed"


def test_evidence_travels_signed(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "lab" / "config.toml"
    monkeypatch.setenv("REPROBUILD_CONFIG", str(config))
    key = demo.ok("--json", "key", "generate").document["key_id"]
    demo.ok("--quiet", "qualify", "demo", "--gate", "fast", "--key", "default")
    carried = tmp_path / "fast.json"
    shutil.move(demo.path / "evidence" / "demo" / "fast.json", carried)
    public = next((tmp_path / "lab").rglob("*.pub"))
    monkeypatch.setenv("REPROBUILD_CONFIG", str(tmp_path / "site" / "config.toml"))
    said = demo.run("--json", "qualify", "demo", "--import", str(carried))
    assert (said.status, said.document["error"]["code"]) == (9, "E-EVIDENCE-TRUST")
    assert said.document["error"]["facts"]["key"] == key  # the name that `key show` has for it
    assert not (demo.path / "evidence" / "demo" / "fast.json").exists()
    from reprobuild.adapters.keys.keyring import Keyring, read_public

    Keyring(tmp_path / "site").trust("lab", read_public(public))
    taken = demo.ok("--json", "qualify", "demo", "--import", str(carried)).document
    assert (states(taken)["fast"], taken["gates"]["fast"]["signed"]) == ("passed", True)


# -- this checkout's releases ----------------------------------------------------------------------


def test_documents_of_open_outputs_are_made_anywhere(tmp_path: Path) -> None:
    at = ("-C", str(ROOT), "--store", str(tmp_path / "store"))
    for words in (["contract", R18], ["runbook", R1], ["profiles", R21, "-d", str(tmp_path)]):
        assert cli(*at, "release", *words).status == 0
    said = cli("--offline", *at, "release", "check", R21)
    assert said.status == 0, said


def test_open_outputs_are_compared_by_what_they_state(tmp_path: Path) -> None:
    at = ("-C", str(ROOT), "--store", str(tmp_path / "store"))
    said = cli(*at, "--json", "diff", R18, R21)
    assert said.status == 0, said
    b12x = said.document["components"]["b12x"]
    assert "c25cdba2c1df7a69b2d7771e4243e12a8fbf19d5" in json.dumps(b12x["base"])
    assert "f6dc512eb13ac2c09b2bf53656c704081af64361" in json.dumps(b12x["tree"])
    numbers = json.dumps(b12x["heads"])
    assert all(str(number) in numbers for number in (145, 221, 230, 243, 246, 247))
    text = cli(*at, "diff", R18, R21).out
    for fact in ("−#294", "+#485", "2026-08-18 → 2026-08-27", "what is stated is compared"):
        assert fact in " ".join(text.split()), fact


def test_without_a_mirror_the_remote_is_named(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    env = os.environ | {"REPROBUILD_CONFIG": str(config)}
    done = subprocess.run(
        ["python3", "-m", "reprobuild", "--offline", "--json", "-C", str(ROOT), "--store",
         str(tmp_path / "store"), "realize", f"{R21}.vllm"],
        env=env | {"PATH": f"{ROOT}/.venv/bin:{env['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "E-OUTPUT-OPEN"
    assert error["facts"]["remote"] == "https://github.com/local-inference-lab/vllm.git"
    assert "[mirrors]" in error["hint"]
