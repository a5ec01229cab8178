"""Exit statuses 6, 70 and 130: not reproducible, a bug of ours, interrupted."""

from __future__ import annotations

from reprobuild.errors.kinds import Code, Exit

CODES = {
    "E-BUG": Code(Exit.BUG, "a bug of ours", "please report it with the traceback above"),
    "E-INTERRUPTED": Code(
        Exit.INTERRUPTED, "stopped by the user", "run the same command again to go on"
    ),
    "E-NOT-REPRODUCIBLE": Code(
        Exit.NOT_REPRODUCIBLE,
        "one action gave two different trees",
        "both are kept, and neither is used: compare them with `reprobuild store quarantine`, and "
        "make the recipe say what it left open",
    ),
}
