"""A build that tries to get out, to reach in, or to leave something dangerous behind."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.sandbox.cgroup import Group, discover
from reprobuild.core.derivation import Isolation
from reprobuild.ports import Mount
from sandboxkit import IDENTITIES, Ran, Who, identity, needs_bubblewrap, needs_python

pytestmark = [needs_bubblewrap, needs_python]

ATTACKS = Path(__file__).with_name("sandbox_attacks.py")

REFUSED = {
    "tcp-host-loopback": "ECONNREFUSED",
    "tcp-outside": "ENETUNREACH",
    "abstract-socket": "ECONNREFUSED",
    "dns": "refused",
    "socket-netlink": "EAFNOSUPPORT",
    "socket-packet": "EAFNOSUPPORT",
    "socket-alg": "EAFNOSUPPORT",
    "socket-vsock": "EAFNOSUPPORT",
    "read-secret": "ENOENT",
    "read-shadow": "ENOENT",
    "list-home": "ENOENT",
    "kill-outside": "ESRCH",
    "ptrace-outside": "ESRCH",
    "write-input": "EROFS",
    "chmod-input": "EROFS",
    "unlink-input": "EROFS",
    "write-root": "EROFS",
    "write-etc": "EROFS",
    "write-dev": "EROFS",
    "remount-/inputs/data": "EPERM",
    "remount-/proc/sys": "EPERM",
    "remount-/": "EPERM",
    "umount-input": "EPERM",
    "sysctl-kernel/core_pattern": "EROFS",
    "sysctl-kernel/hostname": "EROFS",
    "sysctl-net/ipv4/ip_forward": "EROFS",
    "sysctl-vm/drop_caches": "EROFS",
    "sethostname": "EPERM",
    "chmod": "EPERM",
    "chmod-sgid-dir": "EPERM",
    "fchmod": "EPERM",
    "fchmodat": "EPERM",
    "fchmodat2": "EPERM",
    "open-setuid": "EPERM",
    "openat-setuid": "EPERM",
    "tmpfile-setuid": "EPERM",
    "creat-setuid": "EPERM",
    "openat2": "ENOSYS",
    "mknod-device": "EPERM",
    "mknodat-block": "EPERM",
    "mknod-setuid": "EPERM",
    "setxattr": "ENOTSUP",
    "unshare-user": "EPERM",
    "unshare-mount": "EPERM",
    "setns": "EPERM",
    "clone-user": "EPERM",
    "clone3": "ENOSYS",
    "keyctl": "ENOSYS",
    "add_key": "ENOSYS",
    "request_key": "ENOSYS",
    "bpf": "ENOSYS",
    "io_uring_setup": "ENOSYS",
    "perf_event_open": "ENOSYS",
    "userfaultfd": "ENOSYS",
    "x32": "ENOSYS",
    "setuid": "EINVAL",
    "chroot": "EPERM",
    "tiocsti": "EPERM",
    "i386": "SIGSYS",
    "tty": "none",
}
ALLOWED = {"socketpair-unix", "chmod-plain", "mkfifo"}


@pytest.fixture(params=IDENTITIES)
def who(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Who]:
    with identity(request.param, tmp_path) as found:
        yield found


@pytest.mark.parametrize("grade", [Isolation.FULL, Isolation.HOST_TOOLCHAIN])
def test_every_attempt_is_refused_and_leaves_nothing(who: Who, grade: Isolation) -> None:
    inputs = who.home / "input"
    inputs.mkdir()
    (inputs / "file").write_text("as it was")
    secret = who.home / "secret"
    secret.write_text("another build's")
    who.give(inputs)
    listener = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    name = f"reprobuild-test-{os.getpid()}"
    abstract.bind("\0" + name)
    abstract.listen()
    sleeper = subprocess.Popen(["sleep", "600"], user=None)
    program = who.home / "attack.py"
    program.write_bytes(ATTACKS.read_bytes())
    facts = {
        "port": listener.getsockname()[1],
        "abstract": name,
        "secret": str(secret),
        "pid": sleeper.pid,
    }

    def left(work: Path) -> list[str]:
        return [
            f"{path.name} {path.lstat().st_mode:o}"
            for path in work.rglob("*")
            if path.lstat().st_mode & 0o6000
            or stat.S_ISCHR(path.lstat().st_mode)
            or stat.S_ISBLK(path.lstat().st_mode)
            or path.lstat().st_uid == 0
        ]

    try:
        ran = who.run(
            ("/usr/bin/python3", "-I", "/attack.py", json.dumps(facts)),
            mounts=(Mount("/inputs/data", inputs), Mount("/attack.py", program)),
            grade=grade,
            after=left,
        )
    finally:
        sleeper.kill()
        sleeper.wait()
        listener.close()
        abstract.close()
    assert ran.outcome.reason == "", ran.log
    results = json.loads(ran.log)
    assert {k: results.get(k) for k in REFUSED} == REFUSED
    assert {k: results[k] for k in ALLOWED} == dict.fromkeys(ALLOWED, "done")
    assert results["sysrq"] in ("EACCES", "EROFS", "ENOENT")  # not every kernel has it
    assert results["pids"] == [1]
    assert results["descriptors"] == []
    assert set(results["capabilities"]) == {"0" * 16}
    assert ran.seen == []
    assert (inputs / "file").read_text() == "as it was"
    assert (inputs / "file").stat().st_mode & 0o777 == 0o644
    assert ran.outcome.isolation is grade


@pytest.mark.parametrize("grade", [Isolation.FULL, Isolation.NONE])
def test_a_process_left_in_the_background_is_ended(who: Who, grade: Isolation) -> None:
    if grade is Isolation.NONE and who.name == "ordinary":
        pytest.skip("without a sandbox and without control groups nothing can be promised")
    if grade is Isolation.NONE and who.name == "root-staged":
        pytest.skip("without namespaces nothing can be staged")
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    script = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open('/tmp/up' if sys.argv[2] == 'full' else sys.argv[3], 'w').close()\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "while not os.path.exists(sys.argv[3]): time.sleep(0.01)\n"
        "print('left', flush=True)\n"
    )
    ran = who.run(
        ("/usr/bin/python3", "-I", "-c", script, mark, grade.value, "/tmp/up"), grade=grade
    )
    assert ran.outcome.reason == "", ran.log
    assert "left" in ran.log
    _assert_none_left(ran, mark)


def test_nothing_runs_before_it_is_in_its_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root's builds without a sandbox are held in control groups")
    add = Group.add

    def late(group: Group, pid: int) -> None:
        time.sleep(0.5)
        add(group, pid)

    monkeypatch.setattr(Group, "add", late)
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    with identity("root", tmp_path) as who:
        ran = who.run(
            ("/bin/sh", "-c", "setsid sh -c 'sleep 600; :' $0 & sleep 0.2", mark),
            grade=Isolation.NONE,
        )
    assert ran.outcome.reason == ""
    _assert_none_left(ran, mark)


def _assert_none_left(ran: Ran, mark: str) -> None:
    """Where groups can be made they must have held; where not, the record must have said so."""
    if ran.outcome.isolation is Isolation.NONE and not _groups_can_be_made():
        assert "left-behind-processes" in ran.outcome.unenforced
        pytest.skip("this host lets nobody make control groups")
    assert "left-behind-processes" not in ran.outcome.unenforced
    assert not _alive(mark)


def _groups_can_be_made() -> bool:
    group = Group.make(discover(), 2**30, 64)
    try:
        return bool(group.held)
    finally:
        group.remove()


def _alive(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(f"{entry.name} {line}")
    return found
