"""The process that starts sandboxes: what it hands on, and what is left when either side dies."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reprobuild.adapters.sandbox.cgroup import Group, discover
from reprobuild.adapters.sandbox.identity import UidPool
from reprobuild.adapters.sandbox.slots import Slots
from reprobuild.adapters.sandbox.starter import Starter, StarterGoneError
from sandboxkit import Who, identity, needs_bubblewrap

LIMITS = {resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_NOFILE: (100, 200)}
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root")


def output(starter: Starter, script: str, *inherited: int) -> tuple[int, str]:
    """The status of a shell script and what it printed."""
    read, write = os.pipe()
    words = b"".join(w.encode() + b"\0" for w in ("/bin/sh", "-c", script))
    child = starter.start(words, write, inherited)
    os.close(write)
    with os.fdopen(read) as log:
        text = log.read()
    return child.wait(), text


def test_it_starts_one_command_after_another() -> None:
    starter = Starter(None, LIMITS)
    try:
        for number in range(3):
            status, text = output(starter, f"ulimit -n; umask; pwd; exit {number}")
            assert (status, text) == (number, "100\n0022\n/\n")
        assert output(starter, "kill -TERM $$")[0] == -signal.SIGTERM
    finally:
        starter.close()
    assert not Path(f"/proc/{starter.pid}").exists()


def test_a_command_inherits_what_it_is_given_and_nothing_else() -> None:
    starter = Starter(None, LIMITS)
    read, write = os.pipe()
    try:
        _, text = output(starter, "ls /proc/self/fd", write, read)
    finally:
        starter.close()
        os.close(read)
        os.close(write)
    # 3 is the directory that ls reads
    assert sorted(map(int, text.split())) == [0, 1, 2, 3, 20, 21]


def test_a_program_that_is_not_there() -> None:
    starter = Starter(None, LIMITS)
    try:
        with pytest.raises(FileNotFoundError):
            starter.start(b"/nowhere\0", 1, ())
        assert output(starter, "echo still")[1] == "still\n"
    finally:
        starter.close()


def test_a_starter_that_was_killed_says_so() -> None:
    starter = Starter(None, LIMITS)
    try:
        child = starter.start(b"/bin/sleep\0" + b"600\0", 2, ())
        os.kill(starter.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert starter.gone
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(StarterGoneError):
            starter.start(b"/bin/true\0", 2, ())
    finally:
        starter.close()


PROGRAM = """
import os, sys
from reprobuild.adapters.sandbox.starter import Starter
starter = Starter(None, {})
child = starter.start(b"/bin/sleep\\0" + b"600\\0", 2, ())
print(starter.pid, child.pid, flush=True)
sys.stdin.read()
"""


def test_when_we_are_killed_it_ends_with_what_it_started() -> None:
    ours = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert ours.stdout is not None
    pids = list(map(int, ours.stdout.readline().split()))
    assert len(pids) == 2
    ours.kill()
    ours.communicate()
    end = time.monotonic() + 20
    while any(_runs(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@needs_root
def test_it_gives_up_root_for_good() -> None:
    starter = Starter(62_400, LIMITS)
    try:
        _, text = output(starter, "id -u; id -g; id -G; grep Cap /proc/self/status")
    finally:
        starter.close()
    uid, gid, groups, *capabilities = text.splitlines()
    assert (uid, gid, groups) == ("62400", "62400", "62400")
    assert {line.split()[1] for line in capabilities if "Bnd" not in line} == {"0" * 16}


def test_slots_are_used_again_one_for_each_build_at_a_time() -> None:
    slots = Slots(None, (), 100)
    with slots.take(2**30, 2**30) as first, slots.take(2**30, 2**30) as second:
        assert first.starter.pid != second.starter.pid
        pids = {first.starter.pid, second.starter.pid}
    with slots.take(2**30, 2**30) as again:
        assert again.starter.pid in pids
    with slots.take(2**29, 2**30) as smaller:  # a hard limit cannot be raised again
        assert smaller.starter.pid not in pids
    slots.close()
    assert not any(_runs(pid) for pid in pids)


def test_a_slot_whose_starter_died_is_not_used_again() -> None:
    slots = Slots(None, (), 100)
    with slots.take(2**30, 2**30) as slot:
        dead = slot.starter.pid
        os.kill(dead, signal.SIGKILL)
        with pytest.raises(StarterGoneError):
            slot.starter.start(b"/bin/true\0", 2, ())
    with slots.take(2**30, 2**30) as other:
        assert other.starter.pid != dead
    slots.close()


@needs_root
def test_a_user_id_is_held_as_long_as_its_slot(tmp_path: Path) -> None:
    pool = UidPool(tmp_path / "uids", 62_450, 2)
    slots = Slots(pool, (), 100)
    with slots.take(2**30, 2**30) as slot:
        assert slot.user is not None
        with pool.acquire() as other:
            assert other != slot.user
    with pool.acquire() as other:
        assert other != slot.user
    slots.close()
    with pool.acquire() as other:
        assert other == slot.user


def memory_group() -> Group:
    """A group that limits memory, with nobody in it."""
    group = Group.make(discover(), 2**30, 100)
    if "memory" not in group.held:
        group.remove()
        pytest.skip("no control group for memory can be made here")
    return group


@needs_root
def test_the_next_build_in_a_group_is_counted_from_nothing() -> None:
    group = memory_group()
    try:
        starter = Starter(None, {})
        group.add(starter.pid)
        hungry = "x=$(head -c 20000000 /dev/zero | tr '\\0' a); : ${#x}"
        assert output(starter, hungry)[0] == 0
        much = group.peak_memory()
        if not group.renew(2**30):
            pytest.skip("this kernel cannot forget a group's highest use")
        assert output(starter, ":")[0] == 0
        assert group.peak_memory() < much // 2
        starter.close()
    finally:
        group.remove()


@needs_root
def test_a_kill_for_memory_is_the_build_s_that_had_it(tmp_path: Path) -> None:
    group = memory_group()
    try:
        starter = Starter(None, {})
        group.add(starter.pid)
        if not group.renew(16 * 2**20):
            pytest.skip("this kernel cannot forget a group's highest use")
        hungry = "x=$(head -c 100000000 /dev/zero | tr '\\0' a); : ${#x}"
        assert output(starter, hungry)[0] != 0
        assert group.out_of_memory()
        if not starter.gone and group.renew(2**30):
            assert not group.out_of_memory()
        starter.close()
    finally:
        group.remove()


@needs_bubblewrap
@pytest.mark.parametrize("name", ["root", "ordinary"])
def test_builds_of_one_executor_share_a_starter(name: str, tmp_path: Path) -> None:
    with identity(name, tmp_path) as who:
        seen = who.do(lambda: _two_builds(who))
        assert seen[0] == seen[1]


def _two_builds(who: Who) -> tuple[int, int]:
    executor = who.executor()
    ready = executor._prepare()
    if ready.slots is None:
        return 0, 0
    pids = []
    for _ in range(2):
        with ready.slots.take(2**30, 2**32) as slot:
            pids.append(slot.starter.pid)
    executor.close()
    return pids[0], pids[1]
