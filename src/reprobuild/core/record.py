"""Records: what an action produced, when it was really run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from reprobuild.core.derivation import Isolation
from reprobuild.core.digest import Digest, tagged
from reprobuild.core.encoding import Value, decode, encode

RECORD_DOMAIN = "reprobuild/record/v0"


@dataclass(frozen=True, slots=True)
class Record:
    """(action, output) → tree, with how it came about.

    `duration_ms`, `peak_memory` (bytes), `log` (file name under logs/) and `unenforced` (limits
    that could not be held) and `notes` are observations of that one run.
    """

    action: Digest
    drv: Digest
    outputs: Mapping[str, Digest]
    isolation: Isolation = Isolation.FULL
    duration_ms: int = 0
    peak_memory: int = 0
    log: str = ""
    name: str = ""
    unenforced: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    def encode(self) -> bytes:
        """The canonical bytes."""
        return encode(
            {
                "action": self.action.hex,
                "drv": self.drv.hex,
                "duration_ms": self.duration_ms,
                "isolation": self.isolation.value,
                "log": self.log,
                "name": self.name,
                "notes": list(self.notes),
                "outputs": {name: digest.hex for name, digest in self.outputs.items()},
                "peak_memory": self.peak_memory,
                "unenforced": list(self.unenforced),
            }
        )

    @property
    def digest(self) -> Digest:
        """What names the record's file."""
        return tagged(RECORD_DOMAIN, self.encode())

    @classmethod
    def decode(cls, data: bytes) -> Record:
        """From the canonical bytes; raises E-ENCODING or E-DIGEST."""
        from reprobuild.errors import ReprobuildError

        document = decode(data)
        try:
            fields = cast("dict[str, Value]", document)
            return cls(
                action=Digest.parse(cast(str, fields["action"])),
                drv=Digest.parse(cast(str, fields["drv"])),
                outputs={
                    name: Digest.parse(text)
                    for name, text in cast("dict[str, str]", fields["outputs"]).items()
                },
                isolation=Isolation(cast(str, fields["isolation"])),
                duration_ms=cast(int, fields["duration_ms"]),
                peak_memory=cast(int, fields["peak_memory"]),
                log=cast(str, fields["log"]),
                name=cast(str, fields["name"]),
                unenforced=tuple(cast("list[str]", fields["unenforced"])),
                notes=tuple(cast("list[str]", fields["notes"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ReprobuildError("E-ENCODING", f"not a record: {error!r}") from error
