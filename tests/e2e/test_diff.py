"""`reprobuild diff` as a process: built cases with known answers, between two revisions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from support.demo import FLAKE, REPOSITORY, Demo, needs_sandbox

pytestmark = needs_sandbox

HEADS = 'heads = [{ number = 1, title = "Taken already" }, { number = 2, title = "One more line" }]'

MORE = """
[[commit]]
id = "pull-3"
parents = ["start"]
refs = ["refs/pull/3/head"]
message = "A file of its own"
date = 2026-01-04T00:00:00Z
files = "pull-3"

[[commit]]
id = "next"
parents = ["main", "pull-2"]
refs = ["refs/heads/next"]
message = "Merge pull 2"
date = 2026-01-05T00:00:00Z
files = "next"
"""


def git(demo: Demo, *words: str) -> None:
    quiet = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(
        ["git", "-C", str(demo.path), *who, *words],
        check=True,
        capture_output=True,
        env={**os.environ, **quiet},
    )


def commit(demo: Demo) -> None:
    git(demo, "add", "-A")
    git(demo, "commit", "-q", "-m", "a revision")


@pytest.fixture(scope="module")
def first(demo_template: Demo, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The project with more to choose from, committed and realized; tests take copies."""
    home = tmp_path_factory.mktemp("diff")
    demo = demo_template.clone(home / "project", home / "store")
    subprocess.run(["cp", "-a", str(demo_template.store), str(demo.store)], check=True)
    demo.write("fixtures/header/repository.toml", REPOSITORY + MORE)
    demo.write("fixtures/header/pull-3/extra.txt", "an extra\n")
    demo.write("fixtures/header/next/header.txt", "# the header\nfirst\nsecond\nthird\nfourth\n")
    demo.write("fixtures/header/next/other.txt", "beside it\n")
    demo.run("lock", "--update", "header")
    demo.run("realize")
    git(demo, "init", "-q")
    commit(demo)
    return demo


@pytest.fixture
def demo(first: Demo, tmp_path: Path) -> Demo:
    """A copy that a test may change."""
    shutil.copytree(first.path, tmp_path / "project", symlinks=True)
    subprocess.run(["cp", "-a", str(first.store), str(tmp_path / "store")], check=True)
    return Demo(tmp_path / "project", tmp_path / "store")


def edited(demo: Demo, change: Callable[[str], str], *, realize: bool = True) -> dict[str, Any]:
    """The report from the committed revision to the flake after `change`."""
    text = (demo.path / "flake-like.toml").read_text()
    after = change(text)
    assert after != text
    demo.write("flake-like.toml", after)
    demo.run("lock")
    if realize:
        demo.run("realize")
    return report(demo)


def report(demo: Demo) -> dict[str, Any]:
    return demo.json("diff", "git:HEAD:demo", "demo")


def kinds(doc: dict[str, Any]) -> list[str]:
    return [cause["kind"] for cause in doc["causes"]]


def test_one_head_more(demo: Demo) -> None:
    doc = edited(
        demo, lambda t: t.replace(HEADS, HEADS[:-1] + ', { number = 3, title = "Own file" }]')
    )
    assert kinds(doc) == ["source"]
    assert doc["causes"][0]["title"] == "header: +#3"
    assert doc["causes"][0]["inherits"] > 3
    header = doc["components"]["header"]
    assert [h["number"] for h in header["heads"]["added"]] == [3]
    assert header["heads"]["kept"] == 2
    assert header["base"]["moved"] is False
    assert header["tree"]["equal"] is False
    assert [(f["path"], f["status"], f["heads"]) for f in header["files"]["changed"]] == [
        ("extra.txt", "added", [3])
    ]
    assert header["files"]["changed"][0]["hunks"][0]["lines"] == ["+an extra"]
    # the step reads header.txt alone: what it makes is the same
    assert header["drv"]["equal"] is False
    assert header["output"]["verdict"] == "identical"
    assert doc["components"]["notes"]["status"] == "kept"
    (pull,) = doc["pull_requests"]
    assert (pull["number"], pull["change"], pull["component"]) == (3, "added", "header")
    assert pull["files"] == ["extra.txt"]
    # the source, the step that comes out the same, and what says which heads are in
    assert doc["derivations"]["changed"] == 10
    assert pull["derivations"] == 5
    assert pull["layers"] == ["statement"]
    assert "contract" in pull["documents"]
    assert any(label.endswith(".header.integration.heads") for label in pull["labels"])
    # one layer is the statement's, which names the heads
    assert [layer["component"] for layer in doc["layers"]["changed"]] == ["statement"]
    assert doc["layers"]["bytes_to_pull"] == doc["layers"]["changed"][0]["size"]
    assert doc["layers"]["bytes_uncompressed"] > doc["layers"]["bytes_to_pull"]
    assert len(doc["layers"]["kept"]) == 3


