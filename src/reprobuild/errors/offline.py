"""Exit status 8: offline, and something needed is not here."""

from __future__ import annotations

from reprobuild.errors.kinds import Code, Exit

CODES = {
    "E-OFFLINE": Code(
        Exit.OFFLINE,
        "the network is off and something needed is not here",
        "run once without --offline, import a bundle, or name a file:// mirror under [mirrors]",
    ),
}
