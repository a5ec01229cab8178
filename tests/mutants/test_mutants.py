"""Every mutant can still be applied, and is noticed: a few in each run, all in the slow one."""

from __future__ import annotations

import pytest

from mutants.run import Mutant, mutants, package_copy, pytest_of, trial

ALL = list(mutants())


@pytest.mark.parametrize("mutant", ALL, ids=str)
def test_can_be_applied(mutant: Mutant) -> None:
    assert mutant.problem() == ""


def test_names_are_unique() -> None:
    assert len({str(m) for m in ALL}) == len(ALL) >= 30


def unchanged(chosen: list[Mutant]) -> None:
    """Without a fault the same tests pass, over a copy: so it is the fault that they notice."""
    tests = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
    with package_copy() as copy:
        done = pytest_of(copy, tests)
    assert done.returncode == 0, done.stdout


def test_without_a_fault_all_is_well() -> None:
    unchanged([m for m in ALL if m.fast])


@pytest.mark.parametrize("mutant", [m for m in ALL if m.fast], ids=str)
def test_is_noticed(mutant: Mutant) -> None:
    assert trial(mutant) == ""


@pytest.mark.slow
@pytest.mark.parametrize("group", sorted({m.group for m in ALL}))
def test_without_a_fault_all_is_well_too(group: str) -> None:
    unchanged([m for m in ALL if m.group == group])


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [m for m in ALL if not m.fast], ids=str)
def test_is_noticed_too(mutant: Mutant) -> None:
    assert trial(mutant) == ""
