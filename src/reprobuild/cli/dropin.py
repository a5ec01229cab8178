"""What the commands that stand in for the publishers' scripts share: their exit statuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reprobuild.errors import Exit, ReprobuildError

_KEPT = frozenset({Exit.ENVIRONMENT, Exit.BUG, Exit.INTERRUPTED})


class Refused(ReprobuildError):
    """An error that ends with the exit status of the script that is stood in for."""

    def __init__(self, error: ReprobuildError, status: int) -> None:
        super().__init__(error.code, error.message, hint=error.hint)
        self.facts = dict(error.facts)
        self._status = status

    @property
    def exit_status(self) -> int:
        """The script's status, not the code's own."""
        return self._status


@contextmanager
def refusing(status: int) -> Iterator[None]:
    """Errors about what was given end with `status`; a broken environment keeps its own."""
    try:
        yield
    except ReprobuildError as error:
        if error.exit_status in _KEPT:
            raise
        raise Refused(error, status) from error
