"""What every grade of the sandbox executor promises (ports.Executor)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reprobuild.core.derivation import Hints, Isolation
from reprobuild.core.sandboxenv import SANDBOX_VERSION, base_environment
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildRequest, Executor, Mount
from sandboxkit import IDENTITIES, Ran, Who, host_root, identity, needs_bubblewrap, needs_python

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

pytestmark = needs_bubblewrap

GRADES = list(Isolation)
DEVICES = sorted(
    [
        *("core", "fd", "full", "null", "ptmx", "pts", "random", "shm"),
        *("stderr", "stdin", "stdout", "tty", "urandom", "zero"),
    ]
)


@pytest.fixture(params=IDENTITIES)
def who(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Who]:
    with identity(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def anyone(tmp_path: Path) -> Iterator[Who]:
    with identity("root" if os.geteuid() == 0 else "ordinary", tmp_path) as found:
        yield found


@pytest.fixture(params=GRADES)
def grade(request: pytest.FixtureRequest, who: Who) -> Isolation:
    found: Isolation = request.param
    if found is Isolation.NONE and who.name == "root-staged":
        pytest.skip("without namespaces nothing can be staged")
    return found


def test_probe_gives_the_wanted_grade(who: Who, grade: Isolation) -> None:
    def probe() -> tuple[Isolation, str]:
        executor: Executor = who.executor(grade)
        return executor.probe(), executor.version

    held, version = who.do(probe)
    assert held is grade
    assert SANDBOX_VERSION == "sandbox/1"
    if grade is Isolation.FULL:
        assert version == SANDBOX_VERSION
    else:  # what the host's tools are is part of the action
        assert re.fullmatch(rf"{SANDBOX_VERSION}\+{grade.value}:[0-9a-f]+", version)


def test_a_build_that_succeeds(who: Who, grade: Isolation) -> None:
    def look(work: Path) -> dict[str, str]:
        return {p.name: p.read_text() for p in (work / "out" / "out").iterdir()}

    data = who.home / "data"
    data.write_text("from an input\n")
    data.chmod(0o444)
    ran = who.run(
        "mkdir /out/out && cat /build/in > /out/out/file && pwd > /tmp/where && cat /tmp/where",
        mounts=(Mount("/build/in", data),),
        grade=grade,
        after=look,
    )
    assert ran.outcome.reason == "", ran.log
    assert ran.outcome.status == 0
    assert ran.outcome.isolation is grade
    assert set(ran.outcome.outputs) == {"out"}
    assert ran.seen == {"file": "from an input\n"}
    assert ran.log.rstrip().endswith("/build")


def test_statuses_and_signals_are_told(who: Who, grade: Isolation) -> None:
    failed = who.run("echo to stderr >&2; exit 3", grade=grade)
    assert (failed.outcome.reason, failed.outcome.status) == ("exit", 3)
    assert failed.log == "to stderr\n"
    killed = who.run("kill -SEGV $$", grade=grade)
    assert (killed.outcome.reason, killed.outcome.status) == ("signal", 11)


def test_a_program_that_is_not_there(who: Who, grade: Isolation) -> None:
    ran = who.run(("/no/such/program",), grade=grade)
    assert (ran.outcome.reason, ran.outcome.status) == ("exit", 127)
    assert "/no/such/program" in ran.log


def test_only_real_outputs_count(who: Who, grade: Isolation) -> None:
    assert who.run("true", grade=grade).outcome.outputs == {}
    assert who.run("ln -s / /out/out", grade=grade).outcome.outputs == {}
    assert who.run("mkfifo /out/out", grade=grade).outcome.outputs == {}
    assert list(who.run("echo x > /out/out", grade=grade).outcome.outputs) == ["out"]


def test_outputs_can_be_read_whatever_modes_they_were_left_with(who: Who) -> None:
    def look(work: Path) -> list[str]:
        return [(work / "out/out/d/f").read_text(), (work / "out/out/e").read_text()]

    ran = who.run(
        "mkdir -p /out/out/d; echo f > /out/out/d/f; echo e > /out/out/e;"
        "chmod 0 /out/out/d/f /out/out/e /out/out/d /out/out",
        after=look,
    )
    assert ran.outcome.reason == ""
    assert ran.seen == ["f\n", "e\n"]


SURROUNDINGS = """
import json, os, resource, socket, stat, subprocess, sys
def names(path): return sorted(os.listdir(path))
print(json.dumps({
    "env": dict(os.environ), "uid": os.getresuid(), "gid": os.getresgid(),
    "groups": os.getgroups(), "umask": os.umask(0), "cwd": os.getcwd(),
    "hostname": socket.gethostname(), "pid": os.getpid(), "sid": os.getsid(0),
    "top": names("/"), "etc": {n: open("/etc/" + n).read() for n in names("/etc")},
    "modes": {p: oct(os.stat(p).st_mode) for p in ("/", "/build", "/out", "/tmp", "/dev/shm")},
    "writable": sorted(p for p in ("/", "/build", "/out", "/tmp", "/etc", "/dev", "/dev/shm",
        "/usr", "/proc/sys") if os.access(p, os.W_OK)),
    "dev": [n for n in names("/dev") if n != "console"],
    "limits": {n: resource.getrlimit(getattr(resource, "RLIMIT_" + n))
        for n in ("CORE", "NOFILE", "STACK", "FSIZE", "AS")},
    "net": names("/sys/class/net") if os.path.exists("/sys") else
        [l.split(":")[0].strip() for l in open("/proc/net/dev").readlines()[2:]],
    "fds": sorted(int(n) for n in os.listdir("/proc/self/fd"))[:3],
    "stdin": sys.stdin.read(),
}))
"""


@needs_python
def test_what_a_build_can_see_is_constant(who: Who, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "leak")
    before = os.umask(0o077)
    try:
        ran = who.run(("/usr/bin/python3", "-I", "-c", SURROUNDINGS), env={"EXTRA": "1"})
    finally:
        os.umask(before)
    assert ran.outcome.reason == "", ran.log
    seen = json.loads(ran.log)
    assert seen.pop("env") == {**base_environment(), "EXTRA": "1", "PWD": "/build"}
    assert seen.pop("limits") == {
        "CORE": [0, 0],
        "NOFILE": [1024, 4096],
        "STACK": [8 << 20, -1],
        "FSIZE": [Hints().output_limit, Hints().output_limit],
        "AS": [-1, -1],
    }
    assert "root:x:0:0:root:/build:/bin/sh\n" in seen["etc"].pop("passwd")
    assert "nogroup:x:65534:" in seen["etc"].pop("group")
    assert "hosts: files\n" in seen["etc"].pop("nsswitch.conf")
    assert seen == {
        "uid": [0, 0, 0],
        "gid": [0, 0, 0],
        "groups": [],
        "umask": 0o022,
        "cwd": "/build",
        "hostname": "reprobuild",
        "pid": 2,
        "sid": 1,
        "top": sorted(
            [
                *("build", "dev", "etc", "out", "proc", "tmp", "usr"),
                *(n for n in ("bin", "lib", "lib64", "sbin") if Path("/", n).is_symlink()),
            ]
        ),
        "etc": {
            "hostname": "reprobuild\n",
            "hosts": "127.0.0.1 localhost reprobuild\n::1 localhost reprobuild\n",
            "resolv.conf": "",
        },
        "modes": {
            "/": "0o40755",
            "/build": "0o40755",
            "/out": "0o40755",
            "/tmp": "0o41777",
            "/dev/shm": "0o41777",
        },
        "writable": ["/build", "/dev/shm", "/out", "/tmp"],
        "dev": DEVICES,
        "net": ["lo"],
        "fds": [0, 1, 2],
        "stdin": "",
    }


def test_a_root_file_system_shows_its_etc_but_not_our_files_of_it(who: Who) -> None:
    root = who.home / "root"
    (root / "etc/ssl").mkdir(parents=True)
    (root / "etc/ssl/cert.pem").write_text("a certificate")
    (root / "etc/link").symlink_to("ssl/cert.pem")
    for name in ("passwd", "resolv.conf", "localtime", "machine-id"):
        (root / "etc" / name).write_text("of the root file system")
    for name in ("home", "run", "srv"):
        (root / name).mkdir()
    (root / "top-file").write_text("top")
    who.give(root)
    ran = who.run("ls /etc; cat /etc/link /top-file; grep -c . /etc/passwd; ls -d /srv /home /run")
    assert ran.log.splitlines()[:8] == [
        "group",
        "hostname",
        "hosts",
        "link",
        "nsswitch.conf",
        "passwd",
        "resolv.conf",
        "ssl",
    ]
    assert "a certificatetop2\n" in ran.log
    assert "/srv" in ran.log.split("\n")
    assert "'/home': No such file" in ran.log
    assert "'/run': No such file" in ran.log


@pytest.mark.parametrize(
    "at",
    [
        "build",
        "/a/../b",
        "/a//b",
        "//a",
        "/proc",
        "/proc/x",
        "/dev/x",
        "/out",
        "/out/out",
        "/etc",
        "/etc/passwd",
        "/tmp",
        "/build",
        "/sys/x",
        "/a/",
        "/bin/x",
    ],
)
def test_places_where_no_input_may_stand(anyone: Who, at: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        anyone.run("true", mounts=(Mount(at, anyone.home),))
    assert caught.value.code == "E-DERIVATION"
    assert at in caught.value.message or repr(at) in caught.value.message


@pytest.mark.parametrize("cwd", ["/build/../x", "/build//x", "/build/./x"])
def test_a_working_directory_that_is_no_clean_path(anyone: Who, cwd: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        anyone.run("true", cwd=cwd)
    assert caught.value.code == "E-DERIVATION"


def test_a_working_directory_of_the_build_is_made(anyone: Who) -> None:
    ran = anyone.run("pwd; echo x > here", cwd="/build/a/b")
    assert (ran.outcome.reason, ran.log) == ("", "/build/a/b\n")


@pytest.mark.parametrize("cwd", ["/build", "/build/a/b"])
def test_what_a_build_writes_to_is_made_alike_under_any_umask(
    who: Who, grade: Isolation, cwd: str
) -> None:
    for mask in (0, 0o077):
        before = os.umask(mask)
        try:
            ran = who.run(
                "stat -c %a /build /out /out/out /out/more /tmp; mkdir /build/x /tmp/x; "
                "echo x > /out/out/file",
                cwd=cwd,
                grade=grade,
                directories=("out", "more"),
                after=lambda work: sorted(os.listdir(work)),
            )
        finally:
            os.umask(before)
        assert (ran.outcome.reason, ran.log.split()) == ("", ["755"] * 4 + ["1777"])
        assert set(ran.outcome.outputs) == {"out"}
        assert ran.seen == ["build", "out", "tmp"]


def test_an_input_that_is_missing(who: Who) -> None:
    gone = who.home / "gone"
    with pytest.raises(ReprobuildError) as caught:
        who.run("true", mounts=(Mount("/in", gone),))
    assert caught.value.code == "E-SANDBOX-SETUP"
    assert "gone" in caught.value.message


def test_the_log_is_written_while_the_build_runs(anyone: Who) -> None:
    import io

    cancel = threading.Event()

    class Stopping(io.BytesIO):
        def write(self, data: Buffer) -> int:
            if b"now" in bytes(data):
                cancel.set()
            return super().write(data)

    ran = anyone.run("echo now; sleep 100", log=Stopping(), cancel=cancel)
    assert ran.outcome.reason == "interrupted"


def test_many_builds_at_once(anyone: Who) -> None:
    executor = anyone.executor()
    failed: list[object] = []

    def build(number: int) -> None:
        import io

        log = io.BytesIO()
        work = anyone.home / f"w{number}"
        request = BuildRequest(
            "x",
            ("sh", "-c", f"echo {number}; exit {number}"),
            base_environment(),
            "/build",
            host_root(anyone.home),
            (),
            work,
        )
        for _ in range(5):
            outcome = executor.run(request, log, threading.Event())
            executor.discard(work)
            if outcome.status != number:
                failed.append((number, outcome))
        if log.getvalue() != f"{number}\n".encode() * 5:
            failed.append((number, log.getvalue()))

    threads = [threading.Thread(target=build, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_no_descriptor_and_no_child_is_left(anyone: Who) -> None:
    anyone.run("true")
    before = sorted(os.listdir("/proc/self/fd"))
    anyone.run("true")
    anyone.run("exit 1", grade=Isolation.NONE)
    with pytest.raises(ReprobuildError):
        anyone.run("true", mounts=(Mount("/in", anyone.home / "gone"),))
    assert sorted(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_discard_of_what_is_not_there(anyone: Who) -> None:
    anyone.do(lambda: anyone.executor().discard(anyone.home / "nothing"))


def test_the_work_directory_is_closed_to_others(who: Who) -> None:
    ran = who.run("mkdir /out/out", after=lambda work: stat.S_IMODE(work.stat().st_mode))
    assert ran.seen == 0o700


def test_without_a_sandbox_paths_in_command_and_environment_lead_to_the_real_places(
    anyone: Who,
) -> None:
    data = anyone.home / "data"
    data.mkdir()
    data.chmod(0o755)
    (data / "file").write_text("content")
    ran = anyone.run(
        'cat $WHERE/file; test -d -I/build/x || echo -n "-I/build/x src/build"; test -d $TMPDIR',
        mounts=(Mount("/deps/one", data),),
        env={"WHERE": "/deps/one"},
        grade=Isolation.NONE,
    )
    assert ran.outcome.reason == "", ran.log
    assert ran.log.startswith("content-I/")
    assert ran.log.endswith("/build/x src/build")
    assert "-I/build/x" not in ran.log


def test_without_a_sandbox_nothing_can_be_staged(tmp_path: Path) -> None:
    with identity("root-staged", tmp_path) as who, pytest.raises(ReprobuildError) as caught:
        who.run("true", grade=Isolation.NONE)
    assert caught.value.code == "E-SANDBOX-SETUP"
    assert "cannot get to" in caught.value.message
    assert "ordinary user" in caught.value.hint


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_bubblewrap_that_others_kill_takes_the_build_with_it(
    who: Who, number: signal.Signals
) -> None:
    """That the sandbox could not be made would be wrong: the build was killed."""

    def kill() -> Ran:
        ended = threading.Event()
        threading.Thread(target=_kill_bubblewrap, args=(os.getpid(), number, ended)).start()
        try:
            return who.run("echo begun; sleep 600")
        finally:
            ended.set()

    ran = who.do(kill)
    assert (ran.outcome.reason, ran.outcome.status) == ("signal", signal.SIGKILL)
    assert f"what held the build was ended by {number.name}" in ran.log


def _kill_bubblewrap(pid: int, number: int, ended: threading.Event) -> None:
    """Sends a signal to the first bubblewrap below `pid` whose command runs."""
    while not ended.wait(0.05):
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                above, name = _parent(path)
                top, its_name = _parent(Path(f"/proc/{above}"))
                ours = name == "bwrap" != its_name and pid in (above, top)
                if ours and _sleeps(path):
                    os.kill(int(path.name), number)
                    return


def _parent(path: Path) -> tuple[int, str]:
    head, _, rest = (path / "stat").read_text().rpartition(")")
    return int(rest.split()[1]), head.partition("(")[2]


def _sleeps(path: Path) -> bool:
    """Whether a process has `sleep 600` below it."""
    below = (path / "task" / path.name / "children").read_text().split()
    words = b"sleep\x00600\x00"
    return (path / "cmdline").read_bytes() == words or any(_sleeps(Path("/proc", b)) for b in below)
