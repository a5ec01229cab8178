"""The process that starts sandboxes: what it hands on, and what is left when either side dies."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reprobuild.adapters.sandbox.cgroup import Group, discover
from reprobuild.adapters.sandbox.identity import UidPool
from reprobuild.adapters.sandbox.slots import Slots
from reprobuild.adapters.sandbox.spawned import number_after
from reprobuild.adapters.sandbox.starter import Child, Starter, StarterGoneError
from reprobuild.errors import ReprobuildError
from sandboxkit import Who, identity, needs_bubblewrap

LIMITS = {resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_NOFILE: (100, 200)}
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root")


def begin(starter: Starter, *words: str, arguments: bytes = b"") -> Child:
    """A command that runs."""
    return Child(starter, b"".join(w.encode() + b"\0" for w in words), arguments)


def output(starter: Starter, script: str, *, arguments: bytes = b"") -> tuple[int | None, str]:
    """The status of a shell script and what it printed."""
    child = begin(starter, "/bin/sh", "-c", script, arguments=arguments)
    with os.fdopen(os.dup(child.log)) as log:
        text = log.read()
    child.end()
    return child.returncode, text


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
    try:
        for arguments, more in ((b"", []), (b"words", [22])):
            _, text = output(starter, "ls /proc/self/fd", arguments=arguments)
            # 3 is the directory that ls reads
            assert sorted(map(int, text.split())) == [0, 1, 2, 3, 20, 21, *more]
    finally:
        starter.close()


def test_every_command_finds_filter_and_arguments_at_their_beginning() -> None:
    starter = Starter(None, LIMITS, b"the filter")
    reads = "import os; os.write(1, os.read(20, 99) + b'|' + os.read(22, 10**6))"
    try:
        for arguments in (b"first", b"x" * 60_000):
            child = begin(starter, sys.executable, "-S", "-c", reads, arguments=arguments)
            with os.fdopen(os.dup(child.log), "rb") as log:
                assert log.read() == b"the filter|" + arguments
            child.end()
    finally:
        starter.close()


def test_words_that_are_too_long_for_a_message() -> None:
    starter = Starter(None, LIMITS)
    try:
        for size in (10, 65_520, 65_530, 65_540, 100_000):
            child = begin(starter, "/bin/sh", "-c", "echo ${#1}", "sh", "x" * size)
            with os.fdopen(os.dup(child.log)) as log:
                assert log.read() == f"{size}\n"
            child.end()
    finally:
        starter.close()


def test_a_program_that_is_not_there() -> None:
    starter = Starter(None, LIMITS)
    try:
        child = begin(starter, "/nowhere")
        with pytest.raises(ReprobuildError, match="/nowhere cannot be started") as raised:
            child.settle()
        assert raised.value.code == "E-SANDBOX-SETUP"
        child.end()
        assert output(starter, "echo still")[1] == "still\n"
    finally:
        starter.close()


def test_directories_are_made_first(tmp_path: Path) -> None:
    starter = Starter(None, LIMITS)
    old = os.umask(0o077)
    try:
        top = tmp_path / "a b"
        inside = [(0o755, f"{top}"), (0o1777, f"{top}/tmp"), (0o755, f"{top}/tmp/\n x")]
        child = Child(starter, b"/bin/sh\0-c\0test -d /\0", directories=inside)
        child.settle()
        assert child.returncode == 0
        assert [Path(path).stat().st_mode & 0o7777 for _, path in inside] == [m for m, _ in inside]
        child.end()
        child = Child(starter, b"/bin/true\0", directories=inside)
        with pytest.raises(ReprobuildError, match="no place to work in: File exists"):
            child.settle()
        child.end()
        assert output(starter, "echo still") == (0, "still\n")
    finally:
        os.umask(old)
        starter.close()


def test_a_command_is_ended_with_all_that_it_started() -> None:
    starter = Starter(None, LIMITS)
    try:
        child = begin(starter, "/bin/sh", "-c", "sleep 600 & echo $!; sleep 600")
        pid = int(os.read(child.log, 100))
        assert child.alive()
        child.kill()
        child.settle()
        assert child.returncode == -signal.SIGKILL
        assert not Path(f"/proc/{pid}").exists()
        child.kill()  # it is over already: no word of that may reach the next one
        child.end()
        assert output(starter, "echo still") == (0, "still\n")
    finally:
        starter.close()


def test_what_a_command_leaves_behind_is_over_with_it() -> None:
    starter = Starter(None, LIMITS)
    try:
        for script in ("sleep 600 & echo $!", "(sleep 600 & echo $!)"):
            child = begin(starter, "/bin/sh", "-c", script)
            pid = int(os.read(child.log, 100))
            child.settle()
            assert child.returncode == 0
            assert not Path(f"/proc/{pid}").exists()
            child.end()
    finally:
        starter.close()


def test_process_1_is_ended_when_bubblewrap_is_over() -> None:
    """Played by a process of another session, which no process group ends."""
    starter = Starter(None, LIMITS)
    script = (
        "exec 9>/proc/self/fd/21; setsid sleep 600 9>&- & "
        'printf \'{ "child-pid": %d, "net-namespace": 1 }\\n{ "exit-code": 7 }\\n\' $! >&9; '
        "echo $!"
    )
    try:
        child = begin(starter, "/bin/sh", "-c", script)
        pid = int(os.read(child.log, 100))
        child.settle()
        assert (child.returncode, child.exit_code()) == (0, 7)
        assert not Path(f"/proc/{pid}").exists()
        child.end()
    finally:
        starter.close()


def test_a_number_that_is_no_child_s_is_left_alone() -> None:
    starter = Starter(None, LIMITS)
    other = subprocess.Popen(["sleep", "600"])
    try:
        report = f'{{ "child-pid": {other.pid} }}'
        assert output(starter, f"echo '{report}' >/proc/self/fd/21") == (0, "")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        starter.close()


@pytest.mark.parametrize(
    ("report", "number"),
    [
        (b'{ "child-pid": 12, "x": 3 }\n{ "exit-code": 0 }\n', 0),
        (b'{ "child-pid": 12 }\n{"exit-code":137}', 137),
        (b'{ "child-pid": 12 }\n', -1),
        (b'{ "exit-code": "7" }', -1),
        (b"", -1),
    ],
)
def test_a_report_is_read(report: bytes, number: int) -> None:
    assert number_after(report, b"exit-code") == number


def test_a_starter_that_was_killed_says_so() -> None:
    starter = Starter(None, LIMITS)
    told: list[str] = []
    try:
        words = b"/bin/sleep\0" + b"600\0"
        child = Child(starter, words, orphaned=lambda: _end_orphan(told))
        _told_child(starter, told)
        os.kill(starter.pid, signal.SIGKILL)
        child.settle()
        assert child.returncode == -signal.SIGKILL
        assert starter.gone
        assert told[1:] == ["ended"]
        child.end()
        with pytest.raises(StarterGoneError):
            begin(starter, "/bin/true")
    finally:
        starter.close()


def _follow(child: Child) -> float:
    """Has a command ended, as `supervise` does; seconds until it was."""
    begun = time.monotonic()
    child.kill()
    poll = select.poll()
    poll.register(*child.signs())
    while child.alive():
        for sign, _ in poll.poll(100):
            child.heed(sign)
        assert time.monotonic() - begun < 30, "it goes on"
    return time.monotonic() - begun


def test_a_starter_that_was_stopped_is_woken_to_end_a_command() -> None:
    starter = Starter(None, LIMITS)
    try:
        child = begin(starter, "/bin/sleep", "600")
        os.kill(starter.pid, signal.SIGSTOP)
        _follow(child)
        assert (child.returncode, starter.gone) == (-signal.SIGKILL, False)
        child.end()
        assert output(starter, "echo next") == (0, "next\n")
    finally:
        starter.close()


@pytest.mark.parametrize("wait", ["follow", "end"])
def test_a_starter_that_stays_stopped_is_killed(wait: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that a debugger holds."""
    starter = Starter(None, LIMITS)
    told: list[str] = []
    try:
        child = Child(starter, b"/bin/sleep\x00600\x00", orphaned=lambda: _end_orphan(told))
        _told_child(starter, told)
        monkeypatch.setattr(starter, "wake", lambda: None)
        os.kill(starter.pid, signal.SIGSTOP)
        if wait == "follow":
            _follow(child)
        child.end()
        assert (child.returncode, starter.gone) == (-signal.SIGKILL, True)
        assert told[1:] == ["ended"]
    finally:
        starter.close()
    assert not _runs(starter.pid)


