"""The layers' level: what has to be pulled by somebody who has the old image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprobuild.core.diff.side import LayerSide
from reprobuild.core.encoding import Value


@dataclass(frozen=True, slots=True)
class LayersDiff:
    """Layers of the new image by whether the old one has them, and those it no longer has."""

    kept: tuple[LayerSide, ...]
    changed: tuple[LayerSide, ...]
    dropped: tuple[LayerSide, ...]

    @property
    def to_pull(self) -> int | None:
        """Compressed bytes; None where a size is not known."""
        return total([layer.size for layer in self.changed])

    @property
    def unpacked(self) -> int | None:
        """Bytes after unpacking; None where one is not known."""
        return total([layer.uncompressed for layer in self.changed])

    def document(self) -> dict[str, Value]:
        """The keys that the command line promises."""
        return {
            "bytes_to_pull": self.to_pull,
            "bytes_uncompressed": self.unpacked,
            "changed": [layer_document(layer) for layer in self.changed],
            "dropped": [layer_document(layer) for layer in self.dropped],
            "kept": [layer_document(layer) for layer in self.kept],
        }


def total(sizes: Sequence[int | None]) -> int | None:
    """The sum; None as soon as one is not known."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def layer_document(layer: LayerSide) -> dict[str, Value]:
    """The plain form."""
    return {
        "component": layer.component,
        "diff_id": layer.diff_id or None,
        "digest": layer.digest or None,
        "size": layer.size,
        "uncompressed": layer.uncompressed,
    }


def compare_layers(old: Sequence[LayerSide], new: Sequence[LayerSide]) -> LayersDiff:
    """By blob where both sides know blobs (what a registry sends), else by content (diffID)."""
    blobs = all(layer.digest for layer in (*old, *new))

    def name(layer: LayerSide) -> str:
        return layer.digest if blobs else layer.diff_id

    before, after = {name(layer) for layer in old}, {name(layer) for layer in new}
    pulled: dict[str, LayerSide] = {}
    for layer in new:
        if name(layer) not in before:
            pulled.setdefault(name(layer), layer)  # one blob is pulled once
    return LayersDiff(
        kept=tuple(layer for layer in new if name(layer) in before),
        changed=tuple(pulled.values()),
        dropped=tuple(layer for layer in old if name(layer) not in after),
    )
