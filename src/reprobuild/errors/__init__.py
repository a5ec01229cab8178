"""The one kind of error that crosses a function boundary, and the table of its codes.

An error is data: a code out of `CODES`, what happened, the facts (file, line, pull request,
digest…) and what to do next. Nothing below the command line prints or exits; `cli.main` turns
an error into text or JSON and an exit status.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, without importing that: every run imports this
if TYPE_CHECKING:
    from reprobuild.errors.kinds import Code, Exit

__all__ = ["Code", "Exit", "Fact", "ReprobuildError"]

Fact = str | int | bool | None | list[str] | list[int]


def __getattr__(name: str) -> object:
    """`Code` and `Exit`, which few need: dataclasses and enum are a good part of a short run."""
    if name not in ("Code", "Exit"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reprobuild.errors import kinds

    return getattr(kinds, name)


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
        self.hint = hint if hint is not None else _row(code).remedy

    @property
    def exit_status(self) -> int:
        """The status the process ends with when this error reaches the top."""
        return int(_row(self.code).exit)

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


def _row(code: str) -> Code:
    from reprobuild.errors.codes import CODES

    return CODES[code]
