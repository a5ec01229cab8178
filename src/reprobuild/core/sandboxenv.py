"""What every build sees that is neither its inputs nor its command: the sandbox's constants.

They are part of the format: `SANDBOX_VERSION` is in every action digest and moves whenever
anything here, or anything else that a build can see of its surroundings, changes. A remote
executor gives the same constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SANDBOX_VERSION = "sandbox/1"
ETC_NAME = f"etc-{SANDBOX_VERSION.rpartition('/')[2]}"
"""The directory that holds the constant files of its /etc, among those of other versions."""

HOSTNAME = "reprobuild"
UMASK = 0o022
BUILD_DIRECTORY = "/build"
OUTPUT_DIRECTORY = "/out"
TEMPORARY_DIRECTORY = "/tmp"  # noqa: S108 - a path inside the sandbox

ROOT_OURS = frozenset(
    {"build", "dev", "etc", "home", "lost+found", "out", "proc", "root", "run", "sys", "tmp"}
)
"""Entries of a root file system's top that are never shown: the sandbox has its own, or none."""

ETC: Mapping[str, bytes] = MappingProxyType(
    {
        "group": b"root:x:0:\nnogroup:x:65534:\n",
        "hostname": f"{HOSTNAME}\n".encode(),
        "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost {HOSTNAME}\n".encode(),
        "nsswitch.conf": b"passwd: files\ngroup: files\nshadow: files\nhosts: files\n"
        b"networks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n",
        "passwd": b"root:x:0:0:root:/build:/bin/sh\n"
        b"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "resolv.conf": b"",
    }
)
"""The constant files of /etc."""

ETC_HIDDEN = frozenset({"localtime", "machine-id", "mtab", "shadow", "gshadow", "timezone"})
"""Entries of a root file system's /etc that are not shown: they would vary or mean nothing."""

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
