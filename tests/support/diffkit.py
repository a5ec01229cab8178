"""A comparison that has something at every level, for tests of how it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reprobuild.core.derivation import Derivation, FixedOutput, Input
from reprobuild.core.diff.causes import SourceDiff, causes_of
from reprobuild.core.diff.comparison import (
    Comparison,
    ContentDiff,
    FileChange,
    FilesDiff,
    OutputChange,
)
from reprobuild.core.diff.dag import Look, compare, node_of
from reprobuild.core.diff.facts import explainer, release_changes, renamer
from reprobuild.core.diff.graphview import grouped
from reprobuild.core.diff.hunks import Hunk
from reprobuild.core.diff.kernels import Kernel, Module, compare_modules
from reprobuild.core.diff.layers import compare_layers
from reprobuild.core.diff.report import document
from reprobuild.core.diff.side import ComponentSide, Head, InputSide, LayerSide, Package, Side
from reprobuild.core.diff.sources import Base, compare_heads, compare_inputs
from reprobuild.core.digest import GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.graph import Graph


def graph_of(output: str, tree: str, flag: str, label: str) -> tuple[Graph, str]:
    """A source, a build with a flag, a layer and an image with a label; the image's drv."""
    graph = Graph()
    fixed = FixedOutput("git-tree", oid=GitOid(tree * 40))
    source = graph.add(Derivation("sources.engine", "fetch", fixed=fixed, origin={"input": "git"}))
    steady = graph.add(Derivation("base.root", "builtin:rootfs", params={"files": {}, "links": {}}))
    built = graph.add(
        Derivation(
            "engine.lib", "sandbox", argv=("/bin/cc", flag),
            inputs=(Input("root", steady, at="/"), Input("source", source, at="/in")),
        )
    )  # fmt: skip
    layer = graph.add(
        Derivation(f"{output}.engine.layer", "builtin:layer", (Input("tree", built),),
                   params={"name": "engine"})
    )  # fmt: skip
    config: dict[str, Value] = {"labels": {"who": label}, "env": {}}
    params: dict[str, Value] = {"components": ["engine"], "config": config, "reference": output}
    image = graph.add(
        Derivation(f"{output}.image", "builtin:image", (Input("layer-0", layer),), params=params)
    )
    return graph, image.hex


def look(graph: Graph) -> Look:
    """Derivations of a graph by digest."""
    known = {digest.hex: node for digest, node in graph.nodes.items()}
    return lambda drv: node_of(known[drv]) if drv in known else None


def kernels(count: int = 50) -> Module:
    """A module of so many kernels."""
    rows = {f"_Z{n}": Kernel(f"code{n}", 32, 0, 1024, 4096) for n in range(count)}
    return Module(("sm_120a",), (), rows, {key: f"kernel<{key[2:]}>(int)" for key in rows})


