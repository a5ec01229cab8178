"""How much memory this machine has free."""

from __future__ import annotations

from pathlib import Path


def available_memory() -> int:
    """Bytes that new processes can have without anything being pushed out (proc(5), meminfo);
    more than any machine has where that cannot be told."""
    try:
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 2**63
