"""One sandbox call: who runs it, what is placed where, and the words that start it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprobuild.adapters.sandbox import command, seccomp, workdir
from reprobuild.adapters.sandbox.process import SandboxWords
from reprobuild.adapters.sandbox.rootfs import Placement, arrange
from reprobuild.adapters.sandbox.staging import Stage, stage_for
from reprobuild.adapters.sandbox.terminal import SandboxShell
from reprobuild.ports import BuildRequest, Mount

_MOST_ARRANGED = 256


@dataclass(frozen=True, slots=True)
class Machine:
    """What is the same for every build of this process: `bwrap`, the constant /etc files, and an
    empty directory to stage on."""

    bwrap: str
    constants: Path
    stage: Path
    passable: dict[str, bool] = field(default_factory=dict, compare=False)
    """Directories, and whether every user gets there: looked at once, for most builds lie in the
    same few. Were one closed meanwhile, a build would fail to start."""
    arranged: dict[tuple[Mount, ...], tuple[Placement, ...]] = field(
        default_factory=dict, compare=False
    )
    """What some inputs are placed by: many builds have the same ones, and inputs do not change."""

    def arrange(self, mounts: Sequence[Mount], *, host: bool) -> tuple[Placement, ...]:
        """`rootfs.arrange`, remembered where the host's own files have no part in it."""
        if host:
            return tuple(arrange(mounts, self.constants, host=True))
        key = tuple(mounts)
        found = self.arranged.get(key)
        if found is None:
            found = tuple(arrange(mounts, self.constants))
            if len(self.arranged) >= _MOST_ARRANGED:
                self.arranged.clear()
            self.arranged[key] = found
        return found


@dataclass(frozen=True, slots=True)
class Call:
    """How to start one sandbox: what stands before `bwrap`, and what is placed inside.

    With `staged` that needs root itself, so no starter can do it.
    """

    prefix: tuple[str, ...]
    placements: tuple[Placement, ...]
    work: command.Work
    staged: bool = False
    directories: Sequence[tuple[int, str]] = ()
    """Modes and paths of what who starts it has to make first."""

    def words(self, request: BuildRequest) -> SandboxWords:
        """The call of a build."""

        def options(filter_fd: int, status: int, block: int) -> list[str]:
            return self._options(request, command.Descriptors(filter_fd, status, block))

        return SandboxWords(request.argv, seccomp.program(), options, self.directories)

    def shell(
        self, request: BuildRequest, argv: Sequence[str], bwrap: str, uid: int | None
    ) -> SandboxShell:
        """The call of an interactive command."""

        def options(filter_fd: int) -> list[str]:
            return self._options(request, command.Descriptors(filter_fd), terminal=True)

        return SandboxShell(self.prefix, bwrap, argv, seccomp.program(), options, uid)

    def _options(
        self, request: BuildRequest, descriptors: command.Descriptors, *, terminal: bool = False
    ) -> list[str]:
        return command.options(
            self.placements, self.work, request.env, request.cwd, descriptors, terminal=terminal
        )


def prepare(
    machine: Machine,
    request: BuildRequest,
    uid: int | None,
    *,
    host: bool,
    by_starter: bool = False,
) -> Call:
    """Makes the work directory ready and returns the call.

    `uid` is who runs the build when root starts it; what that user cannot reach is staged. With
    `host` the host's toolchain stands in for the root file system. `by_starter` says that a
    starter is there, which can do a part of the work.
    """
    placements = machine.arrange(request.mounts, host=host)
    stage = Stage()
    if uid is not None:
        request.workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        sources = [mount.source for mount in request.mounts if not (host and mount.at == "/")]
        stage = stage_for([*sources, machine.constants, request.workdir], machine.passable)
    left = workdir.left_to_build(request, uid) if by_starter and not stage else None
    if left is not None:
        return Call((), placements, workdir.work_in(request.workdir), directories=left)
    work = workdir.prepare(request, uid)
    user = () if uid is None else command.as_user(uid)
    if not stage:
        return Call(tuple(user), placements, work)
    machine.stage.mkdir(exist_ok=True)
    staged = command.staged(str(machine.stage), stage.places, stage.directories())
    moved = command.Work(*(stage.path(p) for p in (work.build, work.out, work.tmp)))
    return Call((*staged, *user), tuple(stage.rebase(placements)), moved, staged=True)
