"""What every build sees that is neither its inputs nor its command: the sandbox's constants.

They are part of the format: `SANDBOX_VERSION` is in every action digest and moves whenever
anything here, or anything else that a build can see of its surroundings, changes. A remote
executor gives the same constants.
"""

from __future__ import annotations

SANDBOX_VERSION = "sandbox/1"

HOSTNAME = "reprobuild"
UMASK = 0o022
BUILD_DIRECTORY = "/build"
OUTPUT_DIRECTORY = "/out"
TEMPORARY_DIRECTORY = "/tmp"  # noqa: S108 - a path inside the sandbox

SOURCE_DATE_EPOCH = 315_532_800
"""1980-01-01T00:00:00Z in seconds: the earliest time that zip files (wheels) can hold."""


def output_path(output: str) -> str:
    """Where a build puts the output called `output`."""
    return f"{OUTPUT_DIRECTORY}/{output}"


def base_environment() -> dict[str, str]:
    """The environment that a recipe starts from; it may add to it and override it.

    Nothing else is set by the sandbox but `PWD`, which is the recipe's `cwd`.
    """
    return {
        "HOME": BUILD_DIRECTORY,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "SOURCE_DATE_EPOCH": str(SOURCE_DATE_EPOCH),
        "TMPDIR": TEMPORARY_DIRECTORY,
        "TZ": "UTC",
    }
