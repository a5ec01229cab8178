"""How much memory this machine has free."""

from __future__ import annotations


def available_memory() -> int:
    """Bytes that new processes can have without anything being pushed out (proc(5), meminfo);
    more than any machine has where that cannot be told."""
    try:
        # Asked before every build that begins beside another: no more of it than is needed.
        with open("/proc/meminfo", "rb", buffering=0) as file:  # noqa: PTH123
            _, _, rest = file.read().partition(b"MemAvailable:")
        return int(rest.split(maxsplit=1)[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 2**63
