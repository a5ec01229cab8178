"""Realize over fakes: what is reused, what is built, what is kept and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from fakes.world import FakeExecutor, World, glue, graph_of, step, wish
from reprobuild.core.derivation import Derivation, Input, InputContent, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.core.tree import Tree
from reprobuild.engine.plan import Deed
from reprobuild.engine.scheduler import Limits
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildRequest


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def counts(done: object) -> tuple[int, int, int, int]:
    return done.built, done.fetched, done.cut_off, done.reused  # type: ignore[attr-defined]


def failing(reason: str = "exit") -> Callable[[BuildRequest, Path, BinaryIO], str | None]:
    def run(request: BuildRequest, out: Path, log: BinaryIO) -> str | None:
        log.write(b"it went wrong\n")
        return reason

    return run


def counting() -> Callable[[BuildRequest, Path, BinaryIO], str | None]:
    """A build that comes out differently each time."""
    times: list[int] = []

    def run(request: BuildRequest, out: Path, log: BinaryIO) -> str | None:
        times.append(1)
        (out / "file").write_text(str(len(times)))
        return None

    return run


def refused(call: Callable[[], object], code: str) -> ReprobuildError:
    with pytest.raises(ReprobuildError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


# -- reuse -------------------------------------------------------------------------------------


def test_builds_once_and_reuses_from_the_top(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    b = step("b", a)
    assert counts(world.realize(b, (source, a, b))) == (2, 1, 0, 0)
    done = world.realize(b, (source, a, b))
    assert counts(done) == (0, 0, 0, 1)
    assert set(done.chosen) == {b.digest}  # what lies below is not even looked at
    assert world.executor.ran == ["a", "b"]
    assert len(world.fetcher.asked) == 1


def test_content_that_is_gone_is_made_again(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    b = step("b", a)
    first = world.realize(b, (source, a, b))
    gone = first.chosen[b.digest].outputs["out"]
    del world.store.trees[gone]
    again = world.realize(b, (source, a, b))
    assert counts(again) == (1, 0, 0, 1)
    assert again.chosen[b.digest].outputs["out"] == gone


def test_a_source_that_the_store_has_is_not_fetched(world: World) -> None:
    source = world.source("src", "code\n")
    assert source.fixed is not None
    assert source.fixed.tree is not None
    world.store.add_trees({source.fixed.tree: world.fetcher.trees[source.fixed.tree]})
    world.realize(source, (source,))
    assert world.fetcher.asked == []


def test_derivations_are_kept_with_what_they_made(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    world.realize(a, (source, a))
    assert set(world.store.drvs) == {source.digest, a.digest}
    record = world.store.realized(a.digest)
    assert record is not None
    assert (world.home / "logs" / record.log).read_bytes() == b"compiled\n"
    assert record.isolation is Isolation.FULL
    assert world.store.barriers >= 1


# -- cut off -----------------------------------------------------------------------------------


def test_a_change_that_comes_out_the_same_stops_there(world: World) -> None:
    old, new = world.source("old", "code\n"), world.source("new", "# comment\ncode\n")
    assert old.digest != new.digest

    def chain(source: Derivation) -> tuple[Derivation, ...]:
        a = step("a", source)
        b = step("b", a)
        return source, a, b, glue("c", b)

    first = world.realize(chain(old)[-1], chain(old))
    world.executor.ran.clear()
    second = world.realize(chain(new)[-1], chain(new))
    assert world.executor.ran == ["a"]
    assert counts(second) == (1, 1, 2, 0)
    assert chain(new)[-1].digest != chain(old)[-1].digest
    assert (
        second.chosen[chain(new)[-1].digest].outputs == first.chosen[chain(old)[-1].digest].outputs
    )
    # and the cut-off is remembered: now the top is found at once
    assert counts(world.realize(chain(new)[-1], chain(new))) == (0, 0, 0, 1)


def test_two_names_of_one_recipe_are_built_once(world: World) -> None:
    source = world.source("src", "code\n")
    one, two = step("one", source, word="w"), step("two", source, word="w")
    both = glue("both", one, two)
    done = world.realize(both, (source, one, two, both))
    assert len(world.executor.ran) == 1
    assert counts(done) == (2, 1, 1, 0)


def test_another_interpreter_is_another_action(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    first = world.realize(a, (source, a))
    other = FakeExecutor(version="sandbox/2")
    done = world.realize(a, (source, a), other, from_source=True)
    assert other.ran == ["a"]
    assert done.chosen[a.digest].action != first.chosen[a.digest].action


# -- isolation ---------------------------------------------------------------------------------


def test_a_weaker_record_serves_no_stricter_wish(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    weak = FakeExecutor(isolation=Isolation.NONE)
    world.realize(a, (source, a), weak, isolation=Isolation.NONE)
    done = world.realize(a, (source, a))
    assert world.executor.ran == ["a"]
    assert done.chosen[a.digest].isolation is Isolation.FULL
    # the strict one serves the weak wish
    world.realize(a, (source, a), weak, isolation=Isolation.NONE)
    assert weak.ran == ["a"]


def test_a_weaker_record_does_not_contradict_a_strict_build(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    weak = FakeExecutor(isolation=Isolation.NONE, behaviour={"a": counting()})
    loose = world.realize(a, (source, a), weak, isolation=Isolation.NONE)
    strict = world.realize(a, (source, a))
    assert strict.chosen[a.digest].outputs != loose.chosen[a.digest].outputs
    assert counts(world.realize(a, (source, a))) == (0, 0, 0, 1)


# -- not reproducible --------------------------------------------------------------------------


def test_a_second_other_tree_is_kept_beside_the_first(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    world.executor.behaviour["a"] = counting()
    world.realize(a, (source, a))
    check = frozenset([a.digest])
    error = refused(lambda: world.realize(a, (source, a), check=check), "E-NOT-REPRODUCIBLE")
    assert error.exit_status == 6
    assert error.facts["first"] != error.facts["second"]
    (records,) = (r for r in world.store.recorded.values() if len(r) > 1)
    assert len({tuple(r.outputs.values()) for r in records.values()}) == 2


def test_a_contradicted_memo_is_not_followed(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    top = step("top", a)
    world.executor.behaviour["a"] = counting()
    world.realize(a, (source, a))
    with pytest.raises(ReprobuildError):
        world.realize(a, (source, a), check=frozenset([a.digest]))
    for target in (a, top):
        error = refused(
            lambda target=target: world.realize(target, (source, a, top)),  # type: ignore[misc]
            "E-NOT-REPRODUCIBLE",
        )
        assert len(error.facts["trees"]) == 2  # type: ignore[arg-type]


def test_a_lost_tree_settles_the_matter(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    world.executor.behaviour["a"] = counting()
    first = world.realize(a, (source, a))
    with pytest.raises(ReprobuildError):
        world.realize(a, (source, a), check=frozenset([a.digest]))
    kept = first.chosen[a.digest].outputs["out"]
    for record in next(r for r in world.store.recorded.values() if len(r) > 1).values():
        if record.outputs["out"] != kept:
            del world.store.trees[record.outputs["out"]]
    assert world.realize(a, (source, a)).chosen[a.digest].outputs["out"] == kept


def test_check_that_comes_out_equal(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    b = step("b", a)
    world.realize(b, (source, a, b))
    done = world.realize(b, (source, a, b), check=frozenset([a.digest, b.digest]))
    assert done.checked == 2
    assert world.executor.ran == ["a", "b", "a", "b"]
    assert all(len(r) == 1 for r in world.store.recorded.values())


def test_from_source_forgets_builds_but_not_sources(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    b = step("b", a)
    world.realize(b, (source, a, b))
    done = world.realize(b, (source, a, b), from_source=True)
    assert world.executor.ran == ["a", "b", "a", "b"]
    assert done.fetched == 0
    assert len(world.fetcher.asked) == 1


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("exit", "E-BUILD-FAILED"),
        ("signal", "E-BUILD-FAILED"),
        ("timeout", "E-BUILD-TIMEOUT"),
        ("silence", "E-BUILD-TIMEOUT"),
        ("output-size", "E-BUILD-OUTPUT"),
        ("memory", "E-BUILD-MEMORY"),
        ("interrupted", "E-INTERRUPTED"),
    ],
)
def test_each_reason_has_its_code(world: World, reason: str, code: str) -> None:
    a = step("a", world.source("src", "code\n"))
    source = world.source("src", "code\n")
    world.executor.behaviour["a"] = failing(reason)
    error = refused(lambda: world.realize(a, (source, a)), code)
    assert error.facts["tail"] == ["it went wrong"]
    assert Path(str(error.facts["log"])).read_bytes() == b"it went wrong\n"
    assert list((world.home / "work").iterdir()) == []


def test_what_succeeded_before_stays_on_record(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    b = step("b", a)
    world.executor.behaviour["b"] = failing()
    refused(lambda: world.realize(b, (source, a, b)), "E-BUILD-FAILED")
    del world.executor.behaviour["b"]
    done = world.realize(b, (source, a, b))
    assert counts(done) == (1, 0, 0, 1)
    assert world.executor.ran == ["a", "b", "b"]


def test_a_failure_leaves_no_record(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    world.executor.behaviour["a"] = failing()
    refused(lambda: world.realize(a, (source, a)), "E-BUILD-FAILED")
    assert world.store.realized(a.digest) is None
    assert len(world.store.recorded) == 1  # the source's


def test_keep_going_goes_on_beside_a_failure(world: World) -> None:
    source = world.source("src", "code\n")
    bad = [step(f"bad{n}", source) for n in range(2)]
    good = step("good", source)
    above = step("above", bad[0])
    top = glue("top", *bad, good, above)
    for node in bad:
        world.executor.behaviour[node.name] = failing()
    everything = (source, *bad, good, above, top)
    error = refused(lambda: world.realize(top, everything, keep_going=True), "E-DEPENDENCY")
    failed = error.facts["failed"]
    assert isinstance(failed, list)
    assert sorted(str(line)[:4] for line in failed) == ["bad0", "bad1"]
    assert error.facts["not_tried"] == 2
    assert world.store.realized(good.digest) is not None
    assert "above" not in world.executor.ran


def test_an_output_left_empty(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    world.executor.behaviour["a"] = lambda request, out, log: None
    error = refused(lambda: world.realize(a, (source, a)), "E-BUILD-NO-OUTPUT")
    assert "a ended well" in error.message


def test_an_input_path_that_is_not_there(world: World) -> None:
    source = world.source("src", "code\n")
    a = Derivation(
        "a", "sandbox", (Input("s", source.digest, path="no/such", at="/s"),), argv=("x",)
    )
    error = refused(lambda: world.realize(a, (source, a)), "E-INPUT-PATH")
    assert error.facts["names"] == ["file"]
    assert world.executor.ran == []


def test_an_unknown_built_in(world: World) -> None:
    a = Derivation("a", "builtin:nothing")
    refused(lambda: world.realize(a, (a,)), "E-DERIVATION")


def test_cancelled_before_it_begins(world: World) -> None:
    source = world.source("src", "code\n")
    world.cancel.set()
    refused(lambda: world.realize(source, (source,)), "E-INTERRUPTED")
    assert world.fetcher.asked == []


# -- at once -----------------------------------------------------------------------------------


def test_two_at_once_build_each_thing_once(world: World) -> None:
    source = world.source("src", "code\n")
    leaves = [step(f"leaf{n}", source) for n in range(4)]
    top = glue("top", *leaves)
    everything = (source, *leaves, top)
    world.executor.seconds = 0.02
    results: list[object] = []
    start = threading.Barrier(2)

    def run() -> None:
        start.wait()
        results.append(world.realize(top, everything))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(world.executor.ran) == sorted(leaf.name for leaf in leaves)
    assert len(results) == 2
    assert sum(r.built for r in results) == 5  # type: ignore[attr-defined]
    one, two = (r.chosen for r in results)  # type: ignore[attr-defined]
    assert one[top.digest].outputs == two[top.digest].outputs


def test_events_tell_the_story(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    world.realize(a, (source, a))
    assert world.events.named("plan") == [{"build": 1, "fetch": 1, "reuse": 0}]
    assert [e["name"] for e in world.events.named("started")] == ["src", "a"]
    assert [e["how"] for e in world.events.named("finished")] == ["fetched", "built"]
    world.executor.behaviour["b"] = failing()
    b = step("b", source)
    refused(lambda: world.realize(b, (source, b)), "E-BUILD-FAILED")
    (failed,) = world.events.named("failed")
    assert failed["name"] == "b"


# -- the plan ----------------------------------------------------------------------------------


def test_plan_says_what_and_why(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    b = step("b", a)
    graph = graph_of((source, a, b))
    plan = world.realizer().plan(graph, [b.digest], wish())
    assert [(s.deed, graph.nodes[s.drv].name) for s in plan.steps] == [
        (Deed.FETCH, "src"),
        (Deed.BUILD, "a"),
        (Deed.BUILD, "b"),
    ]
    assert [s.reason for s in plan.steps] == [
        "its directory is not in the store",
        "waits for src",
        "waits for a",
    ]
    world.realize(a, (source, a))
    plan = world.realizer().plan(graph, [b.digest], wish())
    assert [(s.deed, s.reason) for s in plan.steps] == [
        (Deed.REUSE, "on record"),
        (Deed.BUILD, "this recipe with these inputs is not on record"),
    ]


def test_planning_changes_nothing(world: World) -> None:
    source = world.source("src", "code\n")
    a = step("a", source)
    before = dict(world.store.trees)
    world.realizer().plan(graph_of((source, a)), [a.digest], wish())
    assert world.store.trees == before
    assert not world.store.recorded
    assert not world.store.drvs
    assert not world.store.chosen


def test_a_foreign_record_of_another_action_is_nothing_to_go_by(world: World) -> None:
    # a memo may be wrong about what is reused only if its record says so itself
    source = world.source("src", "code\n")
    a = step("a", source)
    other = Tree.of({})
    world.store.add_trees({other.digest: other})
    record = Record(Digest.of(b"other"), a.digest, {"out": Digest.of(b"absent")})
    world.store.choose(a.digest, record)
    assert counts(world.realize(a, (source, a))) == (1, 1, 0, 0)
    weak = replace(record, outputs={"out": other.digest}, isolation=Isolation.NONE)
    world.store.choose(a.digest, weak)
    assert counts(world.realize(a, (source, a)))[:2] == (0, 0)


def test_a_built_in_that_fails_on_damaged_input_is_not_to_blame(world: World) -> None:
    source = world.source("source", "text")
    glued = glue("glued", source)
    read: list[Digest] = []

    class Refusing:
        name, version = "glue", 1

        def build(self, params: object, inputs: object, content: object) -> Mapping[str, Digest]:
            raise ReprobuildError("E-ARCHIVE", "makes no sense")

    class Rotten:
        def __getattr__(self, name: str) -> object:
            return getattr(world.store, name)

        def open_blob(self, digest: Digest) -> BinaryIO:
            read.append(digest)
            raise ReprobuildError("E-STORE-DAMAGED", "rotten")

    sound = world.realizer().builder
    builder = replace(sound, builtins={"glue": Refusing()})
    tree = sound.build(source, Digest.of(b"1"), {}).outputs["out"]
    inputs = {glued.inputs[0].name: InputContent(tree)}
    refused(lambda: builder.build(glued, Digest.of(b"2"), inputs), "E-ARCHIVE")
    rotten = replace(builder, content=Rotten())  # type: ignore[arg-type]
    refused(lambda: rotten.build(glued, Digest.of(b"2"), inputs), "E-STORE-DAMAGED")
    assert len(read) == 1


def test_the_next_build_begins_while_outputs_are_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = world.source("src", "code\n")
    a, b = step("a", source), step("b", source)
    top = glue("top", a, b)
    began = {name: threading.Event() for name in "ab"}

    def run(request: BuildRequest, out: Path, log: BinaryIO) -> str | None:
        began[request.label].set()
        (out / "file").write_text(request.label)
        return None

    capture = world.store.capture

    def waiting(directory: Path, *, limit: int = 2**62) -> Digest:
        assert all(event.wait(20) for event in began.values())
        return capture(directory, limit=limit)

    monkeypatch.setattr(world.store, "capture", waiting)
    executor = FakeExecutor(behaviour={"a": run, "b": run})
    world.realize(top, (source, a, b, top), executor, limits=Limits(1, 1, 2**40))
    assert executor.most == 1
