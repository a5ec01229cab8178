"""What the caller decides about fetching."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from reprobuild.core.mirrors import NO_MIRRORS, Mirrors
from reprobuild.ports import NullReporter, Reporter


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Fixed for the life of the fetchers.

    `partial_dir` keeps downloads that were cut, by sha256, until they are resumed; it is made
    when needed. `attempts` counts tries at one place; `backoff` is the first pause in seconds,
    doubled each time up to `longest_pause`. Timeouts are in seconds: `read_timeout` bounds the
    silence between two pieces, not the whole; `answer_timeout` is for a small body (a page, a
    manifest, a token) as a whole, with all tries. A body slower than `slowest` bytes a second over
    that time counts as cut. `max_size` (bytes) bounds a download whose size is not declared.
    Setting `cancel` ends what is running with E-INTERRUPTED. `reporter` is told of longer pauses.
    """

    partial_dir: Path
    offline: bool = False
    mirrors: Mirrors = NO_MIRRORS
    attempts: int = 5
    backoff: float = 1.0
    longest_pause: float = 60.0
    connect_timeout: float = 20.0
    read_timeout: float = 60.0
    answer_timeout: float = 900.0
    slowest: int = 512
    max_size: int = 64 * 2**30
    cancel: threading.Event = field(default_factory=threading.Event)
    reporter: Reporter = field(default_factory=NullReporter)
