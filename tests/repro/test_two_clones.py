"""Two checkouts under different circumstances give the same digests, to the last layer."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import reprobuild
from reprobuild.adapters.sandbox.removal import remove_tree
from support.demo import COMMAND, Demo, Ran, needs_sandbox

pytestmark = needs_sandbox

ORDINARY = 65534
CLONE_NEWUTS = 0x04000000


@dataclass(frozen=True)
class Circumstance:
    """How a clone is realized: everything that must not matter."""

    name: str
    env: dict[str, str] = field(default_factory=dict)
    umask: int = 0o022
    words: tuple[str, ...] = ()
    ordinary: bool = False
    hostname: str = ""
    shuffled: bool = False
    inside: bool = False
    one_core: bool = False


CIRCUMSTANCES = [
    Circumstance("umask and jobs", umask=0o077, words=("-j1",)),
    Circumstance(
        "time zone, language, hash seed",
        env={
            "TZ": "Pacific/Kiritimati",
            "LANG": "tr_TR.UTF-8",
            "LC_ALL": "C",
            "PYTHONHASHSEED": "4242",
            "SOURCE_DATE_EPOCH": "1",
            "USER": "somebody",
            "TMPDIR": "/var/tmp",
            "CFLAGS": "-O0",
        },
        umask=0o002,
        words=("-j2",),
    ),
    Circumstance("another user", ordinary=True, env={"PYTHONHASHSEED": "1"}),
    Circumstance("host name and one core", hostname="elsewhere", one_core=True),
    Circumstance("order of making, and from inside", shuffled=True, inside=True),
]


def interpreter_for_others() -> tuple[str, dict[str, str]] | None:
    """A Python that an ordinary user can run this package with, and its environment."""
    packages = [str(Path(reprobuild.__file__).parents[1]), *(p for p in sys.path if "site-" in p)]
    for python, env in (
        (sys.executable, {}),
        ("/usr/bin/python3", {"PYTHONPATH": os.pathsep.join(packages)}),
    ):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [python, "-c", "import reprobuild.cli.main, blake3, click, pydantic"],
                user=ORDINARY,
                group=ORDINARY,
                extra_groups=[],
                cwd="/",
                env={"PATH": os.environ["PATH"], **env},
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                return python, env
    return None


def copy_shuffled(source: Path, target: Path) -> None:
    """Copies a project with its files made in another order, so that readdir gives another."""
    files = [p for p in source.rglob("*") if not p.is_dir() or p.is_symlink()]
    random.Random(7).shuffle(files)
    for path in files:
        there = target / path.relative_to(source)
        there.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            there.symlink_to(os.readlink(path))
        else:
            shutil.copyfile(path, there)
            if path.stat().st_mode & 0o100:
                there.chmod(0o755)
        if not there.is_symlink():
            os.utime(there, (1e9, random.Random(str(path)).randrange(10**9)))


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory that any user can reach, with an odd and long name."""
    home = Path(tempfile.mkdtemp(prefix="reprobuild-test-"))
    home.chmod(0o755)
    try:
        yield home
    finally:
        remove_tree(home)


def realize(demo: Demo, how: Circumstance, python: str, env: Mapping[str, str]) -> dict[str, Any]:
    """The answer of a realize under a circumstance."""

    def prepare() -> None:
        if how.hostname:
            name = how.hostname.encode()
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(CLONE_NEWUTS) or libc.sethostname(name, len(name)):
                raise OSError(ctypes.get_errno(), "cannot have another host name")
        if how.one_core:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.umask(how.umask)
        if how.ordinary:
            os.setgroups([])
            os.setresgid(ORDINARY, ORDINARY, ORDINARY)
            os.setresuid(ORDINARY, ORDINARY, ORDINARY)

    argv = demo.argv("--json", "realize", *how.words)
    if how.inside:
        # found by looking upwards, and a store named relative to where one is
        store = os.path.relpath(demo.store, demo.path / "notes")
        argv = [python, "-c", COMMAND, "--store", store, "--json", "realize"]
    done = subprocess.run(
        [python, *argv[1:]],
        cwd=demo.path / "notes" if how.inside else "/",
        env={**demo.environment(), **env, **how.env},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=prepare,
    )
    assert done.returncode == 0, done.stderr
    return Ran(0, done.stdout, done.stderr).document


@pytest.mark.parametrize("how", CIRCUMSTANCES, ids=lambda how: how.name)
def test_same_digests(demo_template: Demo, elsewhere: Path, how: Circumstance) -> None:
    if (how.ordinary or how.hostname) and os.geteuid() != 0:
        pytest.skip("needs root to become someone else")
    python: tuple[str, dict[str, str]] | None = (sys.executable, {})
    if how.ordinary:
        python = interpreter_for_others()
    if python is None:
        pytest.skip("no interpreter here that an ordinary user can run this package with")
    reference = demo_template.json("realize")
    project, store = elsewhere / "a longer name, with spaces" / "clone", elsewhere / "other-store"
    if how.shuffled:
        copy_shuffled(demo_template.path, project)
        demo = Demo(project, store)
    else:
        demo = demo_template.clone(project, store)
    if how.ordinary:
        for path in [elsewhere, *elsewhere.rglob("*")]:
            os.chown(path, ORDINARY, ORDINARY, follow_symlinks=False)
    answer = realize(demo, how, *python)
    assert answer["counts"]["built"] == 12
    assert answer["image"] == reference["image"]
    for key in ("drv", "tree", "isolation"):
        assert answer["outputs"]["demo"][key] == reference["outputs"]["demo"][key]


def test_the_lock_is_the_same_too(demo_template: Demo, elsewhere: Path) -> None:
    demo = demo_template.clone(elsewhere / "clone", elsewhere / "store")
    (demo.path / "flake-like.lock").unlink()
    demo.run("lock", env={"TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "9", "LANG": "C"})
    lock = "flake-like.lock"
    assert (demo.path / lock).read_bytes() == (demo_template.path / lock).read_bytes()
