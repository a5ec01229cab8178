"""Two outputs of one image reference: told by `lock`, refused where both are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cliin import Said, cli

COMPONENT = """\
version = "1.0"
input = "notes"
result = "source"

[image]
place = [{ from = "source", to = "opt" }]
"""


def output(name: str, release: str = "", image: str = "") -> str:
    return f"""
[outputs.{name}]
components = ["notes"]

[outputs.{name}.release]
codename = "demo"
revision = "r1"
date = 2026-01-02
repository = "example.org/demo"
label-prefix = "org.example"
tag = "{{codename}}-{{revision}}"
{release}

[outputs.{name}.image]
{image}
"""


class Project:
    def __init__(self, path: Path, *outputs: str) -> None:
        self.path = path
        (path / "derivations").mkdir(parents=True)
        (path / "derivations" / "notes.toml").write_text(COMPONENT)
        (path / "notes").mkdir()
        (path / "notes" / "a.txt").write_text("a note\n")
        text = 'format = 0\ndefault = "one"\n[inputs.notes]\nkind = "path"\npath = "notes"\n'
        (path / "flake-like.toml").write_text(text + "".join(outputs))

    def run(self, *argv: str) -> Said:
        return cli("-C", str(self.path), "--store", str(self.path.parent / "store"), *argv)


def test_two_images_of_one_name(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", output("one"), output("two", image='user = "7"'))
    for argv in (("lock",), ("lock", "--check")):
        said = project.run(*argv)
        assert said.status == 0, said
        assert "warning: the outputs one and two make different images of one name" in said.err
        assert "example.org/demo:demo-r1" in said.err
    said = project.run("--json", "realize", "--dry-run", "one", "two")
    assert said.status == 3, said
    assert said.document["error"]["facts"]["outputs"] == ["one", "two"]
    assert said.document["error"]["facts"]["reference"] == "example.org/demo:demo-r1"
    for wanted in (["one"], ["two"], ["one", "two.notes"]):
        said = project.run("realize", "--dry-run", *wanted)
        assert said.status == 0, said


@pytest.mark.parametrize("other", [output("two", release='codename = "other"'), ""])
def test_names_that_differ_are_no_news(tmp_path: Path, other: str) -> None:
    other = other.replace('codename = "demo"\n', "")
    project = Project(tmp_path / "p", output("one"), other)
    said = project.run("lock")
    assert (said.status, "warning" in said.err) == (0, False), said
    if other:
        assert project.run("realize", "--dry-run", "one", "two").status == 0
