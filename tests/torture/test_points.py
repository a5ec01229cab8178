"""add, realize, import, gc and repair: killed, refused and cut short at every file operation."""

from __future__ import annotations

import errno
import shutil
from functools import partial
from pathlib import Path

import pytest

from reprobuild.adapters.store import blobs, capture, seen, shelf
from reprobuild.core.bundle import format as bundle_format
from reprobuild.engine import transfer_import
from support.forked import KILL, KILL_AFTER, SHORT, forked
from support.scenarios import SCENARIOS, Scenario, copy
from torture.conftest import Tally

SAMPLE = 12
"""Points of each kind that are tried when not all are: of four, three may well be of memos, which
may be lost without a word."""


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few bytes take the way of large content, and an import has several batches."""
    for module in (blobs, capture, shelf):
        monkeypatch.setattr(module, "IN_MEMORY", 64)
        monkeypatch.setattr(module, "CHUNK", 32, raising=False)
    monkeypatch.setattr(seen, "_TICK_NS", -(2**62))  # what was seen is written down at once
    monkeypatch.setattr(bundle_format, "PIECE", 4000)
    monkeypatch.setattr(transfer_import, "BATCH_BYTES", 3000)


@pytest.fixture(params=SCENARIOS, ids=lambda kind: kind.name)
def trial(request: pytest.FixtureRequest, memory: Path) -> tuple[Scenario, Path, int]:
    """A scenario, its template, and the points of a clean run."""
    scenario: Scenario = request.param()
    template = memory / "template"
    template.mkdir()
    scenario.prepare(template)
    clean = memory / "clean"
    copy(template, clean)
    outcome = forked(lambda: scenario.act(clean), clean)
    assert outcome.done, outcome.said
    assert outcome.points > 15
    scenario.rerun(clean)
    return scenario, template, outcome.points


def chosen(points: int, full: bool, salt: int) -> list[int]:
    """All points, or a few that are spread over the run."""
    if full:
        return list(range(1, points + 1))
    step = max(1, points // SAMPLE)
    return list(range(1 + salt % step, points + 1, step))


@pytest.mark.parametrize("fault", [KILL, KILL_AFTER])
def test_killed(
    trial: tuple[Scenario, Path, int], memory: Path, fault: str, full: bool, tally: Tally
) -> None:
    scenario, template, points = trial
    hit = tried = 0
    for at in chosen(points, full, 3 + len(fault)):
        home = memory / "trial"
        copy(template, home)
        outcome = forked(partial(scenario.act, home), home, at=at, fault=fault)
        # threads come in another order each time, and so to some operations more or less
        assert outcome.said in ("killed", "done"), (at, outcome)
        hit += outcome.said == "killed"
        tried += 1
        try:
            scenario.cut_short(home)
            scenario.rerun(home)
        except BaseException:
            print(f"{scenario.name} {fault} at {at}: {outcome.fired}")
            raise
        shutil.rmtree(home)
        home.with_name("trial.built").unlink(missing_ok=True)
    assert hit >= 0.9 * tried
    tally(scenario.name, "killed at a file operation", hit)


SAYS = ("E-STORE-WRITE", "E-SANDBOX-SETUP", "E-DEPENDENCY", "E-BUILD-FAILED")
"""The last two: of several failures, and of a builder that could not write."""

REFUSALS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


@pytest.mark.parametrize("number", REFUSALS, ids=lambda number: errno.errorcode[number])
def test_refused(
    trial: tuple[Scenario, Path, int], memory: Path, number: int, full: bool, tally: Tally
) -> None:
    scenario, template, points = trial
    said: list[str] = []
    for at in chosen(points, full, number):
        home = memory / "trial"
        copy(template, home)
        outcome = forked(partial(scenario.act, home), home, at=at, fault=number)
        where = (
            f"{scenario.name}, {errno.errorcode[number]} at {at}: {outcome.fired}: {outcome.said}"
        )
        if not outcome.done:
            said.append(outcome.said)
            assert outcome.said in SAYS, where
        try:
            scenario.cut_short(home)
            scenario.rerun(home)
        except BaseException:
            print(where)
            raise
        shutil.rmtree(home)
        home.with_name("trial.built").unlink(missing_ok=True)
    # A memo that cannot be written is no error: cache/seen is a tenth of an addition's points.
    assert len(said) > 0.4 * len(chosen(points, full, number))
    tally(scenario.name, f"refused with {errno.errorcode[number]}", len(said))


def test_short_writes(trial: tuple[Scenario, Path, int], memory: Path, tally: Tally) -> None:
    scenario, template, _ = trial
    home = memory / "trial"
    copy(template, home)
    outcome = forked(lambda: scenario.act(home), home, fault=SHORT)
    assert outcome.done, outcome.said
    scenario.rerun(home)
    tally(scenario.name, "with every write short", 1)