def comparison(title: str = "Use the other cache") -> Comparison:
    """Everything happened at once."""
    heads = (Head(1, "1" * 40, "merged", "First"), Head(2, "2" * 40, "merged", "Second"))
    moved = (Head(2, "e" * 40, "merged", "Second"), Head(3, "3" * 40, "merged", title))
    component = ComponentSide(
        "engine", "1.0", "https://example.org/engine", "refs/heads/main", "a" * 40, "merge", heads,
        "b" * 40, drv="4" * 64, output="5" * 64, inputs=("debian",),
    )  # fmt: skip
    steady = ComponentSide("steady", "1.0", drv="9" * 64, output="9" * 64)
    packages = (Package("gcc-12", "12.2", "x"), Package("libc6", "2.36", "y"))
    old = Side(
        "r1", "installable",
        {"revision": "r1", "reference": "example.org/engine:r1", "isolation": "full"},
        {"engine": component, "steady": steady},
        {"debian": InputSide("debian", "deb", packages=packages, toolchain=True)},
        output_name="r1",
    )  # fmt: skip
    other = replace(
        component, version="1.1", base="c" * 40, heads=moved, tree="d" * 40, drv="6" * 64,
        output="7" * 64,
    )  # fmt: skip
    newer = (Package("gcc-12", "12.3", "z"), packages[1])
    new = Side(
        "r2", "installable",
        {"revision": "r2", "reference": "example.org/engine:r2", "isolation": "none"},
        {"engine": other, "steady": steady},
        {"debian": InputSide("debian", "deb", packages=newer, toolchain=True)},
        output_name="r2",
    )  # fmt: skip
    found = Comparison(old, new, notes=["a note"])
    base = Base("a" * 40, "c" * 40, "refs/heads/main", 12, False, ("cccccccccc Go on",))
    source = SourceDiff(
        "engine", "changed", base, compare_heads(heads, moved, [1]), ("b" * 40, "d" * 40),
        ("1.0", "1.1"), ("merge", "merge"),
    )  # fmt: skip
    kept = SourceDiff("steady", "kept", Base("", ""), compare_heads((), ()))
    found.sources = {"engine": source, "steady": kept}
    found.packages = compare_inputs(old.inputs or {}, new.inputs or {})
    found.release = release_changes(old, new)
    found.labels = {"org.engine.commit": ("a" * 40, "c" * 40), "who": ("me", "you")}
    found.environment = {"PATH": ("/bin", "/usr/bin:/bin")}
    found.serving = {"entrypoint": (["/a"], ["/b"])}
    (one, first), (two, second) = (
        graph_of("r1", "b", "-O2", "me"), graph_of("r2", "d", "-O3", "you"),
    )  # fmt: skip
    rename = renamer("r1", "r2")
    found.graph = compare(
        look(one), look(two), [(first, second)], rename=rename, explained=explainer(["engine"])
    )
    found.equal_derivations = 1
    found.nodes = grouped(look(two), [second], found.graph, rename)
    found.causes = causes_of(
        old, new, found.sources, found.packages, found.graph, found.release,
        {"environment": found.environment, "serving": found.serving, "labels": {}},
    )  # fmt: skip
    _outcomes(found)
    return found


def _outcomes(found: Comparison) -> None:
    found.outputs = {
        key: OutputChange(key, "1" * 64, "1" * 64 if key == "engine.lib" else "2" * 64)
        for key in (found.graph.changes if found.graph else ())
    }
    found.component_outputs = {
        "engine": OutputChange("engine", "5" * 64, "7" * 64),
        "steady": OutputChange("steady", "9" * 64, "8" * 64, True, ("8" * 64, "9" * 64)),
    }
    hunk = Hunk(1, 2, 1, 3, (" same", "-was", "+is", "+more"), (3,))
    rows = (
        FileChange("cache.py", "changed", (3,), (hunk,)),
        FileChange("logo.png", "added", (3,), None),
        FileChange("old.py", "removed", (), (Hunk(1, 1, 0, 0, ("-gone",)),)),
    )
    found.files = {"engine": FilesDiff(rows, attributed=True), "steady": FilesDiff()}
    found.content = {"engine": ContentDiff((("opt/lib.so", "changed", 4096),))}
    module = kernels()
    changed = replace(module.kernels["_Z7"], code="other", registers=48, spills=2)
    after = {k: v for k, v in {**module.kernels, "_Z7": changed}.items() if k != "_Z9"}
    other = replace(module, kernels={**after, "_Zfresh": Kernel("f", 16)})
    found.kernels = {"engine": compare_modules({"opt/lib.so": module}, {"opt/lib.so": other})}
    found.layers = compare_layers(
        [LayerSide("base", "sha256:1", "sha256:b1", 10_000_000, 30_000_000),
         LayerSide("engine", "sha256:2", "sha256:b2", 5_000_000, 9_000_000)],
        [LayerSide("base", "sha256:1", "sha256:b1", 10_000_000, 30_000_000),
         LayerSide("engine", "sha256:3", "sha256:b3", 5_200_000, 9_100_000)],
    )  # fmt: skip
    found.downgrades = ["debian: libc6 2.36 → 2.35"]


def full_report(title: str = "Use the other cache", *, everything: bool = False) -> dict[str, Any]:
    """The document of that comparison."""
    return dict(document(comparison(title), everything=everything))
