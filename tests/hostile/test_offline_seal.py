"""Under --offline no process of ours can reach a network, whatever it tries."""

from __future__ import annotations

import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.demo import Demo, needs_sandbox
from support.gitkit import Origin, git

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is for x86-64")

SEALED = "from reprobuild.adapters.offline.seal import seal; seal()\n"


def sealed(program: str, **options: object) -> str:
    """What a program prints that runs behind the seal."""
    done = subprocess.run(
        [sys.executable, "-c", SEALED + program],
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


TRY = """
import socket
for family in range(0, 46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        for protocol in (0, 1, 6, 9, 16, 17, 255):
            try:
                socket.socket(family, kind, protocol).close()
                print(family, protocol)
            except OSError:
                pass
"""


def test_only_unix_and_routing_sockets_can_be_made() -> None:
    made = {tuple(map(int, line.split())) for line in sealed(TRY).splitlines()}
    assert {family for family, _ in made} <= {socket.AF_UNIX, socket.AF_NETLINK}
    assert {p for family, p in made if family == socket.AF_NETLINK} == {0}
    plain = subprocess.run(
        [sys.executable, "-c", TRY], capture_output=True, text=True, check=True
    ).stdout
    assert f"{socket.AF_INET} 0" in plain.splitlines()  # the trial itself can succeed


def test_children_and_threads_are_sealed_too() -> None:
    program = """
import subprocess, sys, threading
code = (
    "import socket\\ntry:\\n socket.socket()\\n print('open')\\n"
    "except PermissionError:\\n print('shut')"
)
done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
print(done.stdout, end="")
threading.Thread(target=exec, args=(code,)).start()
"""
    assert sealed(program).split() == ["shut", "shut"]


def test_a_thread_that_ran_before_is_sealed() -> None:
    program = f"""
import socket, threading
go, done = threading.Event(), []
def work():
    go.wait()
    try:
        socket.socket()
        done.append("open")
    except PermissionError:
        done.append("shut")
thread = threading.Thread(target=work)
thread.start()
{SEALED}
go.set()
thread.join()
print(done[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["shut"]


@pytest.mark.parametrize(
    ("number", "errno"), [(425, 38), (426, 38), (427, 38), (438, 1), (0x40000000 + 41, 38)]
)
def test_other_ways_to_a_socket_are_shut(number: int, errno: int) -> None:
    """io_uring, another process's descriptors, calls by x32's numbers."""
    program = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall({number}, 2, 1, 0, 0, 0, 0), ctypes.get_errno())
"""
    assert sealed(program).split() == ["-1", str(errno)]


def test_an_inherited_connection_is_refused() -> None:
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        done = subprocess.run(
            [sys.executable, "-c", SEALED],
            pass_fds=(one.fileno(),),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        one.close()
    assert done.returncode != 0
    assert "is a network socket" in done.stderr


def test_a_promisor_repository_fetches_nothing(tmp_path: Path) -> None:
    """Not even from a directory of this machine: git may speak no protocol at all."""
    origin = Origin.make(tmp_path / "origin.git")
    origin.commit({"a.txt": "text\n"}, ref="refs/heads/main")
    git(origin.path, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone.git"
    git(tmp_path, "clone", "--quiet", "--bare", "--filter=blob:none", f"file://{origin.path}",
        str(clone))  # fmt: skip
    blob = origin.blob(b"text\n")
    program = f"""
from pathlib import Path
from reprobuild.adapters.git.plumbing import clean_environment, run
env = {{**clean_environment(), "GIT_DIR": {str(clone)!r}}}
env.pop("GIT_NO_LAZY_FETCH")  # as git 2.39, which does not know it
print(run(["cat-file", "-e", {blob!r}], env=env, ok=range(256))[0])
"""
    assert sealed(program).split() != ["0"]


@needs_sandbox
def test_builds_go_on_behind_the_seal(realized: Demo) -> None:
    counts = realized.json("--offline", "realize", "--check")["counts"]
    assert counts["checked"] == 1


@needs_sandbox
def test_a_daemon_on_a_network_is_refused(realized: Demo) -> None:
    env = {"DOCKER_HOST": "tcp://127.0.0.1:2375"}
    ran = realized.run("--offline", "--json", "image", "load", "demo", env=env, status=8)
    assert ran.error["code"] == "E-OFFLINE"
    assert "tcp://127.0.0.1:2375" in ran.error["message"]