def test_nothing_differs(demo: Demo) -> None:
    doc = report(demo)
    assert doc["equal"] is True
    assert doc["causes"] == []
    assert doc["layers"]["bytes_to_pull"] == 0
    assert "nothing differs" in demo.run("diff", "demo", "demo").out


def test_only_the_order_changed(demo: Demo) -> None:
    swapped = (
        'heads = [{ number = 2, title = "One more line" }, { number = 1, title = "Taken already" }]'
    )
    doc = edited(demo, lambda t: t.replace(HEADS, swapped))
    header = doc["components"]["header"]
    assert header["tree"]["equal"] is True
    assert len(header["heads"]["reordered"]) == 1
    assert not header["heads"]["added"]
    assert not header["heads"]["dropped"]
    assert kinds(doc) == ["source"]
    assert "reordered" in doc["causes"][0]["title"]
    assert "the tree is the same" in doc["causes"][0]["title"]
    assert header["drv"]["equal"] is True
    assert header["output"]["verdict"] == "identical"


def test_a_head_that_the_base_took(demo: Demo) -> None:
    doc = edited(demo, lambda t: t.replace(HEADS, 'base = "refs/heads/next"\n' + HEADS))
    header = doc["components"]["header"]
    assert [h["number"] for h in header["heads"]["absorbed"]] == [2]
    assert header["base"]["commits"] == 2  # the merge, and what it merged
    assert header["tree"]["equal"] is True
    assert kinds(doc) == ["source"]
    (pull,) = doc["pull_requests"]
    assert (pull["number"], pull["change"], pull["tree_unchanged"]) == (2, "absorbed", True)


def test_a_dropped_head_that_the_base_took(demo: Demo) -> None:
    only = 'base = "refs/heads/next"\nheads = [{ number = 1, title = "Taken already" }]'
    doc = edited(demo, lambda t: t.replace(HEADS, only))
    heads = doc["components"]["header"]["heads"]
    assert [h["number"] for h in heads["dropped"]] == [2]
    assert [h["number"] for h in heads["absorbed"]] == [2]


def test_a_recipe_that_changed_and_an_output_that_did_not(demo: Demo) -> None:
    path = demo.path / "derivations/program.toml"
    path.write_text(path.read_text().replace("echo compiled", "echo compiled well"))
    demo.run("realize")
    doc = report(demo)
    assert kinds(doc) == ["recipe"]
    assert doc["causes"][0]["component"] == "program"
    assert [f["field"] for f in doc["causes"][0]["fields"]] == ["argv"]
    assert doc["components"]["program"]["output"]["verdict"] == "identical"
    assert doc["derivations"]["outputs"]["identical"] >= 2
    assert (
        "output identical although the derivation changed"
        in demo.run("diff", "git:HEAD:demo", "demo").out
    )


def test_a_path_input(demo: Demo) -> None:
    demo.write("notes/notes.txt", "a note\nand another\n")
    demo.run("lock", "--update", "notes")
    demo.run("realize")
    doc = report(demo)
    assert kinds(doc) == ["path"]
    notes = doc["components"]["notes"]
    (file,) = notes["files"]["changed"]
    assert (file["path"], file["added"], file["removed"]) == ("notes.txt", 1, 0)
    assert notes["output"]["files"] == [
        {"path": "usr/share/notes/notes.txt", "size": 19, "status": "changed"}
    ]
    assert {layer["component"] for layer in doc["layers"]["changed"]} == {"notes", "statement"}


def test_another_toolchain(demo: Demo) -> None:
    demo.write("root/release", "a patch release\n")
    demo.run("lock", "--update", "box")
    doc = report(demo)
    assert kinds(doc) == ["toolchain"]
    assert len(doc["causes"]) == 1
    assert doc["causes"][0]["inherits"] >= 8
    assert doc["inputs"]["box"]["box"]["toolchain"] is True
    assert doc["kernels"]["compared"] is False  # nothing was made of it yet
    assert doc["layers"]["compared"] is False


def test_only_a_label(demo: Demo) -> None:
    doc = edited(
        demo,
        lambda t: t.replace(
            "[outputs.demo.image]", '[outputs.demo.image]\nlabels = { who = "me" }'
        ),
    )
    assert kinds(doc) == ["labels"]
    assert doc["labels"]["who"] == {"old": None, "new": "me"}
    assert all(c["status"] == "kept" for c in doc["components"].values())
    assert doc["checks"]["new-root-cause"] != []


