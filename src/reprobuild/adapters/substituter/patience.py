"""How long a binary cache may take: one that is slower than building is no help."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.errors import ReprobuildError

ANSWER = 10.0
"""Seconds that an answer to "do you have this?" may take."""


def impatient(settings: FetchSettings) -> FetchSettings:
    """The same, with fewer and shorter tries: what a cache does not give is built."""
    return replace(
        settings,
        attempts=2,
        connect_timeout=5.0,
        read_timeout=15.0,
        answer_timeout=ANSWER,
        slowest=8192,
        backoff=0.5,
    )


@contextmanager
def prompt(name: str) -> Iterator[None]:
    """For a block with one question; raises E-FETCH when its answer came too late to be of use.

    Each read in it has that long at most (`impatient`); a login may take several.
    """
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    if took > ANSWER:
        raise ReprobuildError("E-FETCH", f"{name} took {took:.0f} s for one answer", cache=name)
