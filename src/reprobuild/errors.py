"""The one kind of error that crosses a function boundary, and the table of its codes.

An error is data: a code out of `CODES`, what happened, the facts (file, line, pull request,
digest…) and what to do next. Nothing below the command line prints or exits; `cli.main` turns
an error into text or JSON and an exit status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

Fact = str | int | bool | None | list[str] | list[int]


class Exit(IntEnum):
    """Exit statuses of the command line (a contract: scripts are written against them)."""

    USAGE = 2
    INPUT = 3
    SOURCES = 4
    BUILD = 5
    NOT_REPRODUCIBLE = 6
    STORE = 7
    OFFLINE = 8
    CHECK = 9
    ENVIRONMENT = 10
    BUG = 70
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Code:
    """One row of docs/errors.md: what the code means and what a user usually does about it."""

    exit: Exit
    meaning: str
    remedy: str


class ReprobuildError(Exception):
    """An expected failure.

    `code` is a key of `CODES`; `message` is one sentence that says what happened; `facts` hold
    what a program would want to read (`file`, `line`, `column`, `key`, `expected`, `got`…);
    `hint` overrides the code's general remedy where something more exact can be said.
    """

    def __init__(self, code: str, message: str, *, hint: str | None = None, **facts: Fact) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts: dict[str, Fact] = {k: v for k, v in facts.items() if v is not None}
        self.hint = hint if hint is not None else CODES[code].remedy

    @property
    def exit_status(self) -> int:
        """The status the process ends with when this error reaches the top."""
        return int(CODES[self.code].exit)

    def as_document(self) -> dict[str, object]:
        """The `--json` form: `{"error": {"code", "message", "facts", "hint"}}`."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "facts": dict(sorted(self.facts.items())),
                "hint": self.hint,
            }
        }


CODES: Mapping[str, Code] = MappingProxyType(
    {
        # -- 2: the words of the call ------------------------------------------------------
        "E-USAGE": Code(Exit.USAGE, "the words of the call are off", "see --help"),
        "E-NO-FLAKE": Code(
            Exit.USAGE,
            "no flake-like.toml here or in any parent directory",
            "change into a project or name one with -C DIR; `reprobuild init` starts one",
        ),
        "E-UNKNOWN-INSTALLABLE": Code(
            Exit.USAGE,
            "the flake has no such output or component",
            "`reprobuild show` lists what there is",
        ),
        # -- 3: a file that a person or a machine wrote ------------------------------------
        "E-FLAKE": Code(
            Exit.INPUT, "flake-like.toml is off", "mend the file at the place that is named"
        ),
        "E-COMPONENT": Code(
            Exit.INPUT,
            "a file under derivations/ is off",
            "mend the file at the place that is named",
        ),
        "E-FIXTURE": Code(
            Exit.INPUT,
            "the text of a fixture repository is off",
            "mend the file at the place that is named",
        ),
        "E-LOCK": Code(
            Exit.INPUT,
            "flake-like.lock is off",
            "restore it from version control, or write it anew with `reprobuild lock`",
        ),
        "E-ENCODING": Code(
            Exit.INPUT, "bytes that are not in canonical form", "obtain the document again"
        ),
        "E-DIGEST": Code(Exit.INPUT, "text that is no digest", "check the digest for typing slips"),
        "E-NAME": Code(
            Exit.INPUT, "a name that is not allowed", "use letters, digits, '-', '_' and '+'"
        ),
        "E-TREE": Code(
            Exit.INPUT, "a directory node that breaks the format", "obtain the object again"
        ),
        "E-DERIVATION": Code(
            Exit.INPUT,
            "a recipe that is not closed or breaks the format",
            "mend the component file",
        ),
        # -- 4: sources --------------------------------------------------------------------
        "E-LOCK-MISSING": Code(
            Exit.SOURCES, "an input is not pinned in flake-like.lock", "run `reprobuild lock`"
        ),
        "E-LOCK-STALE": Code(
            Exit.SOURCES,
            "an input's declaration changed after it was pinned",
            "run `reprobuild lock` to pin it again",
        ),
        "E-OUTPUT-OPEN": Code(
            Exit.SOURCES,
            "the output holds something that could not be pinned yet",
            "run `reprobuild lock` where the named source can be reached",
        ),
        # -- 70 ----------------------------------------------------------------------------
        "E-BUG": Code(Exit.BUG, "a bug of ours", "please report it with the traceback above"),
    }
)