def test_serving_and_environment(demo: Demo) -> None:
    doc = edited(
        demo,
        lambda t: t.replace(
            'entrypoint = ["/opt/program"]', 'entrypoint = ["/opt/other"]\nenv = { A = "1" }'
        ),
    )
    assert sorted(kinds(doc)) == ["environment", "serving"]
    assert doc["serving"]["entrypoint"] == {"old": ["/opt/program"], "new": ["/opt/other"]}
    assert doc["environment"] == {"A": {"old": None, "new": "1"}}
    assert "profiles" in doc["documents"]


def test_a_dropped_component(demo: Demo) -> None:
    doc = edited(
        demo,
        lambda t: t.replace('["header", "program", "notes"]', '["header", "program"]'),
    )
    assert kinds(doc) == ["component"]
    assert doc["causes"][0]["title"] == "component notes dropped"
    assert doc["components"]["notes"]["status"] == "dropped"
    assert [layer["component"] for layer in doc["layers"]["dropped"]] == ["notes", "statement"]


def test_release_facts_alone(demo: Demo) -> None:
    doc = edited(demo, lambda t: t.replace('revision = "r1"', 'revision = "r2"'))
    assert kinds(doc) == ["release"]
    assert doc["checks"]["new-root-cause"] == []
    assert doc["release"]["revision"] == {"old": "r1", "new": "r2"}
    demo.run("diff", "git:HEAD:demo", "demo", "--fail-on", "new-root-cause")


def inject(demo: Demo, drv: str) -> Record:
    """A second result for one action, as a build that is not reproducible leaves it."""
    with LocalStore.open(demo.store) as store:
        record = store.realized(Digest.parse(drv))
        assert record is not None
        odd = demo.path.parent / "odd"
        odd.mkdir()
        (odd / "x").write_text("other")
        tree = store.capture(odd)
        store.barrier()
        other = Record(record.action, record.drv, {**record.outputs, "out": tree}, name=record.name)
        store.add_record(other)
        return other


def test_an_output_that_is_not_reproducible(demo: Demo) -> None:
    other = inject(demo, demo.json("show", "demo")["outputs"]["demo"]["components"]["notes"]["drv"])
    # the component's own derivation is not what lies in the image, but what made it
    (demo.path / "derivations/notes.toml").write_text(
        (demo.path / "derivations/notes.toml").read_text().replace("cp ", "cp -f ")
    )
    doc = report(demo)
    rows = [row for row in doc["not_reproducible"] if row["derivation"] == "notes.copy"]
    assert len(rows) == 1
    assert other.outputs["out"].hex in rows[0]["conflict"]
    ran = demo.run("diff", "git:HEAD:demo", "demo", "--fail-on", "non-reproducible", status=9)
    assert "NOT REPRODUCIBLE: notes.copy" in ran.out
    assert "E-DIFF-CHECK" in ran.err


def test_a_base_that_goes_back_is_a_downgrade(demo: Demo) -> None:
    text = (demo.path / "flake-like.toml").read_text()
    bare = text.replace(HEADS, "heads = []")
    demo.write("flake-like.toml", text.replace(HEADS, 'base = "refs/heads/next"\nheads = []'))
    demo.run("lock")
    commit(demo)
    demo.write("flake-like.toml", bare)
    demo.run("lock")
    ran = demo.run("diff", "git:HEAD:demo", "demo", "--fail-on", "downgrade", status=9)
    assert "header: base" in ran.err
    assert "goes back" in ran.err
    demo.run("diff", "demo", "git:HEAD:demo", "--fail-on", "downgrade")


def test_a_weaker_isolation_is_told(demo: Demo) -> None:
    text = (demo.path / "flake-like.toml").read_text()
    wish = 'label-prefix = "org.example"\nisolation = "host-toolchain"'
    demo.write("flake-like.toml", text.replace('label-prefix = "org.example"', wish))
    demo.run("lock")
    ran = demo.run("diff", "git:HEAD:demo", "demo", "--fail-on", "isolation-weaker", status=9)
    assert "the release requires: full → host-toolchain" in ran.err
    demo.run("diff", "demo", "git:HEAD:demo", "--fail-on", "isolation-weaker")


def test_fail_on_speaks_json(demo: Demo) -> None:
    demo.write(
        "flake-like.toml",
        FLAKE.replace('"One more line"', '"One more"').replace(
            'entrypoint = ["/opt/program"]', 'entrypoint = ["/bin/sh"]'
        ),
    )
    ran = demo.run(
        "--json", "diff", "git:HEAD:demo", "demo", "--fail-on", "new-root-cause", status=9
    )
    assert ran.error["code"] == "E-DIFF-CHECK"
    assert ran.error["facts"]["failed"] == ["new-root-cause"]
    assert "serving" in ran.error["facts"]["found"][0]


