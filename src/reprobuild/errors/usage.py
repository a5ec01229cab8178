"""Exit status 2: the words of the call."""

from __future__ import annotations

from reprobuild.errors.kinds import Code, Exit

CODES = {
    "E-NO-FLAKE": Code(
        Exit.USAGE,
        "no flake-like.toml here or in any parent directory",
        "change into a project or name one with -C DIR; `reprobuild init` starts one",
    ),
    "E-NOT-REALIZED": Code(
        Exit.USAGE,
        "what is named has not been made here yet",
        "run `reprobuild realize` first",
    ),
    "E-UNKNOWN-INSTALLABLE": Code(
        Exit.USAGE,
        "the flake has no such output or component",
        "`reprobuild show` lists what there is",
    ),
    "E-USAGE": Code(Exit.USAGE, "the words of the call are off", "see --help"),
}
