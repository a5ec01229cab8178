"""Trees that are shown before they were looked at: nothing that came of a wrong one is believed."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from fakes.world import FakeExecutor, compile_, glue, step
from reprobuild.adapters.store.dirstack import remove_tree
from reprobuild.adapters.store.made import MadeCheck
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation, InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.tree import File
from reprobuild.engine.realize import Realized
from reprobuild.ports import BuildOutcome, BuildRequest, Wish
from support.events import Recorder
from support.localworld import realize, text_source
from support.stores import blob_path, flip, refused, tree_of

SECONDS = 20.0
"""How long something that must come is waited for."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def tree(place: Path) -> Digest:
    """A tree that an earlier process laid out, one file of it linked and one copied."""
    with LocalStore.open(place, create=True) as store:
        tree = tree_of(store, "one", below=tree_of(store, "one", "two"))
        store.barrier()
        store.materialise(tree)
        return tree


class Gate(threading.Event):
    """What looks wait for, and how many do."""

    waited = 0


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Looks wait for this."""
    event = Gate()
    look: Callable[..., bool] = MadeCheck.sound

    def wait(*args: object) -> bool:
        event.waited += 1
        assert event.wait(SECONDS)
        return look(*args)

    monkeypatch.setattr(MadeCheck, "sound", wait)
    yield event
    event.set()


def copied(made: Path) -> Path:
    """A file of a directory that is no blob's inode."""
    return next(p for p in made.rglob("*") if p.is_file() and p.stat().st_nlink == 1)


def spoil(made: Path) -> None:
    flip(copied(made))


def test_a_tree_is_shown_before_it_was_looked_at(place: Path, tree: Digest, held: Gate) -> None:
    with LocalStore.open(place) as store:
        loan = store.lend(tree)
        assert (loan.path / "one").read_bytes() == b"one"
        assert loan.known() is None
        answers: list[bool] = []
        asking = threading.Thread(target=lambda: answers.append(loan.sound()))
        asking.start()
        assert store.lend(tree) is loan
        assert answers == []
        held.set()
        asking.join(SECONDS)
        assert answers == [True]
        assert store.lend(tree).sound()
        assert store.materialise(tree) == loan.path


def test_what_was_spoilt_before_is_found(place: Path, tree: Digest) -> None:
    with LocalStore.open(place) as store:
        spoil(store.path / "materialised" / tree.hex)
        loan = store.lend(tree)
        assert not loan.sound()
        assert loan.known() is False
        again = store.lend(tree)
        assert again.sound() and again.known()
        assert copied(again.path).read_bytes() in (b"one", b"two")
        assert store.verify().problems == []


def test_what_is_spoilt_while_it_is_lent_is_found(place: Path, tree: Digest, held: Gate) -> None:
    with LocalStore.open(place) as store:
        loan = store.lend(tree)
        spoil(loan.path)
        held.set()
        assert not loan.sound()