def test_one_that_is_stopped_before_it_is_ready_is_woken() -> None:
    starter = Starter(None, LIMITS, wait=False)
    try:
        os.kill(starter.pid, signal.SIGSTOP)
        starter.await_ready()
        assert output(starter, "echo here") == (0, "here\n")
    finally:
        starter.close()


def test_one_that_is_stopped_between_builds_is_closed_at_once() -> None:
    starter = Starter(None, LIMITS)
    os.kill(starter.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, starter.pid, os.WSTOPPED | os.WNOWAIT)
    starter.close()
    assert starter._process.returncode == 0  # by itself


def _told_child(starter: Starter, told: list[str]) -> None:
    """Notes the number of what runs."""
    children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.01)
    told.append(found[0])


def _end_orphan(told: list[str]) -> None:
    os.kill(int(told[0]), signal.SIGKILL)
    told.append("ended")


PROGRAM = """
import os, sys
from pathlib import Path
from reprobuild.adapters.sandbox.starter import Child, Starter
starter = Starter(None, {})
child = Child(starter, b"/bin/sh\\0-c\\0echo $$; exec sleep 600\\0")
print(starter.pid, int(os.read(child.log, 100)), flush=True)
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
        os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
        with pytest.raises(StarterGoneError):
            begin(slot.starter, "/bin/true")
    with slots.take(2**30, 2**30) as other:
        assert other.starter.pid != dead
    slots.close()


def test_what_is_expected_is_started_before_it_is_taken() -> None:
    slots = Slots(None, (), 100)
    before = _children()
    slots.expect([2**30, 2**29])
    started = _children() - before
    assert len(started) == 2
    with slots.take(2**30, 2**30) as first, slots.take(2**29, 2**30) as second:
        assert {first.starter.pid, second.starter.pid} == started
        assert str(2**30) in output(first.starter, "grep 'file size' /proc/self/limits")[1]
        assert str(2**29) in output(second.starter, "grep 'file size' /proc/self/limits")[1]
    slots.close()
    assert not any(_runs(pid) for pid in started)


def test_what_was_expected_in_vain_ends_with_the_rest() -> None:
    slots = Slots(None, (), 100)
    before = _children()
    slots.expect([2**30] * 2)
    started = _children() - before
    slots.close()
    assert len(started) == 2
    assert not any(_runs(pid) for pid in started)


def test_one_that_dies_before_it_is_taken_is_no_place() -> None:
    slots = Slots(None, (), 100)
    before = _children()
    slots.expect([2**30])
    (dead,) = _children() - before
    os.kill(dead, signal.SIGKILL)
    with slots.take(2**30, 2**30) as other:
        assert other.starter.pid != dead
    slots.close()


def _children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


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