def test_why_rebuilt(demo: Demo) -> None:
    assert demo.run("why", "demo", "--rebuilt", status=2).err.startswith("error: demo was not")
    demo.run("realize")
    assert "last realized" in demo.run("why", "demo", "--rebuilt").out
    path = demo.path / "derivations/program.toml"
    path.write_text(path.read_text().replace("echo compiled", "echo compiled well"))
    doc = demo.json("why", "demo", "--rebuilt")
    assert doc["changed"] is True
    assert [root["name"] for root in doc["roots"]] == ["program.compile"]
    assert [f["field"] for f in doc["roots"][0]["fields"]] == ["argv"]
    assert doc["between"] >= 2
    own = demo.json("why", "demo", "program.compile", "--rebuilt")
    assert own["roots"][0]["old"] != own["roots"][0]["new"]
    other = demo.json("why", "demo", "notes.copy", "--rebuilt")
    assert other["changed"] is False


def test_files_of_images(demo: Demo, tmp_path: Path) -> None:
    """An archive, a layout and the answer of realize, against installables and each other."""
    answer = demo.json("realize", "demo")
    archive, layout = tmp_path / "demo.tar", tmp_path / "layout"
    demo.run("image", "save", "demo", "-o", str(archive))
    shutil.copytree(answer["outputs"]["demo"]["path"], layout)
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    for side in (f"file:{archive}", f"file:{layout}", f"file:{tmp_path / 'answer.json'}"):
        doc = demo.json("diff", side, "demo")
        assert doc["layers"]["bytes_to_pull"] == 0, side
        assert doc["causes"] == [], side
        assert all(c["status"] == "kept" for c in doc["components"].values())
    demo.write("notes/notes.txt", "another note\n")
    demo.run("lock", "--update", "notes")
    demo.run("realize")
    for side in (f"file:{archive}", f"file:{layout}", f"file:{tmp_path / 'answer.json'}"):
        doc = demo.json("diff", side, "demo")
        assert [c["status"] for c in doc["components"].values()].count("changed") == 1, side
        assert {la["component"] for la in doc["layers"]["changed"]} == {"notes", "statement"}
        assert doc["components"]["notes"]["output"]["verdict"] == "changed"
        assert len(doc["causes"]) == 1, side


def test_components_alone(demo: Demo) -> None:
    doc = demo.json("diff", "git:HEAD:demo.header", "demo.header")
    assert list(doc["components"]) == ["header"]
    assert doc["equal"] is True


def test_another_directory(demo: Demo, first: Demo) -> None:
    doc = demo.json("diff", f"{first.path}#demo", "demo")
    assert doc["equal"] is True


@pytest.mark.parametrize(
    ("side", "status", "code"),
    [
        ("git:HEAD", 2, "E-USAGE"),
        ("git:nothing-like-it:demo", 3, "E-RELEASE-SIDE"),
        ("git:--output=x:demo", 3, "E-RELEASE-SIDE"),
        ("git:HEAD:other", 2, "E-UNKNOWN-INSTALLABLE"),
        ("file:/does/not/exist", 3, "E-RELEASE-SIDE"),
        ("demo.nothing", 2, "E-UNKNOWN-INSTALLABLE"),
    ],
)
def test_sides_that_cannot_be_read(first: Demo, side: str, status: int, code: str) -> None:
    ran = first.run("--json", "diff", side, "demo", status=status)
    assert ran.error["code"] == code


def test_no_store_is_made(first: Demo, tmp_path: Path) -> None:
    absent = tmp_path / "no-store"
    first.run("diff", "git:HEAD:demo", "demo", store=absent)
    assert not absent.exists()


def test_included_files_belong_to_a_revision_and_to_a_bundle(demo: Demo, tmp_path: Path) -> None:
    text = (demo.path / "flake-like.toml").read_text()
    notes = '[inputs.notes]\nkind = "path"\npath = "notes"\n'
    assert text.count(notes) == 1
    text = text.replace(notes, "").replace(
        "format = 0\n", 'format = 0\ninclude = ["parts/*.toml"]\n'
    )
    demo.write("flake-like.toml", text)
    demo.write("parts/notes.toml", f"format = 0\n\n{notes}")
    demo.write("parts/.hidden.toml", "no TOML at all")
    commit(demo)
    assert demo.json("diff", "git:HEAD~1:demo", "git:HEAD:demo")["equal"] is True
    assert report(demo)["equal"] is True
    bundle = tmp_path / "demo.bundle"
    demo.run("export", "demo", "--no-sign", "-o", str(bundle))
    assert demo.json("diff", f"file:{bundle}", "demo")["notes"] == [
        f"file:{bundle}: no trusted key signed the bundle: what its builds came out as is its own "
        "word"
    ]
