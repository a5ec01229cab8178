"""`reprobuild integrate` and `init` as commands: installables, replays, maps, resolutions."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.strategies import integrate
from support.cliin import Said, cli
from support.demo import Demo, make_root, needs_sandbox
from support.gitkit import Origin, git, merge_spec, opened

LINES = "".join(f"line {n}\n" for n in range(1, 21))


def line(number: int, said: str) -> str:
    return LINES.replace(f"line {number}\n", f"{said}\n")


class Project:
    """A flake with one component over a local repository."""

    def __init__(self, tmp: Path) -> None:
        self.origin = Origin.make(tmp / "origin.git")
        self.base = self.origin.commit({"a.txt": LINES}, ref="refs/heads/main")
        self.path = tmp / "project"
        (self.path / "derivations").mkdir(parents=True)
        (self.path / "derivations" / "lib.toml").write_text('input = "lib"\nresult = "source"\n')

    def flake(self, *numbers: int, extra: str = "") -> None:
        heads = ", ".join(f"{{ number = {n} }}" for n in numbers)
        (self.path / "flake-like.toml").write_text(
            'format = 0\ndefault = "rel"\n'
            f'[inputs.lib]\nkind = "git"\nurl = "{self.origin.path}"\nref = "refs/heads/main"\n'
            '[outputs.rel]\ncomponents = ["lib"]\n'
            f'[outputs.rel.sources.lib]\ninput = "lib"\nheads = [{heads}]\n{extra}'
        )

    def run(self, *argv: str) -> Said:
        return cli("-C", str(self.path), "--store", str(self.path.parent / "store"), *argv)

    def ok(self, *argv: str) -> Said:
        said = self.run(*argv)
        assert said.status == 0, said
        return said


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_an_installable_is_integrated_as_it_is_locked(project: Project) -> None:
    origin, base = project.origin, project.base
    origin.pull(1, {"a.txt": line(1, "one")}, [base])
    origin.pull(2, {"b.txt": "b\n"}, [base])
    project.flake(1, 2)
    project.ok("lock")
    document = project.ok("--json", "integrate", "rel.lib").document
    with opened(origin.path) as repository:
        done = integrate(repository, merge_spec(origin, base, 1, 2))
    assert document["tree"] == done.tree.hex
    assert document["patch_sha256"] == done.patch_sha256.hex
    assert document["patch_digest"] == str(done.patch_digest)
    assert document["matches"] is True
    assert [(h["number"], h["head"], h["disposition"]) for h in document["heads"]] == [
        (1, origin.pulls[1].hex, "merged"),
        (2, origin.pulls[2].hex, "merged"),
    ]
    assert project.ok("--json", "--offline", "integrate").document["components"].keys() == {"lib"}
    said = project.ok("integrate", "rel.lib").out
    assert done.tree.hex in said and "#1" in said


def test_a_lock_that_promises_another_tree_is_told(project: Project) -> None:
    project.origin.pull(1, {"b": "b\n"}, [project.base])
    project.flake(1)
    project.ok("lock")
    lock = project.path / "flake-like.lock"
    tree = project.ok("--json", "integrate").document["tree"]
    lock.write_text(lock.read_text().replace(tree, "1" * 40))
    said = project.run("--json", "integrate", "rel.lib")
    assert said.status == 4
    assert said.document["matches"] is False


def test_what_is_nowhere_or_has_no_heads(project: Project) -> None:
    project.flake(1)
    said = project.run("integrate", "rel.lib")
    assert (said.status, "E-REF-MISSING" in said.err) == (4, True)
    assert project.run("integrate", "rel.nothing").status == 2
    assert project.run("integrate", "--svg", "x").status == 2
    assert project.run("integrate", "--lock", "x").status == 2


def test_moved_heads_show_their_range_diff_and_the_way_on(project: Project) -> None:
    origin, base = project.origin, project.base
    old = origin.pull(628, {"a.txt": line(1, "one")}, [base], "Change the first line")
    project.flake(628)
    project.ok("lock")
    assert "where it was pinned" in project.ok("integrate", "--moved").out
    new = origin.pull(628, {"a.txt": line(1, "one, better")}, [base], "Change the first line")
    said = project.run("integrate", "--moved")
    assert said.status == 4
    assert f"PR #628 moved: {old} is pinned, remote is {new}" in said.out
    assert "one, better" in said.out
    assert "reprobuild lock --update lib.pulls.628" in said.out
    document = project.run("--json", "integrate", "--moved").document
    (moved,) = document["moved"]["lib"]
    assert (moved["pinned"], moved["live"]) == (old.hex, new.hex)
    assert "range_diff" in moved and document["error"]["code"] == "E-HEAD-MOVED"
    project.ok("lock", "--update", "lib.pulls.628")
    assert project.run("integrate", "--moved").status == 0


def test_analyze_maps_and_draws(project: Project, tmp_path: Path) -> None:
    origin, base = project.origin, project.base
    origin.pull(1, {"a.txt": line(1, "one")}, [base])
    origin.pull(2, {"a.txt": line(1, "one and two")}, [origin.pulls[1]])
    origin.pull(3, {"c.txt": "c\n"}, [base])
    project.flake(1, 2, 3)
    project.ok("lock")
    svg = tmp_path / "map.svg"
    document = project.ok("--json", "integrate", "rel.lib", "--analyze", "--svg", str(svg)).document
    assert document["needs"] == {"2": [1]}
    assert document["core"]["heads"] == [3]
    ET.parse(svg)
    origin.commit({"c.txt": "c\n"}, [base], ref="refs/heads/main", message="#3, squashed")
    later = project.ok("--json", "integrate", "--analyze").document
    states = {a["number"]: a["state"] for a in later["newer_base"]["absorbed"]}
    assert states == {1: "apart", 2: "apart", 3: "absorbed"}
    assert "#3: absorbed" in project.ok("integrate", "--analyze").out


def conflicting(project: Project) -> None:
    """A pinned head, and one that the flake adds and that does not go on after it."""
    origin, base = project.origin, project.base
    origin.pull(1, {"a.txt": line(1, "one")}, [base])
    origin.pull(2, {"a.txt": line(1, "two"), "b.txt": "b\n"}, [base])
    project.flake(1)
    project.ok("lock")
    project.flake(1, 2)


def test_a_conflict_that_lock_refuses_is_explained_and_resolved(
    project: Project, tmp_path: Path
) -> None:
    conflicting(project)
    lock = project.path / "flake-like.lock"
    before = lock.read_text()
    said = project.run("lock")
    assert said.status == 4 and "PR #2 conflicts" in said.out + said.err
    assert lock.read_text() == before
    stopped = project.run("integrate", "rel.lib")
    assert stopped.status == 4
    assert "PR #2 collides with #1" in stopped.out
    assert "smallest set that cannot stand together: #1, #2" in stopped.out
    mapped = project.ok("integrate", "rel.lib", "--analyze").out
    assert "#1  collides with #2" in mapped and "#2  collides with #1" in mapped
    answer = tmp_path / "answer"
    answer.write_text(line(1, "one and two"))
    project.ok("integrate", "rel.lib", "--resolve", f"a.txt={answer}", "--author", "Ann",
               "--reason", "both lines are wanted")  # fmt: skip
    tried = project.ok("--json", "integrate", "rel.lib").document
    assert tried["pinned"] is False and tried["matches"] is None
    assert tried["heads"][1]["resolved"] == ["a.txt"]
    assert "not pinned yet" in project.ok("integrate", "rel.lib").out
    project.ok("lock")
    pinned = project.ok("--json", "integrate", "rel.lib").document
    assert pinned["pinned"] is True and pinned["matches"] is True
    assert pinned["tree"] == tried["tree"]


def test_exclusions_are_told_behind_the_heads(project: Project) -> None:
    project.origin.pull(1, {"a.txt": line(1, "one")}, [project.base])
    left = project.origin.pull(2, {"a.txt": line(1, "two")}, [project.base])
    project.flake(
        1,
        extra=f"""
