"""Servers killed at random moments, and cut off: every run ends with the right content."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

from reprobuild.adapters.remote.cluster import Cluster, Member, url
from support.chaos import Killer, Round, moments
from support.demo import needs_sandbox
from support.remote import DictMemo

pytestmark = [needs_sandbox, pytest.mark.slow]

NODE_KILLS = int(os.environ.get("REPROBUILD_NODE_KILLS", "50"))
HUB_KILLS = int(os.environ.get("REPROBUILD_HUB_KILLS", "10"))
SPAN = 3.0
"""Seconds that a run of `Round` takes, more or less."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster")
    cluster.up(2, 1)
    yield cluster
    cluster.down(purge=True)


def test_a_run_that_nothing_befalls(cluster: Cluster, tmp_path: Path) -> None:
    done = Round(tmp_path / "run", url(cluster.members()), "calm").run()
    assert (done.built, done.shared) == (7, 0)
    again = Round(tmp_path / "again", url(cluster.members()), "calm").run()
    assert (again.built, again.shared) == (0, 7)


def test_nodes_killed_at_random_moments(cluster: Cluster, tmp_path: Path) -> None:
    memo = DictMemo()
    hit = 0
    for number, moment in enumerate(moments(NODE_KILLS, SPAN, seed=10)):
        killer = Killer(cluster, f"node{1 + number % 2}", moment, pause=0.5)
        run = Round(tmp_path / f"r{number}", url(cluster.members()), f"word{number}", memo=memo)
        killer.thread.start()
        try:
            done = run.run()
        finally:
            killer.thread.join()
        assert done.built + done.shared == 7  # a result may have outlived the one who made it
        hit += any("tried again" in str(e) for e in run.world.events.named("note"))
        shutil.rmtree(tmp_path / f"r{number}")
    assert hit >= NODE_KILLS // 10, "hardly any kill met a build"


def test_the_hub_killed_at_random_moments(cluster: Cluster, tmp_path: Path) -> None:
    memo = DictMemo()
    for number, moment in enumerate(moments(HUB_KILLS, SPAN, seed=11)):
        killer = Killer(cluster, "hub", moment, pause=0.2 + number % 3)
        run = Round(tmp_path / f"r{number}", url(cluster.members()), f"hub{number}", memo=memo)
        killer.thread.start()
        try:
            done = run.run()
            assert done.built + done.shared == 7
        finally:
            killer.thread.join()


def test_all_nodes_lost_in_the_middle_and_the_rest_is_built_here(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The world's own executor only joins inputs, so what it makes says where it was made."""
    members = cluster.members()
    run = Round(tmp_path / "run", url(members), "lost", seconds=1.0, fallback=True, patience=3.0)
    threading.Timer(1.5, _kill, (members[1:],)).start()
    with pytest.raises(AssertionError):
        run.run()
    assert run.world.executor.ran, "what was left was made here"
    assert run.world.events.named("retried")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_hub_lost_for_good_and_the_rest_is_built_here(
    cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    """The nodes still answer, but have nowhere to put what they make."""
    members = cluster.members()
    run = Round(tmp_path / "run", url(members), "hub", fallback=True, patience=3.0)
    os.kill(members[0].pid, number)
    with pytest.raises(AssertionError):
        run.run()
    assert run.world.executor.ran
    assert any("reach its content" in str(e) for e in run.world.events.named("retried"))


def _kill(members: list[Member]) -> None:
    for member in members:
        os.kill(member.pid, signal.SIGKILL)


# -- a network that is cut ----------------------------------------------------------------------

NAMESPACE, OUTSIDE, INSIDE = "reprobuild-part", "10.231.77.1", "10.231.77.2"


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


@pytest.fixture
def apart() -> Iterator[None]:
    """A network namespace with one wire to this one."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2 to make network namespaces")
    ip("netns", "del", NAMESPACE, check=False)
    try:
        ip("netns", "add", NAMESPACE)
        ip("link", "add", "rb-out", "type", "veth", "peer", "name", "rb-in", "netns", NAMESPACE)
        ip("addr", "add", f"{OUTSIDE}/24", "dev", "rb-out")
        ip("link", "set", "rb-out", "up")
        ip("-n", NAMESPACE, "addr", "add", f"{INSIDE}/24", "dev", "rb-in")
        ip("-n", NAMESPACE, "link", "set", "rb-in", "up")
        ip("-n", NAMESPACE, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    yield
    ip("link", "del", "rb-out", check=False)
    ip("netns", "del", NAMESPACE, check=False)


@pytest.mark.parametrize("heals", [True, False])
def test_a_node_behind_a_cut_wire(
    cluster: Cluster, apart: None, tmp_path: Path, heals: bool
) -> None:
    """One node works in a namespace of its own, and its wire is cut while it does."""
    hub, near = cluster.members()[0], cluster.members()[1]
    from reprobuild.adapters.remote.cluster import _tools

    tools = _tools()
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    relay = _Relay(OUTSIDE, hub.port)
    far = subprocess.Popen(
        ["ip", "netns", "exec", NAMESPACE, tools / "buildbox-casd", f"--bind={INSIDE}:50799",
         f"--cas-remote=http://{OUTSIDE}:{relay.port}", f"--ac-remote=http://{OUTSIDE}:{relay.port}",
         f"--buildbox-run={tools / 'buildbox-run'}", "--jobs=1", tmp_path / "far"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        time.sleep(2)
        address = f"grpc://{INSIDE}:50799,{near.host}"
        calm = Round(tmp_path / "calm", address, f"calm{heals}")
        calm.run()
        cut = threading.Timer(1.0, ip, ("link", "set", "rb-out", "down"))
        heal = threading.Timer(6.0, ip, ("link", "set", "rb-out", "up"))
        run = Round(tmp_path / "run", address, f"cut{heals}", seconds=1.5)
        cut.start()
        if heals:
            heal.start()
        done = run.run()
        assert done.built + done.shared == 7
        cut.join()
        if heals:
            heal.join()
    finally:
        os.killpg(far.pid, signal.SIGKILL)
        far.wait()
        relay.close()


class _Relay:
    """Lets the other namespace reach the hub, which listens on loopback alone."""

    def __init__(self, address: str, target: int) -> None:
        import socket

        self._listener = socket.create_server((address, 0))
        self.port = self._listener.getsockname()[1]
        self._target = target
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        import socket

        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            two = socket.create_connection(("127.0.0.1", self._target))
            for a, b in ((one, two), (two, one)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    @staticmethod
    def _copy(one: object, two: object) -> None:
        import socket

        assert isinstance(one, socket.socket)
        assert isinstance(two, socket.socket)
        try:
            while data := one.recv(65536):
                two.sendall(data)
        except OSError:
            return
        finally:
            for end in (one, two):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.close()
