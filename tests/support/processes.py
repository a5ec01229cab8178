"""What runs on this machine."""

from __future__ import annotations

from pathlib import Path


def running(words: str) -> list[str]:
    """Command lines that contain `words`, those of shells that merely have them as a script
    left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        line = b" ".join(argv).decode(errors="replace")
        if words in line and b"-c" not in argv:
            found.append(line)
    return found
