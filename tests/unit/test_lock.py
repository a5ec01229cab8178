"""Locking over fakes: what moves, what stays, what is left open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from reprobuild.core.digest import Digest, GitOid, Sha256
from reprobuild.core.flake import FixtureInput, Flake, GitInput
from reprobuild.core.integration.model import SourcePin, SourceRequest
from reprobuild.core.lock import GitPin, Lock, PathPin
from reprobuild.core.pins import FilePin
from reprobuild.engine.lock import Locked, Locker
from reprobuild.engine.pinning import Pinner
from reprobuild.engine.updates import Update
from reprobuild.errors import ReprobuildError
from reprobuild.ports import NullReporter
from support.pins import made_up_lock, oid, sha256


def flake(**changes: Any) -> Flake:
    data: dict[str, Any] = {
        "format": 0,
        "default": "demo",
        "inputs": {
            "app": {"kind": "git", "url": "https://git.example.org/app", "ref": "refs/heads/main"},
            "text": {"kind": "fixture", "path": "fixtures/text"},
            "notes": {"kind": "path", "path": "notes"},
            "tool": {"kind": "wheel", "name": "tool", "version": "1.0"},
        },
        "outputs": {"demo": {"components": ("app",)}, "other": {"components": ("app",)}},
    }
    for key, value in changes.items():
        part = data
        *path, last = key.split("__")
        for name in path:
            part = part.setdefault(name, {})
        part[last] = value
    return Flake.model_validate(data, by_name=False)


@dataclass
class World:
    """What discovery finds: everything in its n-th version."""

    version: int = 0
    asked: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    fixture: str = "text"
    directory: str | None = "files"

    def _ask(self, what: str) -> str:
        self.asked.append(what)
        if what in self.broken:
            raise ReprobuildError(self.broken[what], f"{what} cannot be had")
        return f"{what} {self.version}"

    def wheel(self, name: str, version: str, *, python: str) -> FilePin:
        text = self._ask(name)
        return FilePin(name, version, f"{name}-{version}.whl", 1, Sha256(sha256(text)))

    def sdist(self, name: str, version: str) -> FilePin:
        raise NotImplementedError

    def debs(
        self, suite: str, architecture: str, components: Sequence[str], packages: Sequence[str]
    ) -> Sequence[FilePin]:
        raise NotImplementedError

    def url(self, url: str) -> FilePin:
        raise NotImplementedError

    def path(self, path: str) -> Digest:
        if self.directory is None:
            raise ReprobuildError("E-FETCH", f"{path} is no directory")
        return Digest.of(f"{path} {self.directory}".encode())

    def oci(self, reference: str) -> Sha256:
        raise NotImplementedError

    def tip(self, declared: GitInput | FixtureInput, rev: str | None) -> tuple[GitOid, GitOid]:
        text = self._ask("git" if isinstance(declared, GitInput) else "fixture")
        return GitOid(oid(f"{text} rev")), GitOid(oid(f"{text} tree"))

    def source(self, declared: GitInput | FixtureInput, request: SourceRequest) -> SourcePin:
        raise NotImplementedError

    def text(self, declared: FixtureInput) -> Digest:
        return Digest.of(self.fixture.encode())


def lock(wanted: Flake, old: Lock | None, world: World, *update: str) -> Locked:
    locker = Locker(
        flake=wanted,
        old=old,
        pinner=Pinner(files=world, git=world),
        reporter=NullReporter(),
        update=Update.parse(update, wanted),
    )
    return locker.run()


def test_pins_everything_the_first_time() -> None:
    done = lock(flake(), None, World())
    assert set(done.lock.inputs) == {"app", "text", "notes", "tool"}
    assert done.lock.open == {}
    assert done.changed
    pin = done.lock.inputs["text"]
    assert isinstance(pin, GitPin)
    assert pin.text == Digest.of(b"text").hex


def test_what_is_pinned_stays_though_the_world_moved() -> None:
    first = lock(flake(), None, World()).lock
    world = World(version=1)
    again = lock(flake(), first, world)
    assert again.lock == first
    assert again.changed == []
    assert world.asked == []


@pytest.mark.parametrize("name", ["app", "text", "tool"])
def test_update_moves_that_alone(name: str) -> None:
    first = lock(flake(), None, World()).lock
    world = World(version=1)
    done = lock(flake(), first, world, name)
    assert {n for n in first.inputs if first.inputs[n] != done.lock.inputs[n]} == {name}
    assert len(world.asked) == 1


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"inputs__tool__version": "2.0"}, "tool"),
        ({"inputs__app__ref": "refs/heads/next"}, "app"),
        ({"inputs__notes__path": "elsewhere"}, "notes"),
        ({"inputs__notes": {"kind": "wheel", "name": "notes", "version": "1"}}, "notes"),
    ],
)
def test_another_declaration_is_pinned_anew(change: dict[str, Any], name: str) -> None:
    first = lock(flake(), None, World()).lock
    done = lock(flake(**change), first, World(version=1))
    assert {n for n in first.inputs if first.inputs[n] != done.lock.inputs[n]} == {name}


def test_a_fixture_whose_text_moved_is_pinned_anew() -> None:
    first = lock(flake(), None, World()).lock
    done = lock(flake(), first, World(version=1, fixture="other text"))
    assert {n for n in first.inputs if first.inputs[n] != done.lock.inputs[n]} == {"text"}


def test_a_directory_whose_content_moved_is_pinned_anew() -> None:
    first = lock(flake(), None, World()).lock
    done = lock(flake(), first, World(version=1, directory="other files"))
    assert {n for n in first.inputs if first.inputs[n] != done.lock.inputs[n]} == {"notes"}


def test_a_directory_that_is_not_here_stays_pinned() -> None:
    first = lock(flake(), None, World()).lock
    assert lock(flake(), first, World(directory=None)).changed == []


def test_new_and_gone_inputs() -> None:
    first = lock(flake(), None, World()).lock
    more = flake(inputs__more={"kind": "path", "path": "more"})
    second = lock(more, first, World(version=1)).lock
    assert set(second.inputs) - set(first.inputs) == {"more"}
    assert isinstance(second.inputs["more"], PathPin)
    third = lock(flake(), second, World(version=2))
    assert third.lock == first
    assert third.changed


@pytest.mark.parametrize("code", ["E-FETCH", "E-OFFLINE", "E-GIT-FETCH", "E-PACKAGE-MISSING"])
def test_what_cannot_be_reached_is_left_open(code: str) -> None:
    done = lock(flake(), None, World(broken={"tool": code}))
    assert "tool" not in done.lock.inputs
    assert done.lock.open["tool"].startswith(code)
    hosts_own = code != "E-PACKAGE-MISSING"
    assert ("cannot be had" in done.lock.open["tool"]) != hosts_own
    assert set(done.lock.inputs) == {"app", "text", "notes"}
    # and closed once it can be
    closed = lock(flake(), done.lock, World(version=1))
    assert closed.lock.open == {}
    assert "tool" in closed.lock.inputs


def test_what_was_asked_for_is_not_left_open() -> None:
    first = lock(flake(), None, World()).lock
    with pytest.raises(ReprobuildError) as caught:
        lock(flake(), first, World(broken={"tool": "E-FETCH"}), "tool")
    assert caught.value.code == "E-FETCH"


@pytest.mark.parametrize("code", ["E-FETCH-MISMATCH", "E-STORE-WRITE"])
def test_wrong_content_is_never_left_open(code: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        lock(flake(), None, World(broken={"tool": code}))
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["nothing", "app.pulls.9", "app.pulls.x", "", "demo"])
def test_updates_of_what_is_not_there(name: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        Update.parse((name,), flake())
    assert caught.value.code == "E-USAGE"


def test_the_made_up_lock_is_current() -> None:
    # tests/golden rests on it
    wanted = flake()
    made_up = made_up_lock(wanted)
    world = World(fixture="text", directory=None)
    done = lock(wanted, made_up, world)
    assert done.lock.inputs == made_up.inputs
