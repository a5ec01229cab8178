"""The command as a process, in a small project: what it makes, says, and exits with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from reprobuild.app import building
from reprobuild.cli.main import run
from support.demo import Demo, needs_sandbox
from support.webserver import web_server

pytestmark = needs_sandbox

NOTHING_DONE = {"built": 0, "fetched": 0, "cut_off": 0, "checked": 0}


def busy(counts: dict[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in NOTHING_DONE}


# -- the whole way -----------------------------------------------------------------------------


def test_builds_then_has_nothing_to_do(locked: Demo) -> None:
    first = locked.run("realize")
    assert re.search(r"^built \d+, fetched 4$", first.out, re.MULTILINE)
    assert "image example.org/demo:demo-header" in first.out
    assert "[16/16]" in first.err
    again = locked.run("realize")
    assert again.out.splitlines()[-1] == "nothing to do"
    assert again.err == ""
    assert again.out.splitlines()[:-1] == first.out.splitlines()[:-1]
    locked.verify()


def test_another_store_and_directory_give_the_same(demo_template: Demo, locked: Demo) -> None:
    here, there = demo_template.json("realize"), locked.json("realize")
    assert there["image"] == here["image"]
    assert there["outputs"]["demo"]["tree"] == here["outputs"]["demo"]["tree"]
    assert there["counts"]["built"] > 0


def test_image_is_a_layout_with_one_layer_a_component(realized: Demo) -> None:
    answer = realized.json("realize")
    layout = Path(answer["outputs"]["demo"]["path"])
    assert json.loads((layout / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    assert described["digest"] == answer["image"]["manifest_digest"]
    manifest = json.loads((layout / "blobs/sha256" / described["digest"][7:]).read_bytes())
    assert manifest["config"]["digest"] == answer["image"]["config_digest"]
    assert [layer["digest"] for layer in manifest["layers"]] == [
        layer["digest"] for layer in answer["image"]["layers"]
    ]
    names = [layer["component"] for layer in answer["image"]["layers"]]
    assert names == ["header", "program", "notes", "statement"]


def test_heads_are_in_the_source_and_the_labels(realized: Demo) -> None:
    answer = realized.json("realize", "demo.header")
    made = Path(answer["outputs"]["demo.header"]["path"])
    assert (made / "header.txt").read_text() == "first\nsecond\nthird\nfourth\n"
    labels = realized.json("realize")["image"]["labels"]
    heads = labels["org.example.header.integration.heads"].split(",")
    assert [h.split("@")[0] + ":" + h.split(":")[1] for h in heads] == [
        "1:already_in_base",
        "2:merged",
    ]
    # labels speak of what lies in the image: the component's tree as it is placed there
    placed = realized.json("why", "demo", "header.layer-tree")["path"][-1]
    assert labels["org.example.header.drv"] == placed["drv"]


# -- JSON --------------------------------------------------------------------------------------


def test_json_documents_have_the_promised_keys(realized: Demo, tmp_path: Path) -> None:
    answer = realized.json("realize")
    assert set(answer["counts"]) >= {"built", "reused", "fetched", "cut_off"}
    assert set(answer["outputs"]["demo"]) >= {"drv", "tree", "path", "isolation"}
    assert set(answer["image"]) >= {
        "reference",
        "config_digest",
        "manifest_digest",
        "layers",
        "labels",
    }
    assert set(answer["image"]["layers"][0]) >= {"component", "diff_id", "digest", "size"}
    shown = realized.json("show")
    assert set(shown["outputs"]["demo"]) >= {"reference", "drv", "components"}
    assert shown["outputs"]["demo"]["drv"] == answer["outputs"]["demo"]["drv"]
    assert shown["outputs"]["demo"]["reference"] == answer["image"]["reference"]
    lock = realized.json("lock")
    assert lock["changed"] == []
    assert lock["open"] == {}
    assert set(lock["inputs"]["header"]) >= {"kind", "rev", "tree"}
    assert lock["inputs"]["notes"]["kind"] == "path"
    path = realized.json("why", "demo", "header.strip")["path"]
    assert path[0]["name"] == "demo.image"
    assert path[-1]["name"] == "header.strip"
    plan = realized.json("realize", "--dry-run")["plan"]
    assert [step["deed"] for step in plan] == ["reuse"]


def test_events_are_json_lines(locked: Demo, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    locked.run("--events", str(events), "realize")
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert all({"event", "time"} <= set(line) for line in lines)
    kinds = {line["event"] for line in lines}
    assert kinds >= {"plan", "started", "build-started", "finished"}
    (plan,) = (line for line in lines if line["event"] == "plan")
    finished = [line["name"] for line in lines if line["event"] == "finished"]
    assert len(finished) == plan["build"] + plan["fetch"]
    assert len(set(finished)) == len(finished)
    started = [line["name"] for line in lines if line["event"] == "started"]
    assert sorted(started) == sorted(finished)


def test_json_keeps_progress_off_standard_output(locked: Demo) -> None:
    ran = locked.run("--json", "realize", "demo.notes")
    assert set(ran.document) == {"counts", "outputs"}
    assert "notes.copy" in ran.err


def test_quiet_says_nothing_but_the_answer(locked: Demo) -> None:
    ran = locked.run("--quiet", "realize", "demo.notes")
    assert ran.err == ""
    assert "demo.notes" in ran.out


def test_dry_run_says_what_and_why_and_makes_nothing(locked: Demo) -> None:
    plan = locked.json("realize", "--dry-run")["plan"]
    assert {step["deed"] for step in plan} == {"build", "fetch"}
    assert all(step["reason"] for step in plan)
    names = [step["name"] for step in plan]
    assert names.index("header.strip") < names.index("program.compile")
    assert list((locked.store / "records").rglob("*")) == []


def test_a_dry_run_ends_with_what_there_is_to_do(locked: Demo) -> None:
    plan = locked.json("realize", "--dry-run")["plan"]
    deeds = [step["deed"] for step in plan]
    lines = locked.run("realize", "--dry-run").out.splitlines()
    assert lines[-1] == f"to do: {deeds.count('build')} to build, {deeds.count('fetch')} to fetch"
    assert len(lines) == len(plan) + 1
    locked.run("realize", "demo.header")
    lines = locked.run("realize", "--dry-run").out.splitlines()
    assert lines[-2].startswith("to do: ") and lines[-2].endswith(" on record")
    assert "cut off" in lines[-1]
    locked.run("realize")
    assert locked.run("realize", "--dry-run").out.splitlines()[-1] == "nothing to do"


# -- two at once -------------------------------------------------------------------------------


def test_two_processes_build_each_thing_once(demo_template: Demo, locked: Demo) -> None:
    reference = demo_template.clone(locked.path.parent / "p2", locked.path.parent / "s2")
    alone = reference.json("realize")["counts"]
    documents: list[dict[str, dict[str, int]]] = []

    def realize() -> None:
        documents.append(locked.json("realize"))

    threads = [threading.Thread(target=realize) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(documents) == 2
    assert sum(d["counts"]["built"] for d in documents) == alone["built"]
    assert documents[0]["outputs"] == documents[1]["outputs"]
    locked.verify()


# -- exit statuses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("realize", "nowhere"), "E-UNKNOWN-INSTALLABLE"),
        (("realize", "demo.nowhere"), "E-UNKNOWN-INSTALLABLE"),
        (("realize", "--no-such-option"), "E-USAGE"),
        (("realise",), "E-USAGE"),
        (("realize", "--jobs", "0"), "E-USAGE"),
        (("realize", "--memory", "lots"), "E-USAGE"),
        (("realize", "--check=some"), "E-USAGE"),
        (("realize", "--override", "notes"), "E-USAGE"),
        (("realize", "--override", "nothing=path:/tmp"), "E-USAGE"),
        (("lock", "--update", "nothing"), "E-USAGE"),
        (("lock", "--update", "notes", "--check"), "E-USAGE"),
        (("why", "demo", "nothing-like-it"), "E-USAGE"),
        (("log", "notes.copy"), "E-USAGE"),
    ],
)
def test_off_words_exit_2(locked: Demo, words: tuple[str, ...], code: str) -> None:
    ran = locked.run("--json", *words, status=2)
    assert ran.error["code"] == code
    assert set(ran.error) == {"code", "message", "facts", "hint"}


def test_near_names_are_offered(locked: Demo) -> None:
    ran = locked.run("realise", status=2)
    assert ran.out == ""
    assert "'realize'" in ran.err
    assert "[E-USAGE]" in ran.err
    assert "'demo'" in locked.run("realize", "dmeo", status=2).err


def test_wrong_flake_exits_3(locked: Demo) -> None:
    text = (locked.path / "flake-like.toml").read_text()
    locked.write("flake-like.toml", text.replace("[inputs.notes]", "[inputs.notes]\nknd = 1"))
    error = locked.run("--json", "realize", status=3).error
    assert error["facts"]["file"] == "flake-like.toml"
    assert error["facts"]["line"] == text.splitlines().index("[inputs.notes]") + 2
    assert not locked.store.exists() or list((locked.store / "records").rglob("*")) == []


def test_stale_lock_exits_3_or_4_and_names_the_update(locked: Demo) -> None:
    text = (locked.path / "flake-like.toml").read_text()
    locked.write("flake-like.toml", text.replace("number = 2,", "number = 3,"))
    ran = locked.run("--json", "realize", status=None)
    assert ran.error["code"] == "E-LOCK-STALE"
    assert ran.status in (3, 4)
    assert "reprobuild lock" in ran.error["hint"]


def test_content_that_is_not_what_was_pinned_exits_4(locked: Demo) -> None:
    locked.write("notes/notes.txt", "another note\n")
    error = locked.run("--json", "realize", status=4).error
    assert error["code"] == "E-LOCK-STALE"
    digests = re.findall(r"[0-9a-f]{64}", json.dumps(error))
    assert len(set(digests)) >= 2
    locked.verify()


def test_an_open_input_exits_4_and_fails_alone(locked: Demo) -> None:
    text = (locked.path / "flake-like.toml").read_text()
    nowhere = '[inputs.far]\nkind = "url"\nurl = "file:///nonexistent/far.txt"\n\n[inputs.notes]'
    other = '\n[outputs.far]\ncomponents = ["far"]\ntoolchain = "box"\n'
    locked.write("flake-like.toml", text.replace("[inputs.notes]", nowhere) + other)
    locked.write("derivations/far.toml", 'input = "far"\nresult = "source"\n')
    document = locked.json("lock")
    assert "far" in json.dumps(document["open"])
    assert locked.run("realize", "far", status=4).err
    assert locked.json("realize", "demo.notes")["counts"]["built"] == 1


def test_a_build_that_differs_exits_6_and_both_are_kept(locked: Demo) -> None:
    locked.component("notes", "cat /proc/sys/kernel/random/uuid > $out/x")
    locked.run("realize", "demo.notes")
    error = locked.run("--json", "realize", "--check", "demo.notes", status=6).error
    assert error["code"] == "E-NOT-REPRODUCIBLE"
    assert error["facts"]["first"] != error["facts"]["second"]
    # and it is not forgotten: without a choice, nothing is served in silence
    locked.write("derivations/notes.toml", (locked.path / "derivations/notes.toml").read_text()
                 .replace("3.0", "3.1"))  # fmt: skip
    assert locked.run("--json", "realize", "demo.notes", status=6).error["code"] == (
        "E-NOT-REPRODUCIBLE"
    )


def test_a_build_that_stays_passes_its_check(realized: Demo) -> None:
    counts = realized.json("realize", "--check=closure")["counts"]
    assert counts["checked"] == 12
    assert counts["cut_off"] == 0


def test_damage_exits_7(realized: Demo) -> None:
    blob = max((realized.store / "blobs").rglob("*"), key=lambda p: p.stat().st_size)
    blob.chmod(0o644)
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)
    error = realized.run("--json", "store", "verify", status=7)
    assert "E-STORE-DAMAGED" in error.out + error.err
    assert blob.name[:12] in error.out + error.err


def test_no_sandbox_exits_10(locked: Demo, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("git",):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    error = locked.run("--json", "realize", "demo.notes", status=10, env={"PATH": str(tools)}).error
    assert error["code"].startswith("E-SANDBOX")
    assert "bubblewrap" in error["hint"] + error["message"]


def test_no_flake_here(tmp_path: Path) -> None:
    demo = Demo(tmp_path, tmp_path / "store")
    ran = demo.run("--json", "realize", status=None)
    assert ran.error["code"] == "E-NO-FLAKE"
    assert ran.status in (2, 3)
    assert not demo.store.exists()


# -- offline -----------------------------------------------------------------------------------


def test_offline(locked: Demo, tmp_path: Path) -> None:
    with web_server() as web:
        web.put("/far.txt", b"from afar\n")
        text = (locked.path / "flake-like.toml").read_text()
        url = f'[inputs.far]\nkind = "url"\nurl = "{web.url}/far.txt"\n\n[inputs.notes]'
        text = text.replace("[inputs.notes]", url).replace('"notes"]', '"notes", "far"]')
        locked.write("flake-like.toml", text)
        locked.component("far", "cat /inputs/source/far.txt > $out/far")
        path = locked.path / "derivations/far.toml"
        path.write_text(path.read_text().replace('input = "notes"', 'input = "far"'))
        locked.run("lock")
        error = locked.run("--json", "--offline", "realize", store=tmp_path / "s2", status=8).error
        assert error["code"].startswith("E-OFFLINE")
        first = locked.json("realize")
        asked = len(web.seen)
        assert locked.json("--offline", "realize", "--from-source")["image"] == first["image"]
        assert len(web.seen) == asked


# -- places ------------------------------------------------------------------------------------


def test_out_link(realized: Demo, tmp_path: Path) -> None:
    link = tmp_path / "result"
    for installable in ("demo.notes", "demo.header"):
        answer = realized.json("realize", installable, "--out-link", str(link))
        assert str(link.readlink()) == answer["outputs"][installable]["path"]
    ran = realized.run("--json", "realize", "--out-link", "/proc/nothing/here", status=2)
    assert "/proc/nothing/here" in ran.error["message"]
    assert [path.name for path in tmp_path.iterdir() if path.is_symlink()] == ["result"]


def test_directory_before_the_installable(realized: Demo) -> None:
    there = Demo(realized.path.parent, realized.store)
    wanted = realized.json("realize", "demo.notes")["outputs"]
    argv = f"{realized.path}#demo.notes"
    assert there.json("realize", argv)["outputs"] == wanted
    error = there.run("--json", "realize", argv, "/elsewhere#demo", status=2).error
    assert error["code"] == "E-USAGE"


def test_several_at_once(locked: Demo) -> None:
    answer = locked.json("realize", "demo.notes", "demo.header")
    assert set(answer["outputs"]) == {"demo.notes", "demo.header"}
    assert answer["counts"]["built"] == 2
    assert locked.run("realize", "demo.notes", "demo.header").out.endswith("nothing to do\n")


def test_collection_keeps_what_was_realized(realized: Demo) -> None:
    before = realized.json("realize")
    realized.write("notes/notes.txt", "another note\n")
    realized.run("lock", "--update", "notes")
    after = realized.json("realize")
    assert after["image"] != before["image"]
    old = before["outputs"]["demo"]["tree"].removeprefix("blake3:")
    assert (realized.store / "trees" / old[:2] / old).exists()
    realized.run("store", "gc")
    assert not (realized.store / "trees" / old[:2] / old).exists()
    assert realized.run("realize").out.endswith("nothing to do\n")
    assert realized.json("realize", "--dry-run")["plan"][0]["deed"] == "reuse"
    realized.verify()


def test_too_little_space_is_said_before_anything_is_built(
    locked: Demo, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(building, "MINIMUM_SPACE", 2**60)
    place = ["-C", str(locked.path), "--store", str(locked.store)]
    assert run([*place, "--json", "realize", "demo.notes"]) == 10
    error = json.loads(capfd.readouterr().out)["error"]
    assert error["code"] == "E-DISK-SPACE"
    assert list((locked.store / "logs").iterdir()) == []
    assert list((locked.store / "records").rglob("*")) == []


# -- standard output ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["show"], ["--json", "show"], ["graph"], ["--help"], ["--json", "show", "none"]]
)
def test_a_full_standard_output_is_an_error(realized: Demo, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            realized.argv(*words), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env=realized.environment(),
        )  # fmt: skip
    if "none" in words:
        assert done.returncode == 2  # the first error stays the one that counts
        assert "[E-UNKNOWN-INSTALLABLE]" in done.stderr
    else:
        assert done.returncode == 10
        assert done.stderr.startswith("error: standard output cannot be written: No space left")
    assert len(done.stderr.splitlines()) <= 4
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["graph"], ["--json", "graph"], ["--help"]])
def test_a_reader_that_goes_away_is_no_error(realized: Demo, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        realized.argv(*words), stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
        env=realized.environment(),
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_events_that_are_lost_are_said_and_the_build_goes_on(locked: Demo) -> None:
    for words in ([], ["--quiet"]):
        ran = locked.run("--events", "/dev/full", *words, "realize", "demo.notes", "--from-source")
        assert ran.err.count("note: --events /dev/full: No space left on device") == 1
