"""What a head's files really touch, over a small project with known answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation, FixedOutput, Input
from reprobuild.core.diff.blast import pull_requests
from reprobuild.core.diff.causes import Cause, SourceDiff
from reprobuild.core.diff.comparison import Comparison, FileChange, FilesDiff, OutputChange, Touch
from reprobuild.core.diff.dag import compare
from reprobuild.core.diff.kernels import Kernel, ModuleDiff
from reprobuild.core.diff.side import Head, Side
from reprobuild.core.diff.sources import Base, HeadsDiff
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.graph import Graph
from reprobuild.core.record import Record
from reprobuild.engine import diff_reach
from reprobuild.engine.diff_loaded import Loaded
from reprobuild.engine.diff_reach import Reach
from reprobuild.engine.narrow import ReadSets

OLD = {
    "csrc/a.cu": '#include "a.cuh"\n',
    "csrc/b.cu": '#include "b.cuh"\n',
    "csrc/a.cuh": "#define A 1\n",
    "csrc/b.cuh": "#define B 1\n",
    "docs/index.md": "Words.\n",
    "tool.py": "print(1)\n",
}


@dataclass
class Release:
    """One side: its store, its graph, and the derivations by name."""

    loaded: Loaded
    drvs: dict[str, Digest]


def release(home: Path, files: Mapping[str, str], oid: str, objects: Mapping[str, str]) -> Release:
    """Sources, two compiles, a link, a step over docs, one over everything, and an image.

    `objects` is what each step came out as.
    """
    store = LocalStore.open(home / "store", create=True)
    graph = Graph()
    drvs: dict[str, Digest] = {}

    def capture(name: str, content: Mapping[str, str]) -> Digest:
        place = home / f"{oid}-{name}"
        for path, text in content.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text)
        return store.capture(place)

    def add(name: str, derivation: Derivation, tree: Digest) -> Digest:
        drvs[name] = drv = graph.add(derivation)
        record = Record(Digest.of(f"{name} {tree}".encode()), drv, {"out": tree}, name=name)
        store.barrier()
        store.add_record(record)
        store.choose(drv, record)
        return drv

    fixed = FixedOutput("git-tree", oid=GitOid(oid * 40))
    source = add("source", Derivation("sources.k", "fetch", fixed=fixed), capture("source", files))
    for unit in ("a", "b"):
        narrow: Value = {
            "defines": [], "directories": [], "inputs": ["source"],
            "starts": [f"/in/{unit}.cu"],
        }  # fmt: skip
        compiled = Derivation(
            f"k.module:{unit}.cu", "sandbox", argv=("/cc", unit), narrow=narrow,
            inputs=(Input("source", source, path="csrc", at="/in"),),
        )  # fmt: skip
        add(unit, compiled, capture(unit, {"unit.o": objects[unit]}))
    linked = Derivation(
        "k.module", "sandbox", argv=("/ld",),
        inputs=(Input("unit-0", drvs["a"], at="/a"), Input("unit-1", drvs["b"], at="/b")),
    )  # fmt: skip
    add("link", linked, capture("link", {"k.so": objects["a"] + objects["b"]}))
    for name, path in (("docs", "docs"), ("whole", "")):
        step = Derivation(
            f"k.{name}", "sandbox", argv=("/cp",),
            inputs=(Input("source", source, path=path, at="/in"),),
        )  # fmt: skip
        add(name, step, capture(name, {"x": objects[name]}))
    for name, below in (("layer", "link"), ("page", "docs"), ("rest", "whole")):
        layer = Derivation(f"out.{name}.layer", "builtin:layer", (Input("tree", drvs[below]),),
                           params={"name": name})  # fmt: skip
        add(name, layer, capture(name, {"layer": objects.get(below, objects["a"] + objects["b"])}))
    inputs = tuple(Input(f"layer-{n}", drvs[n]) for n in ("layer", "page", "rest"))
    image = Derivation("out.image", "builtin:image", inputs, params={})
    add("image", image, capture("image", {"oid": oid}))
    side = Side(oid, "installable", roots={"image": drvs["image"].hex}, output_name="out")
    return Release(Loaded(side, graph, store), drvs)


Reads = dict[int, list[str]]


def touches(
    tmp_path: Path, changed: Reads, objects: Mapping[str, str], *, readable: bool = True
) -> dict[int, Touch]:
    """By head, what its files (by head, in `changed`) touch."""
    before = dict.fromkeys(("a", "b", "docs", "whole"), "1")
    new = {**OLD, **{path: OLD.get(path, "") + "x\n" for ps in changed.values() for path in ps}}
    one = release(tmp_path, OLD, "1", before)
    two = release(tmp_path, new, "2", {**before, **objects})
    pair = (one.drvs["image"].hex, two.drvs["image"].hex)
    graph = compare(one.loaded.look, two.loaded.look, [pair])
    outputs = {
        key: OutputChange(c.name, one.loaded.output(c.old), two.loaded.output(c.new))
        for key, c in graph.changes.items()
    }
    files = FilesDiff(
        tuple(FileChange(p, "changed", (n,)) for n, ps in changed.items() for p in ps),
        attributed=True,
    )
    source = next(key for key, c in graph.changes.items() if any(c.fixed))
    cause = Cause("source:k", "source", "", "k", nodes=[source])

    def reads_of(side: Loaded) -> ReadSets | None:
        return ReadSets(side.store) if readable and side.store is not None else None

    reach = Reach((one.loaded, two.loaded), graph, outputs, reads_of)
    return reach.touches(cause, files, sorted({*changed, 99}))


def test_each_head_reaches_the_units_that_read_its_files(tmp_path: Path) -> None:
    found = touches(
        tmp_path,
        {1: ["csrc/a.cuh"], 2: ["csrc/b.cuh"], 3: ["docs/index.md"], 4: ["tool.py"]},
        {"a": "2", "b": "1", "docs": "2", "whole": "1"},
    )
    # the compile of b came out the same: it stops there
    always = {"sources.k", "out.image"}
    assert set(found[1].keys) == always | {
        "k.module:a.cu", "k.module", "out.layer.layer", "k.whole",
    }  # fmt: skip
    assert found[1].units == ("k.module:a.cu",)
    assert set(found[2].keys) == always | {"k.module:b.cu", "k.whole"}
    assert set(found[3].keys) == always | {"k.docs", "out.page.layer", "k.whole"}
    assert set(found[4].keys) == always | {"k.whole"}
    assert {touch.narrowed for touch in found.values()} == {2}
    assert found[99] == Touch(("out.image",), (), 2)  # in the list of heads, and in no file


def test_a_file_that_came_is_read_where_it_would_be_found(tmp_path: Path) -> None:
    """It shadows a header that an `#include` finds elsewhere now."""
    found = touches(tmp_path, {1: ["csrc/inner/a.cuh"]}, {})
    assert found[1].units == ("k.module:a.cu",)


def test_too_many_compiles_are_touched_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff_reach, "MAX_READ", 0)
    found = touches(tmp_path, {1: ["csrc/a.cuh"]}, {})
    assert found[1].units == ("k.module:a.cu", "k.module:b.cu")


def test_compiles_whose_trees_are_not_at_hand_are_not_spoken_of(tmp_path: Path) -> None:
    found = touches(tmp_path, {1: ["csrc/a.cuh"]}, {}, readable=False)
    assert {"k.module:a.cu", "k.module:b.cu"} <= set(found[1].keys)
    assert (found[1].units, found[1].narrowed, found[1].told) == ((), 0, False)


def test_heads_that_were_not_told_apart_have_no_reach_of_their_own(tmp_path: Path) -> None:
    one = release(tmp_path, OLD, "1", dict.fromkeys(("a", "b", "docs", "whole"), "1"))
    graph = compare(one.loaded.look, one.loaded.look, [("", one.drvs["image"].hex)])
    reach = Reach((one.loaded, one.loaded), graph, {}, lambda side: None)
    cause = Cause("source:k", "source", "", "k", nodes=list(graph.changes))
    assert reach.touches(cause, FilesDiff((FileChange("a", "changed"),)), [1]) == {}


def test_kernels_of_a_head_are_those_of_its_units() -> None:
    old, new = Side("1", "x", output_name="o"), Side("2", "x", output_name="o")
    heads = HeadsDiff(added=(Head(1, "1" * 40), Head(2, "2" * 40)))
    found = Comparison(old, new)
    found.sources = {"k": SourceDiff("k", "kept", Base("", ""), heads, ("1" * 40, "2" * 40))}
    found.files = {"k": FilesDiff((FileChange("a.cu", "changed", (1,)),), attributed=True)}
    changed = {"_Z1": (Kernel("x"), Kernel("y"))}
    found.kernels = {"k": [ModuleDiff("k.so", changed={**changed, "_Z2": changed["_Z1"]})]}
    found.unit_kernels = {"u1": [ModuleDiff("unit.o", changed=changed, names={"_Z1": "one()"})]}
    found.touches = {("k", 1): Touch((), ("u1",), 2), ("k", 2): Touch((), (), 2)}
    rows = {row["number"]: row for row in pull_requests(found)}
    assert rows[1]["kernels"] == 1
    assert rows[1]["kernel_names"] == ["one()"]
    assert rows[1]["shared_with"] == []
    assert rows[2]["kernels"] == 0
    assert rows[2]["files"] == []
