"""`--keep-going` is fair: whatever fails, all that does not need it is done, once, and no more."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from reprobuild.core.digest import Digest
from reprobuild.engine.scheduler import Cost, Limits, Scheduler


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, set[int]], set[int], set[int]]:
    """(needs, nodes that fail, nodes that fail once and may be tried again)."""
    size = draw(st.integers(1, 12))
    needs = {
        n: draw(st.sets(st.integers(0, n - 1), max_size=3)) if n else set() for n in range(size)
    }
    nodes = st.sets(st.integers(0, size - 1))
    return needs, draw(nodes), draw(nodes)


@given(graphs(), st.booleans(), st.integers(1, 4))
def test_what_fails_takes_along_only_what_needs_it(
    graph: tuple[dict[int, set[int]], set[int], set[int]], keep_going: bool, jobs: int
) -> None:
    needs, bad, shaky = graph
    digests = {n: Digest.of(b"%d" % n) for n in needs}
    numbers = {digest: n for n, digest in digests.items()}
    tried: list[int] = []
    lock = threading.Lock()

    def work(digest: Digest) -> None:
        number = numbers[digest]
        with lock:
            tried.append(number)
            first = tried.count(number) == 1
        if number in bad or (number in shaky and first):
            raise ValueError(number)

    def again(digest: Digest, error: BaseException) -> bool:
        number = numbers[digest]
        return number in shaky and tried.count(number) == 1

    outcome = Scheduler(
        order=[digests[n] for n in needs],
        needs={digests[n]: {digests[m] for m in below} for n, below in needs.items()},
        cost=lambda digest: Cost(cores=1 + numbers[digest] % 2),
        limits=Limits(jobs, 2, 2**30),
        cancel=threading.Event(),
        keep_going=keep_going,
        again=again,
    ).run(work)
    failed = {numbers[d] for d in outcome.failed}
    skipped = {numbers[d] for d in outcome.skipped}
    done = set(needs) - failed - skipped
    assert not done & bad and failed <= bad
    assert all(tried.count(n) == (2 if n in shaky else 1) for n in done | failed)
    assert all(needs[n] <= done for n in done | failed)
    assert not skipped & set(tried) or not keep_going
    if keep_going:
        lost: set[int] = set()
        for n, below in needs.items():
            if n in bad or below & lost:
                lost.add(n)
        assert failed | skipped == lost  # and everything else is done
    elif not bad:
        assert done == set(needs)