[[outputs.rel.sources.lib.exclusions]]
number = 2
head = "{left}"
disposition = "superseded"
reason = "by the first"
""",
    )
    for _ in ("declared", "pinned"):
        said = project.ok("integrate", "rel.lib").out
        assert f"#2 {left.hex[:12]}  excluded  [superseded]  by the first" in said
        project.ok("lock")
    (kept,) = project.ok("--json", "integrate", "rel.lib").document["exclusions"]
    assert kept == {
        "number": 2, "head": left.hex, "disposition": "superseded", "reason": "by the first"
    }  # fmt: skip


def test_a_stack_without_a_lock_is_integrated_where_its_refs_are_now(project: Project) -> None:
    project.origin.pull(1, {"a.txt": line(1, "one")}, [project.base])
    project.flake(1)
    tried = project.ok("--json", "integrate", "rel.lib").document
    assert not (project.path / "flake-like.lock").exists()
    project.ok("lock")
    assert project.ok("--json", "integrate", "rel.lib").document["tree"] == tried["tree"]


def test_resolutions_are_recorded_used_pinned_and_void_when_a_side_moves(
    project: Project, tmp_path: Path
) -> None:
    origin, base = project.origin, project.base
    start = origin.pull(1, {"a.txt": line(1, "one")}, [base])
    calm = origin.pull(2, {"b.txt": "b\n"}, [base])
    project.flake(1, 2)
    project.ok("lock")
    clash = origin.commit({"a.txt": line(1, "two"), "b.txt": "b\n"}, [base])
    lock = project.path / "flake-like.lock"
    lock.write_text(lock.read_text().replace(calm.hex, clash.hex))
    stopped = project.run("--json", "integrate", "rel.lib")
    assert stopped.status == 4
    assert stopped.document["explanation"]["collides_with"] == [1]
    assert "PR #2 conflicts with the clean stack" in stopped.document["error"]["message"]
    hint = stopped.document["error"]["hint"]
    assert "integrate rel.lib --analyze" in hint and "the base with the heads before" in hint
    assert "OUTPUT.COMPONENT" not in hint and "shows both sides" not in hint
    answer = tmp_path / "answer"
    answer.write_text(line(1, "one and two"))
    nobody = project.run("integrate", "rel.lib", "--resolve", f"a.txt={answer}")
    assert nobody.status == 2
    wrong = project.run(
        "integrate", "--resolve", f"z={answer}", "--author", "Ann", "--reason", "both"
    )
    assert wrong.status == 2 and "a.txt" in wrong.err
    marked = tmp_path / "marked"
    marked.write_text("<<<<<<< ours\n=======\n>>>>>>> theirs\n")
    assert project.run(
        "integrate", "--resolve", f"a.txt={marked}", "--author", "A", "--reason", "r"
    ).status == 2  # fmt: skip
    assert not (project.path / "resolutions").exists()
    project.ok("integrate", "rel.lib", "--resolve", f"a.txt={answer}", "--author", "Ann",
               "--reason", "both lines are wanted")  # fmt: skip
    names = sorted(p.name for p in (project.path / "resolutions").iterdir())
    assert [n.rpartition(".")[2] for n in names] == ["blob", "json"]
    said = project.run("--json", "integrate", "rel.lib")
    assert said.document["heads"][1]["resolved"] == ["a.txt"]
    git(origin.path, "update-ref", "refs/pull/2/head", clash.hex)
    lock.write_text(lock.read_text().replace(clash.hex, calm.hex))
    project.ok("lock", "--update", "lib.pulls.2")
    text = lock.read_text()
    assert 'author = "Ann"' in text and 'reason = "both lines are wanted"' in text
    tree = GitOid.parse(project.ok("--json", "integrate").document["tree"])
    shown = project.ok("--json", "realize", "rel.lib").document
    path = Path(shown["outputs"]["rel.lib"]["path"])
    assert (path / "a.txt").read_text() == line(1, "one and two")
    assert tree != origin.tree(clash)
    # a side moves: the record is for other blobs, and the conflict is back
    origin.pull(1, {"a.txt": line(1, "one, moved")}, [start])
    again = project.run("lock", "--update", "lib.pulls.1")
    assert "PR #2 conflicts" in again.out + again.err
    assert "`reprobuild integrate rel.lib` shows both sides" in again.err
    blob = next((project.path / "resolutions").glob("*.blob"))
    git(origin.path, "update-ref", "refs/pull/1/head", start.hex)
    project.ok("lock", "--update", "lib.pulls.1")
    blob.write_text("tampered\n")
    tampered = project.run("integrate", "rel.lib")
    assert tampered.status == 4 and "was changed after it was recorded" in tampered.err


def published(tmp: Path, origin: Origin, base: GitOid, *numbers: int, **more: Any) -> Path:
    """A lock such as the publishers commit."""
    with opened(origin.path) as repository:
        done = integrate(repository, merge_spec(origin, base, *numbers))
    path = tmp / "integration.lock.json"
    document = {
        "schema_version": 1,
        "name": "x",
        "manifest": {"sha256": "0" * 64},
        "base": {
            "repository": "https://github.com/local-inference-lab/lib.git",
            "ref": "refs/heads/main",
            "commit": base.hex,
        },
        "pull_requests": [
            {
                "number": h.number,
                "ref": f"refs/pull/{h.number}/head",
                "head": h.head.hex,
                "title": f"Title {h.number}",
                "disposition": h.disposition.value,
            }
            for h in done.heads
        ],
        "result": {
            "tree": done.tree.hex,
            "patch": "integration.patch",
            "patch_sha256": done.patch_sha256.hex,
        },
        **more,
    }
    path.write_text(json.dumps(document))
    return path


def replay(path: Path, repository: Path, *flags: str) -> Said:
    return cli(
        "--offline", "--json", "integrate", "--lock", str(path), "--repository", str(repository),
        *flags,
    )  # fmt: skip


def test_a_published_lock_is_replayed_without_a_flake(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"a": LINES})
    origin.pull(1, {"a": line(2, "two")}, [base])
    path = published(tmp_path, origin, base, 1)
    said = replay(path, origin.path)
    assert said.status == 0
    assert said.document["matches"] is True
    assert said.document["heads"][0]["disposition"] == "merged"
    wrong = published(tmp_path, origin, base, 1, result={
        "tree": "1" * 40, "patch": "integration.patch", "patch_sha256": "0" * 64})  # fmt: skip
    said = replay(wrong, origin.path)
    assert said.status == 4
    assert said.document["matches"] is False
    assert len(said.document["differences"]) == 2
    assert said.document["error"]["code"] == "E-TREE-MISMATCH"
    analyzed = replay(published(tmp_path, origin, base, 1), origin.path, "--analyze")
    assert analyzed.document["core"]["heads"] == [1]


def test_a_source_lock_is_checked_or_merged_anew(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"a": LINES})
    one = origin.pull(1, {"one": "1\n"}, [base])
    two = origin.pull(2, {"two": "2\n"}, [base])
    first = origin.commit({"one": "1\n"}, [base, one])
    tip = origin.commit({"two": "2\n"}, [first, two], ref="refs/heads/composed")
    document = {
        "schema_version": 1,
        "component": "lib",
        "purpose": "p",
        "source": {"repository": "https://github.com/other/lib.git",
                   "ref": "refs/heads/composed", "commit": tip.hex,
                   "tree": origin.tree(tip).hex},
        "upstream_base": {"repository": "https://github.com/local-inference-lab/lib.git",
                          "ref": "refs/heads/main", "commit": base.hex},
        "pull_requests": [
            {"number": 1, "head": one.hex, "merge_commit": first.hex, "title": "One"},
            {"number": 2, "head": two.hex, "merge_commit": tip.hex, "title": "Two"},
        ],
        "source_patches": [],
    }  # fmt: skip
    path = tmp_path / "source.lock.json"
    path.write_text(json.dumps(document))
    said = replay(path, origin.path)
    assert (said.status, said.document["matches"], said.document["replayed"]) == (0, True, False)
    assert said.document["heads"][0]["disposition"] == "recorded_in_composition"
    swapped = {**document, "pull_requests": document["pull_requests"][::-1]}  # type: ignore[index]
    path.write_text(json.dumps(swapped))
    assert replay(path, origin.path).document["error"]["code"] == "E-ANCESTRY"
    # a mirror that lacks the composed branch has the heads all the same
    other = tmp_path / "other.git"
    git(tmp_path, "init", "--quiet", "--bare", str(other))
    git(other, "fetch", "--quiet", str(origin.path), f"{one}:refs/a", f"{two}:refs/b")
    path.write_text(json.dumps(document))
    again = replay(path, other)
    assert (again.status, again.document["matches"], again.document["replayed"]) == (0, True, True)


def test_init_from_a_lock_round_trips_to_the_published_tree(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "mirrors" / "lib.git")
    base = origin.commit({"a": LINES}, ref="refs/heads/main")
    origin.pull(1, {"a": line(2, "two")}, [base])
    origin.commit({"later": "x\n"}, [base], ref="refs/heads/main")
    path = published(tmp_path, origin, base, 1)
    tree = json.loads(path.read_text())["result"]["tree"]
    home = tmp_path / "new"
    home.mkdir()
    said = cli("-C", str(home), "init", "--from-lock", str(path))
    assert said.status == 0, said
    flake = (home / "flake-like.toml").read_text()
    for fact in (base.hex, origin.pulls[1].hex, tree, "Title 1", "published patch_sha256"):
        assert fact in flake
    config = tmp_path / "config.toml"
    config.write_text(
        f'[mirrors]\n"https://github.com/local-inference-lab/" = "file://{origin.path.parent}/"\n'
    )
    project = Project.__new__(Project)
    project.path = home
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPROBUILD_CONFIG", str(config))
        project.ok("--offline", "lock")
        assert project.ok("--offline", "--json", "integrate").document["tree"] == tree
    again = cli("-C", str(home), "init", "--from-lock", str(path))
    assert again.status == 2 and "is there already" in again.err
    assert (home / "flake-like.toml").read_text() == flake


def test_a_contract_names_no_base_and_lock_finds_it(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "mirrors" / "vllm.git")
    base = origin.commit({"a": LINES}, ref="refs/heads/dev/release")
    head = origin.pull(628, {"a": line(2, "two")}, [base])
    with opened(origin.path) as repository:
        done = integrate(repository, merge_spec(origin, base, 628))
    tip = base
    for number in range(3):
        tip = origin.commit({f"later{number}": "x\n"}, [tip], ref="refs/heads/dev/release")
    text = (
        "[JJ r1] Some source merge contract #94\n\nRunbook:\n"
        "https://github.com/local-inference-lab/rtx6kpro/blob/master/x.md\n\n"
        "vLLM: dev/release\n\n• Change the second line vllm#628 at\n"
        f"  {head}\n\n  Explains itself.\n\nIntegration tree:\n{done.tree}\n\nScope: none\n"
    )
    contract = tmp_path / "contract.txt"
    contract.write_text(text)
    home = tmp_path / "new"
    home.mkdir()
    assert cli("-C", str(home), "init", "--from-contract", str(contract)).status == 0
    assert "to be found by `reprobuild lock`" in (home / "flake-like.toml").read_text()
    config = tmp_path / "config.toml"
    config.write_text(
        f'[mirrors]\n"https://github.com/local-inference-lab/" = "file://{origin.path.parent}/"\n'
    )
    project = Project.__new__(Project)
    project.path = home
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPROBUILD_CONFIG", str(config))
        project.ok("--offline", "lock")
        document = project.ok("--offline", "--json", "integrate").document
    assert document["tree"] == done.tree.hex
    assert f'base = "{base}"' in (home / "flake-like.lock").read_text()
    # a tree that no base gives stays open, and says so
    contract.write_text(text.replace(done.tree.hex, "1" * 40))
    other = tmp_path / "other"
    other.mkdir()
    assert cli("-C", str(other), "init", "--from-contract", str(contract)).status == 0
    project.path = other
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPROBUILD_CONFIG", str(config))
        said = project.run("--offline", "lock")
    assert "1" * 40 in said.out + said.err


def test_init_of_nothing_makes_a_flake_that_reads(tmp_path: Path) -> None:
    assert cli("-C", str(tmp_path), "init").status == 0
    said = cli("-C", str(tmp_path), "--json", "lock")
    assert said.status == 0, said
    assert "no outputs" in cli("-C", str(tmp_path), "show").err
    none = cli("-C", str(tmp_path), "realize")
    assert none.status != 0 and "[outputs.NAME]" in none.err and "name one of" not in none.err


def test_what_init_of_nothing_shows_is_right(project: Project, tmp_path: Path) -> None:
    project.origin.pull(1, {"b.txt": "b\n"}, [project.base])
    new = tmp_path / "new"
    new.mkdir()
    said = cli("-C", str(new), "init")
    assert "docs/" not in said.out and "flake-like.toml" in said.out
    flake = new / "flake-like.toml"
    head, _, shown = flake.read_text().partition("#\n")
    example = "\n".join(line.removeprefix("#").removeprefix(" ") for line in shown.splitlines())
    url = "https://git.example.org/app.git"
    assert url in example
    flake.write_text(head + example.replace(url, str(project.origin.path)) + "\n")
    (new / "derivations").mkdir()
    (new / "derivations" / "app.toml").write_text('input = "app"\nresult = "source"\n')
    project.path = new
    project.ok("lock")
    heads = project.ok("--json", "integrate", "demo.app").document["heads"]
    assert [head["number"] for head in heads] == [1]


@needs_sandbox
def test_bisect_runs_the_command_in_the_sandbox(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "p", tmp_path / "store")
    demo.path.mkdir()
    overlays = "\n".join(
        f'[[commit]]\nid = "p{n}"\nparents = ["base"]\nrefs = ["refs/pull/{n}/head"]\n'
        f'files = "p{n}"\n'
        for n in range(1, 5)
    )
    demo.write(
        "fixtures/lib/repository.toml",
        'format = 0\n[[commit]]\nid = "base"\nrefs = ["refs/heads/main"]\nfiles = "base"\n'
        + overlays,
    )
    demo.write("fixtures/lib/base/a.txt", "a\n")
    for number in range(1, 5):
        demo.write(f"fixtures/lib/p{number}/f{number}.txt", f"{number}\n")
    make_root(demo.path / "root")
    heads = ", ".join(f"{{ number = {n} }}" for n in range(1, 5))
    demo.write(
        "flake-like.toml",
        'format = 0\ndefault = "rel"\n'
        '[inputs.box]\nkind = "path"\npath = "root"\n'
        '[inputs.lib]\nkind = "fixture"\npath = "fixtures/lib"\n'
        '[toolchains.box]\nroot = "inputs.box"\n'
        '[outputs.rel]\ncomponents = ["lib"]\ntoolchain = "box"\n'
        f'[outputs.rel.sources.lib]\ninput = "lib"\nheads = [{heads}]\n',
    )
    demo.write(
        "derivations/lib.toml",
        'input = "lib"\nresult = "steps.s"\n[steps.s]\nkind = "script"\n'
        'inputs = { source = "source" }\nrun = "cp /inputs/source/* $out/"\n',
    )
    demo.run("lock")
    command = "test ! -e f3.txt || { echo f3 is here; exit 1; }"
    document = demo.json("integrate", "rel.lib", "--bisect", command)
    assert document["first_bad"] == 3
    assert document["runs"][0] == {"heads": 4, "passed": False}
    assert document["tail"] == ["f3 is here"]
    again = demo.run("integrate", "rel.lib", "--bisect", command)
    assert "PR #3\n    f3 is here" in again.out
    never = demo.run("--json", "integrate", "rel.lib", "--bisect", "true", status=9)
    assert never.error["code"] == "E-BISECT"
    always = demo.run("--json", "integrate", "rel.lib", "--bisect", "no-such-tool", status=9)
    assert always.error["code"] == "E-BISECT"
    assert "no-such-tool" in str(always.error["facts"]["tail"])


def test_the_bisect_command_is_data_not_a_recipe_of_ours(tmp_path: Path) -> None:
    """Quotes, newlines and dollars reach the shell as they were typed."""
    from reprobuild.core.derivation import Input
    from reprobuild.core.digest import Digest
    from reprobuild.core.graph import Graph
    from reprobuild.core.integration.model import IntegrationSpec, Strategy
    from reprobuild.engine.probe import probe

    command = "echo \"$HOME\" '`x`' \\\n; exit 1"
    oid = GitOid("1" * 40)
    seen: list[Any] = []

    def realize(graph: Graph, target: Digest) -> None:
        seen.append(graph.nodes[target])

    graph = Graph()
    from reprobuild.core.derivation import Derivation, FixedOutput

    root = graph.add(Derivation("root", "fetch", fixed=FixedOutput("tree", tree=Digest("0" * 64))))
    spec = IntegrationSpec(Strategy.MERGE, oid)
    trial = probe(
        graph, Input("r", root, at="/"), command, {"kind": "git", "url": "/x"}, {oid: spec}, realize
    )
    assert trial(oid) is None
    assert seen[0].env["PROBE"] == command
    assert command not in seen[0].argv
    assert replace(spec, base=oid) == spec
