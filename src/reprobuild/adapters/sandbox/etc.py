"""The constant files of /etc inside the sandbox. They are part of the format (docs/sandbox.md)."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from reprobuild.core.sandboxenv import HOSTNAME

FILES: Mapping[str, bytes] = MappingProxyType(
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

HIDDEN = frozenset({"localtime", "machine-id", "mtab", "shadow", "gshadow", "timezone"})
"""Entries of a root file system's /etc that are not shown: they would vary or mean nothing."""


def place(directory: Path) -> Path:
    """Makes sure that `directory` holds the constant files, and returns it.

    Every file is world-readable, has mtime 1 and is written whole or not at all, so that several
    processes may share the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o7777 != 0o755:
        directory.chmod(0o755)  # whatever the caller's umask is
    for name, content in FILES.items():
        target = directory / name
        with contextlib.suppress(OSError):
            if target.read_bytes() == content:
                continue
        descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".new-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), 0o444)
            os.utime(temporary, (1, 1))
            Path(temporary).replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
    return directory
