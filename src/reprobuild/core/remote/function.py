"""The digest functions of the Remote Execution API that are spoken here, and how each names bytes.

Numbers and names are those of the enumeration `DigestFunction.Value` in remote_execution.proto.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reprobuild.core.digest import Hasher, blob_hasher
from reprobuild.core.remote.wire import Blob


@dataclass(frozen=True, slots=True)
class Function:
    """A function whose digests have 32 bytes.

    `segment` is its part of ByteStream's resource names: nothing for SHA-256, which may not be
    named there, `NAME/` for what came after it.
    """

    name: str
    number: int
    segment: str
    hasher: Callable[[], Hasher]

    def blob(self, data: bytes) -> Blob:
        """The name of `data`."""
        hasher = self.hasher()
        hasher.update(data)
        return Blob(hasher.hexdigest(), len(data))


SHA256 = Function("SHA-256", 1, "", hashlib.sha256)

BLAKE3 = Function("BLAKE3", 9, "blake3/", blob_hasher)
"""A blob's name on the wire is then the store's own."""

PREFERRED = (BLAKE3, SHA256)
"""The first that every server of an address offers is taken."""


def common(offered: Mapping[str, frozenset[Function]]) -> Function | None:
    """The function for servers by name; None where they have none in common."""
    return next((f for f in PREFERRED if all(f in o for o in offered.values())), None)
