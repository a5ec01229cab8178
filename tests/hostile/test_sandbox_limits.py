"""A build that does not end, says too much or nothing, or takes too much; and its clean-up."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.sandbox import cgroup
from reprobuild.adapters.sandbox.removal import remove_tree
from reprobuild.core.derivation import Hints, Isolation
from reprobuild.ports import Mount
from sandboxkit import IDENTITIES, Who, identity, needs_bubblewrap, needs_python

pytestmark = needs_bubblewrap


@pytest.fixture(params=IDENTITIES)
def who(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Who]:
    with identity(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def anyone(tmp_path: Path) -> Iterator[Who]:
    name = "root" if os.geteuid() == 0 else "ordinary"
    with identity(name, tmp_path) as found:
        yield found


def _running(mark: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in entry.read_bytes() and entry.parent.name != str(os.getpid()):
                return True
        except OSError:
            continue
    return False


def test_a_build_that_never_ends_is_stopped(who: Who) -> None:
    mark = f"6{os.getpid()}.25"
    ran = who.run(f"echo begun; (setsid sleep {mark} &) ; sleep {mark}", hints=Hints(timeout=1))
    assert ran.outcome.reason == "timeout"
    assert ran.log == "begun\n[reprobuild: stopped: still running after 1 s]\n"
    assert not _running(mark)


def test_when_we_are_killed_the_build_dies_with_us(who: Who) -> None:
    mark = f"9{os.getpid()}.25"
    child = os.fork()
    if child == 0:
        try:
            who.run(f"(setsid sleep {mark} &); sleep {mark}")
        finally:
            os._exit(0)
    _wait_until(lambda: _running(f"\0{mark}"))
    if who.name == "ordinary" and os.geteuid() == 0:
        (child_of_child,) = Path(f"/proc/{child}/task/{child}/children").read_text().split()
        os.kill(int(child_of_child), signal.SIGKILL)
    else:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _wait_until(lambda: not _running(mark))


def _starter_of(mark: str) -> int:
    """The starter above a process that has `mark` among its words; 0 while there is none."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            here = entry.parent if f"\0{mark}".encode() in entry.read_bytes() else Path("/")
            while here.name:
                if b"spawned.py" in (here / "cmdline").read_bytes():
                    return int(here.name)
                stat = (here / "stat").read_text()
                here = Path("/proc", stat.rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    return 0


@pytest.mark.parametrize("groups", [True, False])
def test_when_the_starter_is_killed_the_build_is_too(
    anyone: Who, groups: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not groups:
        monkeypatch.setattr(cgroup, "discover", list)
    mark = f"5{os.getpid()}.25"
    found: list[int] = []

    def kill() -> None:
        _wait_until(lambda: bool(_starter_of(mark)))
        found.append(_starter_of(mark))
        os.kill(found[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    ran = anyone.run(f"(setsid sleep {mark} &); sleep {mark}")
    thread.join()
    assert found
    assert (ran.outcome.reason, ran.outcome.status) == ("signal", 9)
    assert not _running(mark)


def _wait_until(condition: Callable[[], bool]) -> None:
    """Waits; a minute without what is waited for is a failure."""
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited for a minute")


def test_silence_is_stopped_and_output_is_not(anyone: Who) -> None:
    talk = "for i in 1 2 3 4 5 6 7; do echo $i; sleep 0.3; done"
    ran = anyone.run(f"{talk}; exec sleep 77", hints=Hints(silence=1))
    assert ran.outcome.reason == "silence"
    assert ran.log.endswith("7\n[reprobuild: stopped: no output for 1 s]\n")


def test_many_files_meet_the_output_limit(anyone: Who) -> None:
    fill = "i=0; while :; do i=$((i+1)); head -c 200000 /dev/zero > /tmp/f$i; done"
    ran = anyone.run(fill, hints=Hints(output_limit=30 * 2**20, timeout=60))
    assert ran.outcome.reason == "output-size"
    assert "stopped: took more than 31457280 bytes of disk" in ran.log


def test_one_big_file_meets_the_output_limit(who: Who) -> None:
    ran = who.run("exec head -c 40000000 /dev/zero > /build/big", hints=Hints(output_limit=2**20))
    assert ran.outcome.reason == "output-size"
    assert "stopped: took more than 1048576 bytes of disk" in ran.log


def test_a_sparse_file_meets_the_output_limit(anyone: Who) -> None:
    ran = anyone.run("truncate -s 1T /out/out", hints=Hints(output_limit=2**30))
    assert ran.outcome.reason == "output-size"


def test_a_huge_log_is_cut_with_a_marker(anyone: Who) -> None:
    ran = anyone.run("head -c 3000000 /dev/zero | tr '\\0' x; echo; exit 3", log_limit=1_000_000)
    assert (ran.outcome.reason, ran.outcome.status) == ("exit", 3)
    assert ran.log == "x" * 1_000_000 + (
        "\n[reprobuild: the log was cut after 1000000 bytes; 2000001 more were dropped]\n"
    )


@needs_python
def test_memory_beyond_the_limit_ends_the_build(anyone: Who) -> None:
    if not any("memory" in h.controllers for h in cgroup.discover()):
        pytest.skip("no memory control group can be made here")
    eat = "b = bytearray(300 << 20); b[::4096] = b'x' * len(b[::4096]); print(len(b))"
    hints = Hints(memory=2**24)
    small = anyone.run(("/usr/bin/python3", "-c", eat), hints=hints, least_memory=2**26)
    assert small.outcome.reason == "memory"
    assert "stopped: needed more than 67108864 bytes of memory" in small.log
    large = anyone.run(("/usr/bin/python3", "-c", eat), hints=hints, least_memory=2**30)
    assert large.outcome.reason == "", large.log
    assert large.outcome.peak_memory >= 300 << 20
    assert "memory" not in large.outcome.unenforced


@needs_python
def test_processes_beyond_the_limit_are_refused(anyone: Who) -> None:
    if not any("pids" in h.controllers for h in cgroup.discover()):
        pytest.skip("no process control group can be made here")
    fork = (
        "import os, time\n"
        "n = 0\n"
        "try:\n"
        "    while n < 200:\n"
        "        if os.fork() == 0: time.sleep(100)\n"
        "        n += 1\n"
        "except BlockingIOError: print('refused after', n)\n"
    )
    ran = anyone.run(("/usr/bin/python3", "-c", fork), processes=50)
    assert ran.log.startswith("refused after 4"), ran.log
    assert "processes" not in ran.outcome.unenforced


def test_what_cannot_be_enforced_is_said(anyone: Who, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "discover", list)
    assert anyone.run("true").outcome.unenforced == ("memory", "processes")


@pytest.mark.parametrize("grade", [Isolation.FULL, Isolation.NONE])
def test_a_wish_to_stop_is_met(anyone: Who, grade: Isolation) -> None:
    cancel = threading.Event()
    mark = f"7{os.getpid()}.25"
    timer = threading.Timer(0.3, cancel.set)
    timer.start()
    ran = anyone.run(f"sleep {mark}; sleep {mark}", cancel=cancel, grade=grade)
    assert ran.outcome.reason == "interrupted"
    assert ran.log == "[reprobuild: stopped: interrupted]\n"
    assert not _running(mark)


def test_a_log_that_cannot_be_written_ends_the_build(anyone: Who) -> None:
    mark = f"8{os.getpid()}.25"

    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        anyone.run(f"echo hello; sleep {mark}", log=Full())
    assert not _running(mark)
    assert not list(anyone.home.glob("work-*"))


def test_groups_are_removed(anyone: Who) -> None:
    hierarchies = cgroup.discover()
    if not hierarchies:
        pytest.skip("no control group can be made here")
    anyone.run("true")
    for hierarchy in hierarchies:
        assert not list(hierarchy.parent.glob(f"reprobuild-{os.getpid()}-*"))


def test_two_builds_at_once_have_two_user_ids(tmp_path: Path) -> None:
    with identity("root", tmp_path) as who:
        seen: dict[int, object] = {}

        def build(number: int) -> None:
            ran = who.run("sleep 0.3", after=lambda work: (work / "out").stat().st_uid)
            seen[number] = ran.seen

        threads = [threading.Thread(target=build, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(seen.values())) == 3
        assert 0 not in seen.values()


def test_whatever_a_build_leaves_is_removed(who: Who) -> None:
    victim = who.home / "victim"
    victim.mkdir()
    (victim / "file").write_text("stays")
    who.give(victim)
    leave = (
        "mkdir -p /build/shut/inner; touch /build/shut/inner/f; chmod 0 /build/shut/inner;"
        f"chmod 0 /build/shut; ln -s {victim} /build/link; mkfifo /build/pipe;"
        "cd /build; i=0; while [ $i -lt 300 ]; do mkdir dddddddddddddddddddd;"
        " cd dddddddddddddddddddd; i=$((i+1)); done; touch end; chmod 500 .; mkdir -p /out/out;"
        "chmod 0 /out/out"
    )
    ran = who.run(leave)
    assert ran.outcome.reason == "", ran.log
    assert set(ran.outcome.outputs) == {"out"}
    assert (victim / "file").read_text() == "stays"


def test_removal_has_no_depth_limit_and_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(outside)
    (top / ".removing-0").mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.symlink(outside, "link", dir_fd=below)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(top)
    assert not top.exists()
    assert (outside / "file").exists()
    remove_tree(top)  # what is not there is no error


def test_inputs_may_be_files_and_stand_anywhere(who: Who) -> None:
    data = who.home / "data"
    data.mkdir()
    (data / "one").write_text("1")
    who.give(data)
    places = ("/build/in", "/usr/local/new/deep", "/opt/x", "/tmp/t", "/etc/extra/d")
    mounts = (*(Mount(at, data) for at in places), Mount("/file", data / "one"))
    ran = who.run(
        "cat " + " ".join(f"{at}/one" for at in places) + " /file; ls /usr/bin/env /etc/passwd",
        mounts=mounts,
    )
    assert ran.outcome.reason == "", ran.log
    assert ran.log == "111111/etc/passwd\n/usr/bin/env\n"


def test_time_is_taken_in_milliseconds(anyone: Who) -> None:
    begin = time.monotonic()
    ran = anyone.run("sleep 0.2")
    whole = (time.monotonic() - begin) * 1000
    assert 200 <= ran.outcome.duration_ms <= whole + 1
