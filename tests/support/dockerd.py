"""Docker daemons of the tests' own: private socket, data and containerd, no network set-up.

Two engines: the installed one, and one of Debian stable that keeps its images in containerd
(`containerd-snapshotter`), in a root file system of its own.
"""

from __future__ import annotations

import json
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


def engine_root() -> Path:
    """A root file system with Debian stable's Docker, made once; skips where it is not to be had.

    `REPROBUILD_TEST_DOCKER_ROOT` names one that is there (or where it is to be).
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    stated = os.environ.get("REPROBUILD_TEST_DOCKER_ROOT")
    root = Path(stated) if stated else cache / "reprobuild-tests/docker-stable"
    if (root / "usr/sbin/dockerd").exists():
        return root
    if not shutil.which("debootstrap"):
        pytest.skip("a newer Docker engine needs debootstrap (apt-get install debootstrap)")
    root.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
    packages = "docker.io,docker-cli,ca-certificates"
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", "stable", str(work)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        shutil.rmtree(work, ignore_errors=True)
        pytest.skip(
            f"debootstrap of Debian stable failed: {made.stdout[-300:]}{made.stderr[-300:]}"
        )
    for unneeded in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(work / unneeded, ignore_errors=True)
    work.chmod(0o755)
    try:
        work.replace(root)
    except OSError:  # another run was faster
        shutil.rmtree(work, ignore_errors=True)
    return root


def _inside(root: Path, home: Path) -> list[str]:
    """Words in front of a command: it sees `root` as /, with `home` where it is, and its mounts are
    gone with it."""
    places = " && ".join(
        f"mount --rbind /{name} '{root}/{name}'" for name in ("proc", "sys", "dev", str(home)[1:])
    )
    (root / str(home)[1:]).mkdir(parents=True, exist_ok=True)
    # runc changes how / propagates, so that has to be a mount.
    script = f"mount --rbind '{root}' '{root}' && {places} && exec chroot '{root}' \"$@\""
    return ["unshare", "--mount", "--propagation=private", "sh", "-ec", script, "sh"]


@contextmanager
def running(
    driver: str, root: Path | None = None, *, data: Path | None = None
) -> Iterator[str | None]:
    """DOCKER_HOST of a daemon with that storage driver, or None when it does not come up.

    With a `root`, it is the engine in there, with containerd's image store. It keeps what it has
    in `data`, else in a directory that goes with it.
    """
    home = Path(tempfile.mkdtemp(prefix="rb-docker-"))  # short: a socket's path is limited
    host = f"unix://{home}/docker.sock"
    features = {"containerd-snapshotter": True} if root is not None else {}
    (home / "daemon.json").write_text(json.dumps({"features": features}))
    words = [
        "dockerd",
        f"--config-file={home}/daemon.json",
        f"--data-root={data or home / 'data'}",
        f"--exec-root={home}/exec",
        f"--pidfile={home}/pid",
        f"--host={host}",
        f"--storage-driver={driver}",
        "--bridge=none",
        "--iptables=false",
    ]
    before = _inside(root, home) if root is not None else []
    with (home / "log").open("wb") as log:
        daemon = subprocess.Popen([*before, *words], stdout=log, stderr=log)
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


STABLE = pytest.param("containerd", marks=(pytest.mark.slow, pytest.mark.network))


@pytest.fixture(scope="session", params=["installed", STABLE])
def docker_host(request: pytest.FixtureRequest) -> Iterator[str]:
    """A private daemon's DOCKER_HOST; skips, with the reason, where none can be had."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    root = engine_root() if request.param == "containerd" else None
    for driver in ("overlay2", "vfs") if root is None else ("overlayfs", "native"):
        with running(driver, root) as host:
            if host is not None:
                yield host
                return
    pytest.skip("dockerd is installed, but does not start here (no cgroups or mounts?)")
