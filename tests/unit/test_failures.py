"""What a run ends with that failed in several places at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fakes.world import step
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.engine.failures import failure_of
from reprobuild.errors import ReprobuildError


def ended(*errors: BaseException, skipped: int = 0) -> BaseException:
    """The failure of a run in which so many steps failed, and others were not tried."""
    graph = Graph()
    nodes = [step(f"a{number}") for number in range(len(errors))]
    for node in nodes:
        graph.add(node)
    failed = {node.digest: error for node, error in zip(nodes, errors, strict=True)}
    return failure_of(graph, failed, [Digest.of(bytes([n])) for n in range(skipped)])


def errors(*codes: str) -> list[ReprobuildError]:
    return [ReprobuildError(code, f"{code} it is") for code in codes]


@pytest.mark.parametrize(
    ("codes", "status"),
    [
        (("E-OFFLINE", "E-OFFLINE"), 8),
        (("E-NOT-REPRODUCIBLE", "E-NOT-REPRODUCIBLE", "E-NOT-REPRODUCIBLE"), 6),
        (("E-FETCH-MISMATCH", "E-TREE-MISMATCH"), 4),
        (("E-STORE-WRITE", "E-BUILD-FAILED"), 10),
        (("E-BUILD-FAILED", "E-BUILD-TIMEOUT"), 5),
        (("E-BUILD-FAILED", "E-NOT-REPRODUCIBLE"), 5),
        (("E-BUILD-FAILED", "E-OFFLINE"), 8),
        (("E-STORE-DAMAGED", "E-STORE-WRITE"), 7),
        (("E-INTERRUPTED", "E-STORE-DAMAGED"), 130),
    ],
)
def test_the_status_is_that_of_what_is_to_be_mended_first(
    codes: Sequence[str], status: int
) -> None:
    for order in (codes, codes[::-1]):
        error = ended(*errors(*order), skipped=2)
        assert isinstance(error, ReprobuildError)
        assert (error.code, error.exit_status) == ("E-DEPENDENCY", status)
        assert error.facts["codes"] == list(order)
        assert error.facts["not_tried"] == 2
        lines = error.facts["failed"]
        assert isinstance(lines, list)
        assert [str(line).partition(": ")[2] for line in lines] == [
            f"{c} it is  [{c}]" for c in order
        ]


def test_what_to_do_is_said_once_and_in_order() -> None:
    several = errors("E-OFFLINE", "E-STORE-WRITE", "E-OFFLINE")
    error = ended(*several)
    assert isinstance(error, ReprobuildError)
    assert error.hint == f"{several[1].hint}; {several[0].hint}"


def test_one_failure_is_itself() -> None:
    (one,) = errors("E-OFFLINE")
    assert ended(one, skipped=3) is one
    assert one.facts["not_tried"] == 3


def test_a_bug_is_a_bug() -> None:
    bug = ValueError("no")
    assert ended(*errors("E-OFFLINE", "E-OFFLINE"), bug) is bug
