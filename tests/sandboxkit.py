"""What the sandbox's tests share: a root file system out of the host's /usr, and two identities.

Every test of an executor runs as root (when the suite does) and as an ordinary user: root's suite
forks a child that becomes one.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import pytest

from reprobuild.adapters.sandbox import executor as executor_module
from reprobuild.adapters.sandbox import terminal
from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
from reprobuild.adapters.sandbox.removal import remove_tree
from reprobuild.core.derivation import Hints, Isolation
from reprobuild.core.sandboxenv import base_environment
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildOutcome, BuildRequest, Mount

T = TypeVar("T")
ORDINARY = 64_242
PRELOADED = (executor_module, terminal)  # a child may not be able to import any more

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed"
)
needs_python = pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="the host has no /usr/bin/python3 to attack with"
)


def as_ordinary_user(action: Callable[[], T]) -> T:
    """What `action` returns (or raises) in a child process that gave up root for good."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            os.setgroups([])
            os.setresgid(ORDINARY, ORDINARY, ORDINARY)
            os.setresuid(ORDINARY, ORDINARY, ORDINARY)
            try:
                result: tuple[bool, object] = (True, action())
            except BaseException as error:  # noqa: BLE001 - all of it is the parent's
                traceback.print_exc(file=sys.__stderr__)
                result = (False, _portable(error))
            with os.fdopen(write, "wb") as stream:
                pickle.dump(result, stream)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        data = stream.read()
    os.waitpid(child, 0)
    good, value = pickle.loads(data)
    if not good:
        if isinstance(value, tuple):
            code, message, hint, facts = value
            raise ReprobuildError(code, message, hint=hint, **facts)
        raise value
    return cast(T, value)


def _portable(error: BaseException) -> object:
    if isinstance(error, ReprobuildError):
        return (error.code, error.message, error.hint, error.facts)
    return error


@dataclass(frozen=True)
class Who:
    """An identity to build as, with a directory of its own."""

    name: str
    home: Path

    def do(self, action: Callable[[], T]) -> T:
        """Runs `action` as this identity."""
        if self.name != "ordinary" or os.geteuid() != 0:
            return action()
        return as_ordinary_user(action)

    def give(self, path: Path) -> None:
        """Makes `path` and all below it this identity's."""
        if self.name == "ordinary" and os.geteuid() == 0:
            for here, _, files in os.walk(path):
                os.chown(here, ORDINARY, ORDINARY)
                for name in files:
                    os.chown(Path(here, name), ORDINARY, ORDINARY, follow_symlinks=False)

    def executor(self, grade: Isolation = Isolation.FULL, **options: Any) -> BubblewrapExecutor:
        """An executor whose runtime directory is this identity's own."""
        return BubblewrapExecutor(grade, self.home / "run", **options)

    def run(
        self,
        command: str | tuple[str, ...],
        *,
        mounts: tuple[Mount, ...] = (),
        hints: Hints | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "/build",
        grade: Isolation = Isolation.FULL,
        cancel: threading.Event | None = None,
        after: Callable[[Path], object] | None = None,
        log: BinaryIO | None = None,
        directories: tuple[str, ...] = (),
        **options: Any,
    ) -> Ran:
        """Runs a shell command (or an argv) in a sandbox whose root is the host's /usr."""
        argv = ("sh", "-c", command) if isinstance(command, str) else command

        def build() -> Ran:
            work = Path(tempfile.mkdtemp(dir=self.home, prefix="work-"))
            buffer = io.BytesIO()
            executor = self.executor(grade, **options)
            request = BuildRequest(
                label="test",
                argv=argv,
                env={**base_environment(), **(env or {})},
                cwd=cwd,
                mounts=(*host_root(self.home), *mounts),
                outputs=("out",),
                workdir=work,
                hints=hints or Hints(),
                directories=directories,
            )
            try:
                outcome = executor.run(request, log or buffer, cancel or threading.Event())
                seen = after(work) if after else None
            finally:
                executor.discard(work)
                executor.close()
            assert not work.exists()
            return Ran(outcome, buffer.getvalue().decode(errors="replace"), seen)

        return self.do(build)


@dataclass(frozen=True)
class Ran:
    """A finished build, its log, and what `after` saw of its work directory."""

    outcome: BuildOutcome
    log: str
    seen: object = None


def host_root(home: Path) -> tuple[Mount, ...]:
    """Mounts that make the host's /usr a root file system of its own."""
    root = home / "root"
    root.mkdir(exist_ok=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/", name).is_symlink():
            with contextlib.suppress(FileExistsError):  # several threads make it at once
                (root / name).symlink_to(f"usr/{name}")
    return (Mount("/", root), Mount("/usr", Path("/usr")))


IDENTITIES = ("root", "root-staged", "ordinary")


@contextmanager
def identity(name: str, tmp_path: Path) -> Iterator[Who]:
    """`root` in a directory that every user can reach, `root-staged` in one below a directory of
    mode 0700, and `ordinary` in one of its own."""
    if name != "ordinary" and os.geteuid() != 0:
        pytest.skip("needs root")
    if name == "root-staged" or os.geteuid() != 0:
        tmp_path.parent.chmod(0o700)
        yield Who(name, tmp_path)
        return
    # tmp_path lies below a directory of root's that nobody else may enter.
    home = Path(tempfile.mkdtemp(prefix="reprobuild-test-"))
    home.chmod(0o755)
    who = Who(name, home)
    try:
        who.give(home)
        yield who
    finally:
        remove_tree(home)
