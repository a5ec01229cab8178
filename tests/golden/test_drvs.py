"""Digests that other machines, stores and image labels rely on.

`drvs/formats.json` holds digests of fixed documents under the names of their formats: it moves
only when a format's version does. `drvs/project.json` holds the derivations that a project with a
step of every kind becomes: it also moves when a kind's recipe does, and then every user builds
that kind again. `release/*.json` is what its image says about itself.

`REPROBUILD_UPDATE_GOLDEN=1` writes them anew; read the difference before it is kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from reprobuild.adapters.toml.load import load_project
from reprobuild.core import derivation as derivations
from reprobuild.core import record as records
from reprobuild.core import tree as trees
from reprobuild.core.derivation import (
    Derivation,
    FixedOutput,
    Input,
    InputContent,
    Isolation,
)
from reprobuild.core.digest import Digest, GitOid, Sha256
from reprobuild.core.graph import Graph
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, File, Symlink, Tree
from reprobuild.engine.evaluate import Evaluation, Evaluator
from support.pins import made_up_lock

HERE = Path(__file__).parent
UPDATE = os.environ.get("REPROBUILD_UPDATE_GOLDEN") == "1"
ONE, TWO = Digest("11" * 32), Digest("22" * 32)


def check(path: Path, found: Any) -> None:
    """Compares with a golden file, or writes it."""
    text = json.dumps(found, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    assert json.loads(text) == json.loads(path.read_text(encoding="utf-8"))


def formats() -> dict[str, dict[str, str]]:
    """Digests of fixed documents, by the domain that they are hashed under."""
    step = Derivation(
        name="demo.step",
        builder="sandbox",
        inputs=(Input("root", ONE, at="/"), Input("s", TWO, "dev", "a/b", "/inputs/s")),
        outputs=("out", "dev"),
        argv=("/bin/sh", "-c", 'echo "é"'),
        env={"B": "2", "A": "1"},
    )
    builtin = Derivation("demo.join", "builtin:join", (Input("a", ONE),), params={"place": [1]})
    content = {"root": InputContent(ONE), "s": InputContent(TWO, is_file=True, executable=True)}
    fixed = {
        "file": FixedOutput("file", "a.whl", sha256=Sha256("33" * 32)),
        "git": FixedOutput("git-tree", oid=GitOid("4" * 40)),
        "tree": FixedOutput("tree", tree=ONE),
        "oci": FixedOutput("oci-image", sha256=Sha256("55" * 32)),
    }
    tree = Tree.of(
        {
            b"\xff": File(ONE, 7),
            b"run": File(TWO, 2**40, executable=True),
            b"sub": Directory(ONE),
            b"link": Symlink(b"../x"),
        }
    )
    record = Record(ONE, TWO, {"out": ONE}, Isolation.FULL, 5, 6, "a.log", "demo.step", ("memory",))
    return {
        derivations.DERIVATION_DOMAIN: {"step": step.digest.hex, "join": builtin.digest.hex},
        derivations.FIXED_DOMAIN: {
            name: Derivation("x", "fetch", fixed=output).digest.hex
            for name, output in fixed.items()
        },
        derivations.ACTION_DOMAIN: {
            "step": step.action(content, "sandbox/1").hex,
            "join": builtin.action({"a": InputContent(ONE)}, "join/1").hex,
        },
        trees.DOMAIN: {"empty": trees.EMPTY.digest.hex, "four": tree.digest.hex},
        records.RECORD_DOMAIN: {"one": record.digest.hex},
    }


def test_formats_move_only_with_their_version() -> None:
    path = HERE / "drvs/formats.json"
    found = formats()
    if path.exists():
        for domain, digests in json.loads(path.read_text(encoding="utf-8")).items():
            # an update is refused too: another digest needs another domain
            assert found.get(domain, digests) == digests, f"{domain} changed without its version"
    check(path, found)


def evaluated() -> Evaluation:
    """The project under drvs/project with a made-up lock."""
    project = load_project(HERE / "drvs/project")
    return Evaluator(
        project.flake,
        project.components,
        made_up_lock(project.flake),
        "demo",
        contract_program="# a program\n",
        graph=Graph(),
    ).evaluate()


def test_derivations_of_every_kind() -> None:
    evaluation = evaluated()
    assert evaluation.image is not None
    graph = evaluation.graph
    order = graph.order([evaluation.image.located.drv])
    check(
        HERE / "drvs/project.json",
        {graph.nodes[d].name: {"digest": d.hex, **graph.nodes[d].document()} for d in order},
    )


def test_what_the_image_says_about_itself() -> None:
    evaluation = evaluated()
    assert evaluation.image is not None
    names = {node.name: node for node in evaluation.graph.nodes.values()}
    check(
        HERE / "release/demo.json",
        {
            "reference": evaluation.image.reference,
            "labels": dict(evaluation.image.labels),
            "statement": names["demo.statement"].params,
        },
    )


def test_evaluating_twice_gives_the_same() -> None:
    one, two = evaluated(), evaluated()
    assert one.image is not None
    assert two.image is not None
    assert one.image == two.image
    assert one.graph.nodes == two.graph.nodes


def test_no_path_clock_or_host_reaches_a_recipe() -> None:
    text = json.dumps([node.document() for node in evaluated().graph.nodes.values()])
    for word in (str(HERE), str(Path.home()), os.uname().nodename, str(os.getpid())):
        if len(word) > 4:
            assert word not in text
