"""Whether `git diff --check` could have anything to say about a patch.

Its rules (git-config(1), `core.whitespace`, at their defaults, and left-over conflict markers) are
about added lines alone, so a patch in which no added line is of a kind that it looks at needs no
second diff. What is said here errs on one side only: a complaint of git's is never missed.
"""

from __future__ import annotations

import re

_ENDS_BLANK = re.compile(rb"^\+[^\n]*[ \t\r\v\f]$", re.MULTILINE)
_SPACE_BEFORE_TAB = re.compile(rb"^\+[^\n]* \t", re.MULTILINE)
_MARKER = re.compile(rb"^\+([<=>|])\1{6}", re.MULTILINE)
_BLANK_AT_END = re.compile(rb"^\+\n(?:[+ ]\n|\\ [^\n]*\n)*(?:@@ |diff --git |\Z)", re.MULTILINE)
"""An added empty line behind which the hunk has empty lines only: it may be a file's last."""


def may_fail_check(patch: bytes) -> bool:
    """Whether `git diff --check` has to be asked; `patch` is what `git diff` gave."""
    rules = (_ENDS_BLANK, _SPACE_BEFORE_TAB, _MARKER, _BLANK_AT_END)
    return any(rule.search(patch) for rule in rules)
