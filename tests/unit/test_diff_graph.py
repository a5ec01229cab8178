"""Root causes told apart from what inherits them, over small graphs with known answers."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from reprobuild.core.derivation import Derivation, FixedOutput, Input, Isolation
from reprobuild.core.diff.causes import Cause, SourceDiff, causes_of
from reprobuild.core.diff.dag import GraphDiff, Kind, Node, compare, node_of, stem
from reprobuild.core.diff.facts import explainer, renamer
from reprobuild.core.diff.fields import MAX_LEVELS, changes
from reprobuild.core.diff.report import ISOLATION
from reprobuild.core.diff.side import ComponentSide, InputSide, Package, Side
from reprobuild.core.diff.sources import Base, HeadsDiff, compare_inputs
from reprobuild.core.digest import Sha256
from reprobuild.core.encoding import Value, decode
from reprobuild.core.graph import Graph


def file(graph: Graph, name: str, version: str, input_name: str = "tools") -> Input:
    digest = sha256(f"{name} {version}".encode()).hexdigest()
    fixed = FixedOutput("file", filename=f"{name}_{version}.deb", sha256=Sha256(digest))
    origin = {"input": input_name}
    drv = graph.add(Derivation(f"inputs.{input_name}:0", "fetch", fixed=fixed, origin=origin))
    return Input(name, drv)


def build(
    graph: Graph,
    name: str,
    *inputs: Input,
    argv: tuple[str, ...] = ("/bin/cc",),
    builder: str = "sandbox",
    params: Value = None,
) -> Input:
    placed = tuple(
        Input(i.name, i.drv, i.output, "", f"/in/{n}" if builder == "sandbox" else None)
        for n, i in enumerate(inputs)
    )
    own = argv if builder == "sandbox" else ()
    drv = graph.add(Derivation(name, builder, inputs=placed, argv=own, params=params))
    return Input(name.rpartition(".")[2].replace(":", "-"), drv)


def run(
    old: Graph,
    new: Graph,
    a: Input,
    b: Input,
    *,
    components: tuple[str, ...] = (),
    outputs: tuple[str, str] = ("", ""),
) -> GraphDiff:
    def look(graph: Graph):  # type: ignore[no-untyped-def]
        known = {d.hex: n for d, n in graph.nodes.items()}
        return lambda drv: node_of(known[drv]) if drv in known else None

    return compare(
        look(old),
        look(new),
        [(a.drv.hex, b.drv.hex)],
        rename=renamer(*outputs),
        explained=explainer(components),
    )


def module(
    graph: Graph, gcc: str = "12.2", flags: Mapping[str, str] | None = None, units: int = 9
) -> Input:
    """A toolchain of three packages, units compiled with it, one link."""
    tools = build(
        graph,
        "cc.root",
        file(graph, "gcc-12", gcc),
        file(graph, "binutils", "2.40"),
        file(graph, "libc6", "2.36-9"),
        builder="builtin:rootfs",
    )
    objects = [
        build(
            graph,
            f"mod.lib:unit{n}.cu",
            tools,
            argv=("/bin/cc", (flags or {}).get(str(n), (flags or {}).get("*", "-O2"))),
        )
        for n in range(units)
    ]
    numbered = [Input(f"unit-{n}", unit.drv) for n, unit in enumerate(objects)]
    return build(graph, "mod.lib", *numbered)


def causes(diff: GraphDiff, old: Side, new: Side, packages: bool = True) -> list[Cause]:
    rows = compare_inputs(old.inputs or {}, new.inputs or {}) if packages else {}
    sources = {
        n: SourceDiff(n, "kept", Base("", ""), HeadsDiff())
        for n in {*old.components, *new.components}
    }
    return causes_of(old, new, sources, rows, diff, {}, {})


def side(**inputs: InputSide) -> Side:
    return Side("s", "installable", components={"mod": ComponentSide("mod")}, inputs=inputs)


def tools_input(gcc: str) -> InputSide:
    packages = (Package("gcc-12", gcc, gcc), Package("binutils", "2.40", "b"))
    return InputSide("tools", "deb", packages=packages, toolchain=True)


def test_a_toolchain_patch_release_is_one_cause() -> None:
    old, new = Graph(), Graph()
    diff = run(old, new, module(old), module(new, "12.3"))
    assert [c.name for c in diff.of(Kind.ROOT)] == ["inputs.tools/gcc-12"]
    assert len(diff.of(Kind.INHERITS)) == 11  # the root file system, nine units, the link
    (cause,) = causes(diff, side(tools=tools_input("12.2")), side(tools=tools_input("12.3")))
    assert cause.kind == "toolchain"
    assert cause.title == "input tools: gcc-12 12.2 → 12.3"
    assert len(cause.reach) - len(cause.nodes) == 11


def test_a_flag_in_every_unit_is_one_cause() -> None:
    old, new = Graph(), Graph()
    diff = run(old, new, module(old), module(new, flags={"*": "-O3"}))
    assert len(diff.of(Kind.ROOT)) == 9
    (cause,) = causes(diff, side(), side())
    assert cause.kind == "recipe"
    assert cause.title == "mod (9 recipes): argv -O2 → -O3"
    assert len(cause.reach) == 10


def test_a_flag_in_one_unit() -> None:
    old, new = Graph(), Graph()
    diff = run(old, new, module(old), module(new, flags={"4": "-O3"}))
    assert [c.name for c in diff.of(Kind.ROOT)] == ["mod.lib:unit4.cu"]
    assert [c.name for c in diff.of(Kind.INHERITS)] == ["mod.lib"]
    (cause,) = causes(diff, side(), side())
    assert "argv -O2 → -O3" in cause.title
    assert [f.document() for f in cause.fields] == [
        {"field": "argv", "old": ["-O2"], "new": ["-O3"]}
    ]


def test_two_causes_that_meet_are_two() -> None:
    old, new = Graph(), Graph()
    diff = run(old, new, module(old), module(new, "12.3", flags={"4": "-O3"}))
    found = causes(diff, side(tools=tools_input("12.2")), side(tools=tools_input("12.3")))
    assert [c.kind for c in found] == ["toolchain", "recipe"]
    assert len(found[0].reach) == 12
    assert len(found[1].reach) == 2


def test_a_unit_more() -> None:
    old, new = Graph(), Graph()
    diff = run(old, new, module(old), module(new, units=10))
    assert [c.name for c in diff.of(Kind.ADDED)] == ["mod.lib:unit9.cu"]
    (cause,) = causes(diff, side(), side())
    assert cause.title == "mod.lib:unit9.cu: added"
    assert "mod.lib" in cause.reach


def test_a_package_in_the_middle_renumbers_nobody() -> None:
    def root(graph: Graph, *names: str) -> Input:
        debs = [file(graph, n, "1") for n in names]
        numbered = [Input(f"deb-{i}", d.drv) for i, d in enumerate(debs)]
        return build(graph, "base.root", *numbered, builder="builtin:rootfs")

    old, new = Graph(), Graph()
    diff = run(old, new, root(old, "a", "c", "d"), root(new, "a", "b", "c", "d"))
    assert [(c.name, c.kind) for c in diff.changes.values()] == [
        ("inputs.tools/b", Kind.ADDED),
        ("base.root", Kind.INHERITS),
    ]


def image(graph: Graph, output: str, version: str, labels: Mapping[str, str]) -> Input:
    part = build(graph, "mod.lib", argv=("/bin/cc", version))
    layer = build(
        graph, f"{output}.mod.layer", part, builder="builtin:layer", params={"name": "mod"}
    )
    own: dict[str, Value] = {
        **labels,
        "org.mod.drv": f"blake3:{part.drv.hex}",
        "org.release.revision": output,
    }
    params: dict[str, Value] = {
        "components": ["mod"],
        "config": {"labels": own, "env": {}},
        "reference": output,
    }
    return build(graph, f"{output}.image", layer, builder="builtin:image", params=params)


def test_labels_that_repeat_a_drv_are_no_cause() -> None:
    old, new = Graph(), Graph()
    diff = run(
        old,
        new,
        image(old, "r1", "1", {}),
        image(new, "r2", "2", {}),
        components=("mod",),
        outputs=("r1", "r2"),
    )
    assert [(c.name, c.kind) for c in diff.changes.values()] == [
        ("mod.lib", Kind.ROOT),
        ("r2.mod.layer", Kind.INHERITS),
        ("r2.image", Kind.INHERITS),
    ]


def test_a_label_of_ones_own_is_a_cause() -> None:
    old, new = Graph(), Graph()
    diff = run(
        old,
        new,
        image(old, "r1", "1", {}),
        image(new, "r1", "1", {"who": "me"}),
        components=("mod",),
    )
    assert [c.name for c in diff.of(Kind.ROOT)] == ["r1.image"]
    (cause,) = causes(diff, side(), side())
    assert (cause.kind, cause.title) == ("labels", "labels: params.config.labels.who +me")


def test_equal_graphs_are_not_opened() -> None:
    old = Graph()
    top = module(old)
    opened: list[str] = []

    def look(drv: str) -> Node | None:
        opened.append(drv)
        return None

    assert compare(look, look, [(top.drv.hex, top.drv.hex)]).changes == {}
    assert opened == []


def test_only_the_way_to_a_change_is_opened() -> None:
    old, new = Graph(), Graph()
    a, b = module(old, units=300), module(new, units=300, flags={"7": "-O3"})
    opened: set[str] = set()

    def look(graph: Graph):  # type: ignore[no-untyped-def]
        known = {d.hex: n for d, n in graph.nodes.items()}

        def get(drv: str) -> Node | None:
            opened.add(drv)
            return node_of(known[drv])

        return get

    compare(look(old), look(new), [(a.drv.hex, b.drv.hex)])
    assert len(opened) == 4


def test_what_is_not_at_hand_is_named() -> None:
    old, new = Graph(), Graph()
    a, b = module(old), module(new, "12.3")
    known = {d.hex: n for d, n in new.nodes.items()}
    diff = compare(lambda drv: None, lambda drv: node_of(known[drv]), [(a.drv.hex, b.drv.hex)])
    assert diff.unknown == [a.drv.hex]
    (cause,) = causes(diff, side(), side())
    assert cause.kind == "unknown"


def test_stems() -> None:
    assert stem("libc6_2.36-9+deb12u14_amd64.deb") == "libc6"
    assert stem("nvidia_cuda_nvcc-13.3.73-py3-none-manylinux.whl") == "nvidia_cuda_nvcc"
    assert stem("g++-12_12.2.0-14_amd64.deb") == stem("g++-12_12.3.0-1_amd64.deb")
    assert stem("libstdc++-12-dev_12.2.deb") != stem("libstdc++6_12.2.deb")


def test_fields_of_lists_and_rows() -> None:
    rows = list(changes({"a": ["x", "y", "z"], "b": 1}, {"a": ["x", "q", "z"], "c": True}))
    assert [r.document() for r in rows] == [
        {"field": "a", "old": ["y"], "new": ["q"]},
        {"field": "b", "old": 1},
        {"field": "c", "new": True},
    ]
    named = list(changes([{"name": "n", "v": 1}], [{"name": "m"}, {"name": "n", "v": 2}]))
    assert [r.name for r in named] == ["m", "n.v"]
    assert [r.has for r in changes({"k": None}, {})] == [(True, False)]
    assert next(iter(changes({"k": True}, {"k": 1}))).document() == {
        "field": "k",
        "old": True,
        "new": 1,
    }


def test_the_grades_of_isolation_are_those_of_derivations() -> None:
    assert tuple(grade.value for grade in Isolation) == ISOLATION


def test_a_document_as_deep_as_can_be_read_is_compared() -> None:
    old, new = ('{"a":' * 900 + f"{n}" + "}" * 900 for n in (1, 2))
    (change,) = changes(decode(old.encode()), decode(new.encode()))
    assert len(change.path) == MAX_LEVELS
