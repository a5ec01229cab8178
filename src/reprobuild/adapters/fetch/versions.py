"""Which of two versions is the older one, by the rules of their kind."""

from __future__ import annotations


def version_order(kind: str, one: str, other: str) -> int | None:
    """Negative, 0 or positive as `one` is older, the same or newer; None where that cannot be told.

    Debian's rules (deb-version(7)) for `deb`, PEP 440 for `wheel` and `sdist`.
    """
    if kind == "deb":
        from debian.debian_support import version_compare

        try:
            return int(version_compare(one, other))
        except ValueError:
            return None
    if kind in ("wheel", "sdist"):
        from packaging.version import InvalidVersion, Version

        try:
            left, right = Version(one), Version(other)
        except InvalidVersion:
            return None
        return (left > right) - (left < right)
    return None