def test_what_somebody_else_made_again_is_not_what_was_lent(
    place: Path, tree: Digest, held: Gate
) -> None:
    """Also where the new one has the old one's inode number."""
    with LocalStore.open(place) as store:
        loan = store.lend(tree)
        aside = loan.path.with_name("aside")
        shutil.copytree(loan.path, aside, symlinks=True)
        for path in (loan.path, *loan.path.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        shutil.rmtree(loan.path)
        aside.rename(loan.path)
        held.set()
        assert not loan.sound()
        assert store.lend(tree).sound()


@pytest.mark.parametrize("what", ["link", "file", "mode", "absent"])
def test_the_top_is_known_before_it_is_shown(
    place: Path, tree: Digest, tmp_path: Path, held: Gate, what: str
) -> None:
    held.set()
    made = place / "materialised" / tree.hex
    elsewhere = tmp_path / "elsewhere"
    made.chmod(0o755)
    if what != "mode":
        made.rename(elsewhere)
    if what == "link":
        elsewhere.chmod(0o555)
        made.symlink_to(elsewhere)
    elif what == "file":
        made.write_bytes(b"")
    with LocalStore.open(place) as store:
        loan = store.lend(tree)
        assert loan.path.is_dir() and not loan.path.is_symlink()
        assert (loan.path / "one").read_bytes() == b"one"
        assert loan.sound()


def test_a_closed_store_looks_no_more(place: Path, tree: Digest) -> None:
    before = len(os.listdir("/proc/self/fd"))
    store = LocalStore.open(place)
    loan = store.lend(tree)
    store.close()
    assert not loan.sound()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_store_is_not_closed_while_it_looks(place: Path, tree: Digest, held: Gate) -> None:
    store = LocalStore.open(place)
    loan = store.lend(tree)
    spoil(loan.path)
    looking = threading.Thread(target=loan.sound)
    looking.start()
    while held.waited == 0:
        time.sleep(0.01)
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    held.set()
    closing.join(SECONDS)
    assert not closing.is_alive()
    assert [name for name in os.listdir(place / "materialised") if name.startswith(".")] == []


# -- builds --------------------------------------------------------------------------------------

GOOD = b"text\nover\n"

Behaviour = Callable[[BuildRequest, Path, BinaryIO], str | None]


class _Spoilt:
    """A store whose input was laid out by an earlier process, and a build over it."""

    def __init__(self, home: Path) -> None:
        self.place = home / "store"
        self.notes = home / "notes"
        self.source = text_source("source", "text\n")
        with LocalStore.open(self.place, create=True) as store:
            done = realize(store, [self.source], self.notes)
            self.tree = done.chosen[self.source.digest].outputs["out"]
            self.made = store.materialise(self.tree)
        self.events = Recorder()

    def damage(self) -> None:
        """The directory's file gets another content; the blob, which is another inode, does not."""
        directory, file = self.made, self.made / "file"
        directory.chmod(0o755)
        file.unlink()
        file.write_bytes(b"worse\n")
        file.chmod(0o444)
        os.utime(file, (1, 1))
        directory.chmod(0o555)
        os.utime(directory, (1, 1))

    def build(self, behaviour: Behaviour | None = None) -> tuple[FakeExecutor, bytes]:
        over = self.over()
        executor = FakeExecutor(behaviour={"over": behaviour} if behaviour else {})
        with LocalStore.open(self.place) as store:
            done = realize(
                store, [self.source, over], self.notes, executor=executor, reporter=self.events
            )
            assert store.verify().problems == []
            path = store.materialise(done.chosen[over.digest].outputs["out"])
            return executor, (path / "file").read_bytes()

    def over(self) -> Derivation:
        return step("over", self.source)

    def retried(self) -> int:
        return len(self.events.named("retried"))


@pytest.fixture
def spoilt(tmp_path: Path) -> _Spoilt:
    return _Spoilt(tmp_path)


def test_a_sound_input_is_built_from_once(spoilt: _Spoilt) -> None:
    executor, output = spoilt.build()
    assert (executor.ran, output, spoilt.retried()) == (["over"], GOOD, 0)


def test_nothing_made_of_a_spoilt_input_is_recorded(spoilt: _Spoilt) -> None:
    spoilt.damage()
    executor, output = spoilt.build()
    assert (executor.ran, output, spoilt.retried()) == (["over", "over"], GOOD, 1)


@pytest.mark.parametrize("when", ["before", "while it runs"])
def test_the_input_is_looked_at_during_the_build(spoilt: _Spoilt, held: Gate, when: str) -> None:
    """The look waits for the build, so a build that waited for the look would never begin."""
    if when == "before":
        spoilt.damage()

    def end(request: BuildRequest, out: Path, log: BinaryIO) -> str | None:
        if when != "before" and not held.is_set():
            spoilt.damage()
        reason = compile_(request, out, log)
        held.set()
        return reason

    executor, output = spoilt.build(end)
    assert (executor.ran, output) == (["over", "over"], GOOD)


@pytest.mark.parametrize("reason", ["exit", "timeout", "memory", "empty", "special"])
def test_no_failure_over_a_spoilt_input_is_believed(spoilt: _Spoilt, reason: str) -> None:
    spoilt.damage()

    def fail(request: BuildRequest, out: Path, log: BinaryIO) -> str | None:
        compile_(request, out, log)
        if b"worse" not in (out / "file").read_bytes():
            return None
        if reason == "empty":
            (out / "file").unlink()
        elif reason == "special":
            os.mkfifo(out / "fifo")
        else:
            return reason
        return None

    executor, output = spoilt.build(fail)
    assert (executor.ran, output, spoilt.retried()) == (["over", "over"], GOOD, 1)


def test_a_build_that_hangs_over_a_spoilt_input_is_ended(spoilt: _Spoilt) -> None:
    spoilt.damage()

    class Waiting(FakeExecutor):
        """Waits for the wish to stop where the input is wrong."""

        def run(self, request: BuildRequest, log: BinaryIO, cancel: Wish) -> BuildOutcome:
            outcome = super().run(request, log, cancel)
            if b"worse" not in (outcome.outputs["out"] / "file").read_bytes():
                return outcome
            until = time.monotonic() + SECONDS
            while not cancel.is_set() and time.monotonic() < until:
                time.sleep(0.01)
            told.append(cancel.is_set())
            return BuildOutcome("interrupted", 0, outcome.isolation, 5, 6, {})

    told: list[bool] = []
    executor = Waiting()
    over = spoilt.over()
    with LocalStore.open(spoilt.place) as store:
        done = realize(store, [spoilt.source, over], spoilt.notes, executor=executor)
        made = store.materialise(done.chosen[over.digest].outputs["out"])
        assert (made / "file").read_bytes() == GOOD
    assert told == [True]
    assert executor.ran == ["over", "over"]


def test_what_cannot_be_made_again_is_said(spoilt: _Spoilt) -> None:
    over = spoilt.over()
    with LocalStore.open(spoilt.place) as store:
        file = dict(store.tree(spoilt.tree).entries)[b"file"]
        assert isinstance(file, File)
        flip(blob_path(store, file.digest))
        executor = FakeExecutor()
        error = refused(
            "E-STORE-DAMAGED",
            lambda: realize(store, [spoilt.source, over], spoilt.notes, executor=executor),
        )
        assert file.digest.hex in error.message
        assert executor.ran == ["over"]
        assert store.realized(over.digest) is None


# -- what changes after it was looked at -----------------------------------------------------------


def _run(spoilt: _Spoilt, store: LocalStore, *more: Derivation, executor: FakeExecutor) -> Realized:
    return realize(
        store, [spoilt.source, spoilt.over(), *more], spoilt.notes, executor=executor, jobs=1
    )


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("made_here", [False, True])
def test_what_changes_after_the_look_is_not_recorded(
    tmp_path: Path, made_here: bool, restored: bool
) -> None:
    """Also where this process made the directory; and where the old file is put back, it has
    another time of change, so that its bytes are read, which are right."""
    spoilt = _Spoilt(tmp_path)
    if made_here:
        remove_tree(str(spoilt.made))
    over, later = spoilt.over(), step("later", spoilt.over(), spoilt.source)

    def change(request: BuildRequest, out: Path, log: BinaryIO) -> str | None:
        aside = tmp_path / "aside"
        if restored:
            spoilt.made.chmod(0o755)
            (spoilt.made / "file").rename(aside)
            aside.rename(spoilt.made / "file")
            spoilt.made.chmod(0o555)
            os.utime(spoilt.made, (1, 1))
        else:
            spoilt.damage()
        return compile_(request, out, log)

    executor = FakeExecutor(behaviour={"later": change})
    with LocalStore.open(spoilt.place) as store:
        if restored:
            _run(spoilt, store, later, executor=executor)
        else:
            error = refused(
                "E-STORE-DAMAGED", lambda: _run(spoilt, store, later, executor=executor)
            )
            assert spoilt.tree.short in error.message
            assert store.realized(later.digest) is None
            done = _run(spoilt, store, later, executor=FakeExecutor())
            path = store.materialise(done.chosen[later.digest].outputs["out"])
            assert b"worse" not in (path / "file").read_bytes()
        assert store.realized(over.digest) is not None
        assert store.verify().problems == []


def test_a_failure_over_what_changed_after_the_look_is_tried_again(spoilt: _Spoilt) -> None:
    later = step("later", spoilt.over(), spoilt.source)
    tried: list[str] = []

    def fail(request: BuildRequest, out: Path, log: BinaryIO) -> str | None:
        tried.append("later")
        if len(tried) == 1:
            spoilt.damage()
            return "exit"
        return compile_(request, out, log)

    with LocalStore.open(spoilt.place) as store:
        done = _run(spoilt, store, later, executor=FakeExecutor(behaviour={"later": fail}))
        path = store.materialise(done.chosen[later.digest].outputs["out"])
        assert b"worse" not in (path / "file").read_bytes()
    assert len(tried) == 2


def test_a_contradiction_over_what_changed_is_none(spoilt: _Spoilt) -> None:
    over = spoilt.over()

    def change(request: BuildRequest, out: Path, log: BinaryIO) -> str | None:
        spoilt.damage()
        return compile_(request, out, log)

    with LocalStore.open(spoilt.place) as store:
        first = _run(spoilt, store, executor=FakeExecutor()).chosen[over.digest]
    with LocalStore.open(spoilt.place) as store:
        store.materialise(spoilt.tree)  # looked at
        executor = FakeExecutor(behaviour={"over": change})
        error = refused(
            "E-STORE-DAMAGED",
            lambda: realize(
                store,
                [spoilt.source, over],
                spoilt.notes,
                executor=executor,
                check=frozenset([over.digest]),
            ),
        )
        assert spoilt.tree.short in error.message
        assert store.records(first.action) == (first,)


def test_looking_takes_its_share_of_the_time(
    spoilt: _Spoilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at a large directory is not repeated for every few quick builds."""
    looks: list[int] = []
    steps = [step(f"s{n}", spoilt.source, word=str(n)) for n in range(30)]
    with LocalStore.open(spoilt.place) as store:
        real = store.changed

        def slow(inputs: Iterable[InputContent]) -> Sequence[InputContent]:
            looks.append(1)
            time.sleep(0.1)
            return real(inputs)

        monkeypatch.setattr(store, "changed", slow)
        whole = glue("whole", *steps)
        executor = FakeExecutor(seconds=0.05)
        realize(store, [spoilt.source, *steps, whole], spoilt.notes, executor=executor)
        assert store.realized(whole.digest) is not None
    assert len(looks) <= 3
