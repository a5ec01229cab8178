"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from support.containerd import ctr
from support.dockerd import docker_host

__all__ = ["ctr", "docker_host", "hangup"]


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    """Commands under test heed a hang-up, also where the suite itself was started by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
