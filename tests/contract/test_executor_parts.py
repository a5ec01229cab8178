"""The executor's parts that can be looked at without a sandbox."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reprobuild.adapters.sandbox import cgroup, command, etc, probe, seccomp
from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
from reprobuild.adapters.sandbox.identity import UidPool
from reprobuild.adapters.sandbox.rootfs import Bind, Folder, Link, arrange
from reprobuild.adapters.sandbox.staging import stage_for
from reprobuild.adapters.sandbox.usage import disk_usage
from reprobuild.adapters.sandbox.verdict import memory_limit
from reprobuild.core.derivation import Hints, Isolation
from reprobuild.core.sandboxenv import SANDBOX_VERSION, base_environment
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Mount
from sandboxkit import identity

# What a build can see, for each version of the sandbox. A new digest needs a new version:
# records of the old one must not be found any more.
SEEN = {"sandbox/1": "1889d861901479817e4db144b2e8fdf70db61380bc429f94fffacbe5dc1fd457"}


def test_what_a_build_can_see_moves_only_with_the_version() -> None:
    words = command.options(
        [Bind("/r/usr", "/usr"), Link("usr/bin", "/bin"), Folder("/x"), Bind("/s", "/build/s")],
        command.Work("/w/build", "/w/out", "/w/tmp"),
        base_environment(),
        "/build",
        command.Descriptors(3, 4, 5),
    )
    files = {name: content.decode() for name, content in etc.FILES.items()}
    seen = [words, files, sorted(etc.HIDDEN), seccomp.program().hex()]
    digest = hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()
    assert {SANDBOX_VERSION: digest} == SEEN


def test_the_call_is_closed() -> None:
    words = command.options(
        [], command.Work("/b", "/o", "/t"), {"A": "1"}, "/build", command.Descriptors(9)
    )
    for needed in [
        "--unshare-all",
        "--unshare-user",
        "--cap-drop",
        "--disable-userns",
        "--die-with-parent",
        "--clearenv",
        "--new-session",
        "--seccomp",
    ]:
        assert needed in words
    assert words[words.index("--uid") + 1] == "0"
    assert words.index("--clearenv") < words.index("--setenv")
    last_mount = max(i for i, word in enumerate(words) if word == "--bind")
    assert words[words.index("--remount-ro", last_mount) + 1] == "/"
    assert "--new-session" not in command.options(
        [], command.Work("/b", "/o", "/t"), {}, "/build", command.Descriptors(9), terminal=True
    )


def test_constant_files_are_written_whole_and_mended(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        where = etc.place(tmp_path / "etc")
    finally:
        os.umask(before)
    assert {p.name: p.read_bytes() for p in where.iterdir()} == dict(etc.FILES)
    for path in where.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o444
        assert path.stat().st_mtime == 1
    assert stat.S_IMODE(where.stat().st_mode) == 0o755
    (where / "passwd").unlink()
    (where / "passwd").write_text("something else")
    etc.place(where)
    assert (where / "passwd").read_bytes() == etc.FILES["passwd"]


def test_a_directory_is_taken_apart_only_where_it_must(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib/there").mkdir(parents=True)
    (root / "usr/bin").mkdir()
    (root / "usr/file").touch()
    (root / "bin").symlink_to("usr/bin")
    constants = tmp_path / "etc"

    def placed(*ats: str) -> list[tuple[str, str]]:
        mounts = (Mount("/", root), *(Mount(at, tmp_path) for at in ats))
        return [(type(p).__name__, p.at) for p in arrange(mounts, constants)]

    whole = [("Link", "/bin"), ("Bind", "/usr"), ("Bind", "/etc")]
    assert placed() == whole
    assert placed("/usr/lib/there") == [*whole, ("Bind", "/usr/lib/there")]
    assert placed("/usr/lib/new") == [
        ("Link", "/bin"),
        ("Folder", "/usr"),
        ("Bind", "/usr/bin"),
        ("Bind", "/usr/file"),
        ("Folder", "/usr/lib"),
        ("Bind", "/usr/lib/there"),
        ("Bind", "/etc"),
        ("Bind", "/usr/lib/new"),
    ]
    with pytest.raises(ReprobuildError, match="/bin is a symbolic link to usr/bin"):
        placed("/bin/x")


def test_only_what_cannot_be_reached_is_staged(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with identity("root", tmp_path) as who:
        shut = who.home / "shut"
        shut.mkdir(mode=0o700)
        (shut / "store").mkdir()
        stage = stage_for([Path("/usr"), shut / "store", shut / "work"])
        assert list(stage.places) == [str(shut / "store"), str(shut / "work")]
        assert stage.rebase([Bind(str(shut / "store/a"), "/a"), Bind("/usr", "/usr")]) == [
            Bind("/tmp/0/a", "/a"),
            Bind("/usr", "/usr"),
        ]
        assert stage.path(str(shut / "work/out")) == "/tmp/1/out"
        assert not stage_for([Path("/usr"), Path("/var")])


def test_no_two_holders_share_a_user_id_whatever_process_they_are_in(tmp_path: Path) -> None:
    first = UidPool(tmp_path / "uids", 70_000, 2)
    second = UidPool(tmp_path / "uids", 70_000, 2)
    script = (
        "import sys; from pathlib import Path\n"
        "from reprobuild.adapters.sandbox.identity import UidPool\n"
        "with UidPool(Path(sys.argv[1]), 70_000, 2).acquire() as uid: print(uid)\n"
    )
    other = [sys.executable, "-c", script, str(tmp_path / "uids")]
    with first.acquire() as one:
        assert one == 70_000
        done = subprocess.run(other, capture_output=True, text=True, check=True)
        assert done.stdout == "70001\n"
        with second.acquire() as two:
            assert two == 70_001
            with pytest.raises(ReprobuildError, match="no free user id") as caught:
                first.acquire().__enter__()
            assert caught.value.code == "E-SANDBOX-SETUP"
            lost = subprocess.run(other, capture_output=True, text=True, check=False)
            assert "no free user id" in lost.stderr
    with second.acquire() as again:
        assert again == 70_000


def test_named_user_ids_are_passed_over(tmp_path: Path) -> None:
    with UidPool(tmp_path, 65_534, 2).acquire() as uid:  # nobody
        assert uid == 65_535


# -- the probe -----------------------------------------------------------------------------


def _failing_bwrap(tmp_path: Path, message: str) -> str:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho '{message}' >&2\nexit 1\n")
    program.chmod(0o755)
    return str(program)


def test_without_bubblewrap(tmp_path: Path) -> None:
    executor = BubblewrapExecutor(Isolation.FULL, tmp_path, str(tmp_path / "none"))
    with pytest.raises(ReprobuildError) as caught:
        executor.probe()
    assert caught.value.code == "E-SANDBOX-UNAVAILABLE"
    assert caught.value.exit_status == 10
    assert "apt-get install bubblewrap" in caught.value.hint


def test_what_was_started_for_builds_ends_where_there_is_no_sandbox(tmp_path: Path) -> None:
    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    before = children()
    executor = BubblewrapExecutor(Isolation.FULL, tmp_path, _failing_bwrap(tmp_path, "no"))
    with pytest.raises(ReprobuildError) as caught:  # and with it all that it saw, uncollected
        executor.probe([Hints(), Hints()])
    assert caught.value.code == "E-SANDBOX-UNAVAILABLE"
    assert children() <= before


def test_without_a_sandbox_no_bubblewrap_is_needed(tmp_path: Path) -> None:
    executor = BubblewrapExecutor(Isolation.NONE, tmp_path, str(tmp_path / "none"))
    assert executor.probe() is Isolation.NONE


@pytest.mark.parametrize(
    ("knob", "value", "says", "way_out"),
    [
        ("user/max_user_namespaces", "0", "switched off", "user.max_user_namespaces=15000"),
        (
            "kernel/unprivileged_userns_clone",
            "0",
            "ordinary users",
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "AppArmor",
            "bwrap-userns-restrict",
        ),
    ],
)
def test_the_cause_is_named(tmp_path: Path, knob: str, value: str, says: str, way_out: str) -> None:
    bwrap = _failing_bwrap(tmp_path, "bwrap: No permissions to create new namespace")
    sysctl = tmp_path / "sys" / knob
    sysctl.parent.mkdir(parents=True)
    sysctl.write_text(value + "\n")
    with pytest.raises(ReprobuildError) as caught:
        probe.check(bwrap, None, tmp_path / "sys")
    error = caught.value
    assert error.code == "E-SANDBOX-UNAVAILABLE"
    assert says in error.message
    assert way_out in error.hint
    assert "--isolation none" in error.hint
    assert error.facts["bubblewrap"] == "bwrap: No permissions to create new namespace"


@pytest.mark.parametrize(
    ("message", "way_out"),
    [
        ("bwrap: Unknown option --disable-userns", "0.8 or newer"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths"),
        ("bwrap: No permissions to create new namespace", "seccomp=unconfined"),
    ],
)
def test_other_failures_say_what_bubblewrap_said(
    tmp_path: Path, message: str, way_out: str
) -> None:
    bwrap = _failing_bwrap(tmp_path, message.replace("'", "'\\''"))
    with pytest.raises(ReprobuildError) as caught:
        probe.check(bwrap, None, tmp_path / "sys")
    assert message in caught.value.message
    assert way_out in caught.value.hint


def test_the_probe_is_made_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(f"#!/bin/sh\necho x >> {count}\n")
    bwrap.chmod(0o755)
    count.touch()
    count.chmod(0o666)
    with identity("root" if os.geteuid() == 0 else "ordinary", tmp_path) as who:
        bwrap = bwrap.rename(who.home / "bwrap")
        count_inside = who.home / "count"
        count_inside.touch()
        count_inside.chmod(0o666)
        bwrap.write_text(f"#!/bin/sh\necho x >> {count_inside}\n")
        executor = BubblewrapExecutor(Isolation.FULL, who.home / "run", str(bwrap))
        threads = [threading.Thread(target=executor.probe) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert count_inside.read_text() == "x\n"


# -- control groups ------------------------------------------------------------------------


def _process(tmp_path: Path, cgroups: str, mounts: str) -> Path:
    process = tmp_path / "process"
    process.mkdir()
    (process / "cgroup").write_text(cgroups)
    (process / "mountinfo").write_text(mounts)
    return process


def test_version_1_hierarchies_are_found_inside_a_container(tmp_path: Path) -> None:
    own = tmp_path / "memory" / "job"
    own.mkdir(parents=True)
    process = _process(
        tmp_path,
        "4:memory:/docker/abc/job\n3:cpu,cpuacct:/docker/abc\n0::/\n",
        f"30 25 0:26 /docker/abc {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
        f"31 25 0:27 / {tmp_path}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
    )
    assert cgroup.discover(process) == [cgroup.Hierarchy(own, False, frozenset({"memory"}))]


def test_version_2_goes_to_a_parent_that_hands_the_controllers_down(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        # Root may write everywhere, so the group itself is tried first; it has no controllers.
        pass
    top = tmp_path / "unified"
    own = top / "app.slice" / "run.scope"
    own.mkdir(parents=True)
    for directory, below in ((top, "cpu memory pids"), (own.parent, "memory pids"), (own, "")):
        (directory / "cgroup.controllers").write_text("cpu memory pids\n" if below else "\n")
        (directory / "cgroup.subtree_control").write_text(below + "\n")
    process = _process(
        tmp_path,
        "0::/app.slice/run.scope\n",
        f"30 25 0:26 / {top} rw - cgroup2 cgroup2 rw,nsdelegate\n",
    )
    # Writing "+memory" to an ordinary file replaces it; the kernel would add to it.
    (own.parent / "cgroup.controllers").write_text("\n")
    found = cgroup.discover(process)
    expected = frozenset({"memory", "pids"})
    assert found == [cgroup.Hierarchy(own.parent, True, expected)]
    group = cgroup.Group.make(found, 1000, 20)
    assert group.held == expected
    made = next(own.parent.glob("reprobuild-*"))
    assert (made / "memory.max").read_text() == "1000"
    assert (made / "pids.max").read_text() == "20"
    group.add(4711)
    assert (made / "cgroup.procs").read_text() == "4711"
    (made / "memory.peak").write_text("999\n")
    (made / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    assert group.peak_memory() == 999
    assert not group.out_of_memory()
    (made / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert group.out_of_memory()


def test_a_host_without_control_groups(tmp_path: Path) -> None:
    assert cgroup.discover(tmp_path) == []
    group = cgroup.Group.make([], 1, 1)
    group.add(1)
    assert group.held == frozenset()
    assert (group.peak_memory(), group.out_of_memory()) == (0, False)
    group.remove()


def test_groups_of_dead_processes_are_swept_and_no_others(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f"reprobuild-{dead.pid}-0", f"reprobuild-{os.getpid()}-0", "reprobuild-x", "y"):
        (tmp_path / name).mkdir()
    cgroup.sweep([cgroup.Hierarchy(tmp_path, False, frozenset({"memory"}))])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f"reprobuild-{os.getpid()}-0", "reprobuild-x", "y"}


# -- small things --------------------------------------------------------------------------


def test_disk_usage_counts_blocks_and_entries_and_follows_no_link(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.mkdir()
    (big / "data").write_bytes(b"x" * 2**20)
    here = tmp_path / "here"
    (here / "d").mkdir(parents=True)
    (here / "link").symlink_to(big)
    for number in range(100):
        (here / "d" / str(number)).touch()
    small = disk_usage([here], 2**40)
    assert 102 * 1024 <= small < 2**20
    assert disk_usage([here, big], 2**40) >= small + 2**20
    assert disk_usage([tmp_path / "none"], 1) == 0


def test_the_memory_limit_is_far_above_the_estimate() -> None:
    assert memory_limit(Hints(memory=2**20)) == 4 * 2**30
    assert memory_limit(Hints(memory=9 * 2**30)) == 36 * 2**30
