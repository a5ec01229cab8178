"""Exit status 5: a build failed."""

from __future__ import annotations

from reprobuild.errors.kinds import Code, Exit

CODES = {
    "E-BUILD-FAILED": Code(
        Exit.BUILD,
        "a build's command failed",
        "read the log; `--keep-failed` keeps its files, `reprobuild shell` opens its sandbox",
    ),
    "E-BUILD-MEMORY": Code(
        Exit.BUILD,
        "a build ran out of memory",
        "set `memory` in the step, or give more with --memory and fewer --jobs",
    ),
    "E-BUILD-NO-OUTPUT": Code(
        Exit.BUILD,
        "a build left an output empty, or no directory in its place",
        "let it write into the directory that $out names",
    ),
    "E-BUILD-OUTPUT": Code(
        Exit.BUILD,
        "a build wrote more than it may",
        "find in its log what it writes; the limit of 32 GiB is fixed",
    ),
    "E-BUILD-TIMEOUT": Code(
        Exit.BUILD,
        "a build ran or kept silent for too long",
        "set `timeout` in the step, if it is right to take so long; have it write a line now and "
        "then, if it is silent for long: the limit of half an hour is fixed",
    ),
    "E-DEPENDENCY": Code(
        Exit.BUILD,
        "several derivations failed; the exit status is that of what is to be mended first "
        "(of an offline fetch before that of a build), `codes` has each",
        "mend the failures that are listed",
    ),
    "E-INPUT-PATH": Code(
        Exit.BUILD,
        "an input holds nothing at the path that a recipe names",
        "compare the path in the component file with the names that are there",
    ),
    "E-OUTPUT-CHANGED": Code(
        Exit.BUILD,
        "a directory changed while it was being stored",
        "make sure that nothing writes to it any more, and try again",
    ),
    "E-OUTPUT-READ": Code(
        Exit.BUILD, "a directory that is to be stored cannot be read", "mend its permissions"
    ),
    "E-OUTPUT-SIZE": Code(
        Exit.BUILD,
        "an output is larger than its limit",
        "have the build leave less, or make it of several steps: the limit of 32 GiB is fixed",
    ),
    "E-OUTPUT-SPECIAL": Code(
        Exit.BUILD,
        "an output holds a socket, a device or a FIFO",
        "have the build remove it before it ends",
    ),
}
