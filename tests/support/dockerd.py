"""A Docker daemon of the tests' own: private socket, data and containerd, no network set-up."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

START_SECONDS = 60


def why_not() -> str:
    """Why no daemon can be started here; empty when one can."""
    if not shutil.which("dockerd") or not shutil.which("docker"):
        return "dockerd and docker are not installed (apt-get install docker.io)"
    if os.geteuid() != 0:
        return "a private dockerd needs root"
    return ""


def _answers(host: str) -> bool:
    run = subprocess.run(["docker", "-H", host, "version"], capture_output=True, check=False)
    return run.returncode == 0


@contextmanager
def running(driver: str) -> Iterator[str | None]:
    """DOCKER_HOST of a daemon with that storage driver, or None when it does not come up."""
    home = Path(tempfile.mkdtemp(prefix="rb-docker-"))  # short: a socket's path is limited
    host = f"unix://{home}/docker.sock"
    with (home / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [
                "dockerd",
                f"--data-root={home}/data",
                f"--exec-root={home}/exec",
                f"--pidfile={home}/pid",
                f"--host={host}",
                f"--storage-driver={driver}",
                "--bridge=none",
                "--iptables=false",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        up = False
        for _ in range(START_SECONDS * 5):
            up = _answers(host)
            if up or daemon.poll() is not None:
                break
            time.sleep(0.2)
        yield host if up else None
    finally:
        daemon.terminate()
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        _unmount(home)
        shutil.rmtree(home, ignore_errors=True)


def _unmount(home: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{home}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)


@pytest.fixture(scope="session")
def docker_host() -> Iterator[str]:
    """A private daemon's DOCKER_HOST; skips, with the reason, where none can be had."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    for driver in ("overlay2", "vfs"):
        with running(driver) as host:
            if host is not None:
                yield host
                return
    pytest.skip("dockerd is installed, but does not start here (no cgroups or mounts?)")
