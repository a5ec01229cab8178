"""The launcher: the program that starts every remote build, run here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from reprobuild.adapters.remote.prepare import launcher
from support.demo import BUSYBOX, needs_sandbox

pytestmark = needs_sandbox

SHOW = 'umask; ulimit -n; ulimit -c; hostname; pwd; echo $0; echo "$@"'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("bin", "out", "build", "proc", "dev"):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin" / "busybox")
    for name in ("sh", "hostname", "id", "ls", "cat"):
        (root / "bin" / name).symlink_to("busybox")
    place = root / "out" / ".launch"
    place.write_bytes(launcher())
    place.chmod(0o755)
    os.utime(place, (1, 1))
    return root


def launch(
    root: Path,
    *words: str,
    options: tuple[str, ...] = (),
    network: bool = False,
    uid: int = 0,
    restore_signals: bool = True,
) -> tuple[subprocess.CompletedProcess[str], str | None]:
    share = ["--unshare-user", "--unshare-pid", "--unshare-uts", "--unshare-ipc"]
    done = subprocess.run(
        ["bwrap", *share, *([] if network else ["--unshare-net"]), "--uid", str(uid), "--gid", "0",
         "--bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--clearenv",
         "--setenv", "PATH", "/bin", *options, "/out/.launch", "/build", *words],
        capture_output=True, text=True, check=False, umask=0o077,
        restore_signals=restore_signals,
    )  # fmt: skip
    seen = root / "out" / ".seen"
    return done, seen.read_text() if seen.exists() else None


def test_makes_what_a_build_sees_the_constants(root: Path) -> None:
    done, seen = launch(root, "sh", "-c", SHOW, "zero", "a b", options=("--hostname", "reprobuild"))
    assert done.stdout.splitlines() == [
        "0022", "1024", "0", "reprobuild", "/build", "zero", "a b",
    ]  # fmt: skip
    assert (done.returncode, done.stderr, seen) == (0, "", "")


def test_signals_are_as_they_were_at_first(root: Path) -> None:
    """Servers ignore SIGPIPE, as this does: `yes | head` would go on for ever."""
    ignored = [signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        done, _ = launch(root, "cat", "/proc/self/status", restore_signals=False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    status = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    assert (int(status["SigIgn"], 16), int(status["SigBlk"], 16)) == (0, 0)


def test_leaves_no_trace_but_its_report(root: Path) -> None:
    done, _ = launch(root, "ls", "-a", "/out")
    assert ".launch" not in done.stdout


def test_the_status_is_the_builds(root: Path) -> None:
    assert launch(root, "sh", "-c", "exit 37")[0].returncode == 37


def test_a_foreign_host_name_is_changed_or_reported(root: Path) -> None:
    done, seen = launch(root, "hostname", options=("--hostname", "elsewhere"))
    assert (done.stdout, seen) in (("reprobuild\n", ""), ("elsewhere\n", "hostname elsewhere\n"))


def test_a_foreign_host_name_is_reported_where_no_namespace_can_be_made(root: Path) -> None:
    done, seen = launch(root, "hostname", options=("--hostname", "x", "--disable-userns"))
    assert (done.stdout, seen) == ("x\n", "hostname x\n")


def test_a_foreign_time_is_reported(root: Path) -> None:
    os.utime(root / "out" / ".launch", (1321009871, 1321009871))
    done, seen = launch(root, "hostname", options=("--hostname", "reprobuild"))
    assert (done.returncode, seen) == (0, "mtime 1321009871\n")


def test_a_network_is_closed_off_or_refused(root: Path) -> None:
    interfaces = Path("/proc/net/dev").read_text().count(":")
    if interfaces < 2:
        pytest.skip("this machine has no network interface but the loopback")
    done, seen = launch(
        root, "cat", "/proc/net/dev", network=True,
        options=("--hostname", "reprobuild", "--disable-userns"),
    )  # fmt: skip
    assert done.returncode == 97
    assert (seen or "").startswith("refused network ")
    assert done.stdout == ""


def test_another_uid_is_made_0_or_refused(root: Path) -> None:
    done, seen = launch(root, "id", "-u", uid=1000, options=("--hostname", "reprobuild"))
    if done.returncode == 97:
        assert seen == "refused uid 1000\n"
    else:
        assert (done.stdout, seen) == ("0\n", "")


def test_what_is_not_there_is_status_127(root: Path) -> None:
    done, _ = launch(root, "nothing-like-this")
    assert done.returncode == 127
    assert "nothing-like-this" in done.stderr


def test_what_cannot_be_run_is_status_126(root: Path) -> None:
    assert launch(root, "/bin")[0].returncode == 126


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")
def test_the_program_in_the_package_is_made_of_the_source_beside_it(tmp_path: Path) -> None:
    """The same compiler gives the same bytes; another one the same behaviour on the same words."""
    from importlib.resources import files

    source = str(files("reprobuild.data") / "launch.c")
    text = Path(source).read_text()
    flags = text.partition("Build: cc ")[2].partition("The result")[0].split()
    made = tmp_path / "launch"
    subprocess.run(["cc", *flags, "-o", made, source], check=True, capture_output=True)
    version = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout
    if "12.2.0" not in version:
        pytest.skip(f"the package's is made with GCC 12.2.0, here is {version.splitlines()[0]}")
    assert made.read_bytes() == launcher()
