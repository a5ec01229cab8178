"""Fixtures that several folders share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.demo import Demo, make_demo

# Other work on the machine must not fail a test: no deadline for a single example.
settings.register_profile(
    "suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("suite")


# gRPC's fork handlers abort a child in which tests run code before `exec`; the product turns them
# off as well (adapters/remote/stubs.py), but a test may load the library first.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Ctrl-C is tested: also where the suite runs in the background, whose children ignore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def open_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command run inside the test process must not seal it: that holds for good, and for every
    test after. What the seal does is tested in processes of their own (hostile/test_offline_seal).
    """
    monkeypatch.setattr("reprobuild.adapters.offline.seal.seal", lambda: None)


@pytest.fixture(scope="session")
def demo_template(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The small project, locked and realized once; tests take copies (never change it)."""
    home = tmp_path_factory.mktemp("demo")
    demo = make_demo(home / "project", home / "store")
    demo.run("realize")
    return demo


@pytest.fixture
def locked(demo_template: Demo, tmp_path: Path) -> Demo:
    """A fresh checkout of the small project, locked, with an empty store."""
    return demo_template.clone(tmp_path / "project", tmp_path / "store")


@pytest.fixture
def realized(demo_template: Demo, tmp_path: Path) -> Demo:
    """A fresh checkout whose store has everything already."""
    demo = demo_template.clone(tmp_path / "project", tmp_path / "store")
    subprocess.run(["cp", "-a", str(demo_template.store), str(demo.store)], check=True)
    shutil.rmtree(demo.store / "roots")
    (demo.store / "roots").mkdir()
    demo.run("realize")
    return demo
