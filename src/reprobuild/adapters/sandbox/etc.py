"""The constant files of /etc inside the sandbox (core/sandboxenv.py), on the disk."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from reprobuild.core.sandboxenv import ETC, ETC_HIDDEN

FILES = ETC
HIDDEN = ETC_HIDDEN


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
