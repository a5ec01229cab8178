"""A containerd of the tests' own, and `ctr` that speaks to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

START_SECONDS = 30


@dataclass(frozen=True)
class Ctr:
    """The client of one daemon."""

    address: Path
    snapshotter: str

    def __call__(self, *words: str | Path) -> str:
        """What a call of `ctr` prints; it must do."""
        done = self.call(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def call(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """A call that may fail."""
        return subprocess.run(
            ["ctr", "--address", str(self.address), *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="session")
def ctr() -> Iterator[Ctr]:
    """A running containerd; skips, with the reason, where none can be had."""
    if not shutil.which("containerd") or not shutil.which("ctr"):
        pytest.skip("containerd and ctr are not installed (apt-get install containerd)")
    if os.geteuid() != 0:
        pytest.skip("containerd needs root")
    home = Path(tempfile.mkdtemp(prefix="rb-ctr-"))  # short: a socket's path is limited
    config = {
        "root": str(home / "root"),
        "state": str(home / "state"),
        "grpc.address": str(home / "sock"),
    }
    lines = ["version = 2", 'disabled_plugins = ["io.containerd.grpc.v1.cri"]']
    lines += [f"{key} = {json.dumps(value)}" for key, value in config.items()]
    (home / "config.toml").write_text("\n".join(lines))
    with (home / "log").open("wb") as log:
        words = ["containerd", "-c", str(home / "config.toml")]
        daemon = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        client = Ctr(home / "sock", "native")
        for _ in range(START_SECONDS * 5):
            if client.call("version").returncode == 0 or daemon.poll() is not None:
                break
            time.sleep(0.2)
        if client.call("version").returncode != 0:
            log_text = (home / "log").read_text(errors="replace")
            pytest.skip(f"containerd is installed, but does not start here: {log_text[-300:]}")
        yield client
    finally:
        daemon.terminate()
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(home, ignore_errors=True)
