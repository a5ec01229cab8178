"""What became of a build, in the words of `ports.BuildOutcome`, and what its log says of it."""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSYS, Signals

from reprobuild.adapters.sandbox.supervise import LogWriter
from reprobuild.core.derivation import Hints
from reprobuild.errors import ReprobuildError

LEAST_MEMORY = 4 * 2**30
_SIGXFSZ = 25
_FAULTS = (SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE, SIGSYS)
"""What a program does to itself."""


def memory_limit(hints: Hints, least: int = LEAST_MEMORY) -> int:
    """The hard limit, in bytes, for a build that is expected to need `hints.memory`.

    The hint is the scheduler's estimate; the limit only has to stop what went out of hand. It is
    never below `least`.
    """
    return max(4 * hints.memory, least)


def setup_failure(said: bytes) -> ReprobuildError:
    """The error for a sandbox that could not be made; `said` is what bubblewrap printed."""
    text = said.decode(errors="replace").strip()
    return ReprobuildError(
        "E-SANDBOX-SETUP",
        f"the sandbox could not be made: {text or 'bubblewrap failed and said nothing'}",
        bubblewrap=text,
    )


def verdict(
    code: int | None, died: int, reason: str, out_of_memory: bool, head: bytes
) -> tuple[str, int]:
    """Reason and status.

    `code` is the command's exit status (None: never known), `died` the signal that ended what held
    it (0: none), `reason` why it was stopped (empty: it was not), `head` the beginning of its
    output. A status of 128 + N counts as signal N: the two cannot be told apart from outside. What
    is killed by others with bubblewrap, or with the starter, was killed. Raises E-SANDBOX-SETUP
    when the command never ran.
    """
    if reason:
        return reason, code or 0
    if code == 0:
        return "", 0
    if out_of_memory:
        return "memory", code or 0
    if died and died not in _FAULTS:
        return "signal", SIGKILL
    if code is None:
        if b"bwrap: execvp" in head:
            return "exit", 127
        raise setup_failure(head or (b"it " + _named(died).encode() if died else b""))
    if 128 < code <= 128 + 64:
        number = code - 128
        return ("output-size" if number == _SIGXFSZ else "signal"), number
    return "exit", code


def _named(number: int) -> str:
    try:
        return f"was ended by {Signals(number).name}"
    except ValueError:  # a real-time signal
        return f"was ended by signal {number}"


def explain(writer: LogWriter, reason: str, hints: Hints, memory: int, died: int) -> None:
    """Says in the log, at its end, why a build was stopped; `memory` was its limit in bytes, `died`
    the signal that ended what held it, if one did."""
    if reason == "signal" and died:
        writer.note(f"what held the build {_named(died)}, sent by something outside of reprobuild")
    texts = {
        "timeout": f"stopped: still running after {hints.timeout} s",
        "silence": f"stopped: no output for {hints.silence} s",
        "output-size": f"stopped: took more than {hints.output_limit} bytes of disk",
        "memory": f"stopped: needed more than {memory} bytes of memory",
        "interrupted": "stopped: interrupted",
    }
    if reason in texts:
        writer.note(texts[reason])
