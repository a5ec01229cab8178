"""The grade `none`: the command as an ordinary process of the host.

For hosts where no sandbox can be had. Nothing is closed off; the record says so. The recipe's
paths do not exist here, so those that stand in its command and environment are rewritten to where
the inputs, the work directory and the outputs really are; paths that programs make up are not.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprobuild.adapters.sandbox.command import Work, as_user
from reprobuild.adapters.sandbox.process import Running
from reprobuild.adapters.sandbox.staging import traversable
from reprobuild.core.sandboxenv import (
    BUILD_DIRECTORY,
    OUTPUT_DIRECTORY,
    TEMPORARY_DIRECTORY,
    UMASK,
)
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildRequest, Mount

# A path begins a word, or follows an option of one letter (`-I/build/include`).
_BEFORE = r"(?:(?<![\w./~-])|(?<=[\s\"'=,]-\w)|(?<=\A-\w))"
_AFTER = r"(?![\w.-])"

_WAIT = 'read -r go || exit 1; exec "$@" </dev/null'


@dataclass(frozen=True, slots=True)
class Words:
    """A command for the host."""

    argv: list[str]
    env: dict[str, str]
    cwd: str


def translate(request: BuildRequest, work: Work) -> Words:
    """The request's command with the sandbox's paths replaced by the host's."""
    places = _places(request.mounts, work)
    known = sorted(places, key=len, reverse=True)
    pattern = re.compile(_BEFORE + "(" + "|".join(map(re.escape, known)) + ")" + _AFTER)

    def rewrite(text: str) -> str:
        return pattern.sub(lambda match: places[match.group(1)], text)

    env = {name: rewrite(value) for name, value in request.env.items()}
    return Words([rewrite(word) for word in request.argv], env, rewrite(request.cwd))


def _places(mounts: Sequence[Mount], work: Work) -> Mapping[str, str]:
    places = {mount.at: os.fspath(mount.source) for mount in mounts if mount.at != "/"}
    places |= {
        BUILD_DIRECTORY: work.build,
        OUTPUT_DIRECTORY: work.out,
        TEMPORARY_DIRECTORY: work.tmp,
    }
    return places


def identity(request: BuildRequest, uid: int | None) -> list[str]:
    """The prefix that gives up root; raises E-SANDBOX-SETUP when `uid` could not reach its files.

    Without namespaces nothing can be staged for it.
    """
    if uid is None:
        return []
    for path in (*(m.source for m in request.mounts if m.at != "/"), request.workdir):
        if not traversable(path):
            raise ReprobuildError(
                "E-SANDBOX-SETUP",
                f"builds run as user {uid}, who cannot get to {path}: a directory above it is"
                " closed to others",
                hint="put the store where every user may pass, or run as an ordinary user",
                file=os.fspath(path),
            )
    return as_user(uid)


class BareProcess(Running):
    """A running command whose own process stands in for a sandbox's process 1."""

    def await_init(self) -> bool:
        """Always true: there is nothing to set up but the wait for `go`."""
        self.init = self.process.pid
        self.pidfd = os.pidfd_open(self.init)
        return True

    def read_status(self) -> bool:
        """There is no report but the exit status."""
        return False

    def exit_code(self) -> int | None:
        """The command's status (128 + N for signal N)."""
        code = self.process.wait()
        return code if code >= 0 else 128 - code

    def died(self) -> int:
        """Nothing holds the command but this process."""
        return 0

    def kill(self) -> None:
        """Ends the command and what stayed in its session's process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


def start(prefix: Sequence[str], words: Words) -> BareProcess:
    """Starts the command after `prefix`, to run at `go`; raises E-SANDBOX-SETUP when it cannot be.

    Until then it waits, so that it has been put into its control groups before its first
    instruction: what it left behind earlier could not be found. Its starter's death ends the wait
    without a run.
    """
    log_read, log_write = os.pipe()
    waiting, release = os.pipe()
    status = os.eventfd(0, os.EFD_CLOEXEC)  # nobody reports: it never becomes readable
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "sh", *prefix, *words.argv],
            cwd=words.cwd,
            env=words.env,
            stdin=waiting,
            stdout=log_write,
            stderr=log_write,
            umask=UMASK,
            start_new_session=True,
        )
    except OSError as error:
        for descriptor in (log_read, status, release):
            os.close(descriptor)
        raise ReprobuildError(
            "E-SANDBOX-SETUP", f"{[*prefix, *words.argv][0]} cannot be started: {error.strerror}"
        ) from error
    finally:
        os.close(log_write)
        os.close(waiting)
    return BareProcess(process, log_read, status, release)


def interact(prefix: Sequence[str], words: Words) -> int:
    """Runs the command on the caller's own terminal; returns its status (128 + N for signal N)."""
    try:
        code = subprocess.call([*prefix, *words.argv], cwd=words.cwd, env=words.env, umask=UMASK)
    except OSError as error:
        raise ReprobuildError(
            "E-SANDBOX-SETUP", f"{words.argv[0]} cannot be started: {error.strerror}"
        ) from error
    return code if code >= 0 else 128 - code
