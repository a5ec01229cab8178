"""An inventory: what a store holds, small enough for one QR code.

    magic        8 bytes, "rbstock0"
    store        16 bytes: which store (random, made once)
    counter      8 bytes: goes up with every inventory of that store
    numbers      2 × 4 bytes: how many closures, how many trees
    digests      32 bytes each: closures, then trees, each list sorted
    check        8 bytes: the start of the BLAKE3 of all before it
    signature    32 bytes of public key and 64 of ed25519, or nothing

Integers are big-endian. 88 digests fit into the 2,953 bytes of a QR code (version 40-L).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from reprobuild.core.bundle.signing import INVENTORY, Signature, Signer, message
from reprobuild.core.digest import Digest, tagged
from reprobuild.errors import ReprobuildError

MAGIC = b"rbstock0"
DOMAIN = "reprobuild/inventory/v0"
QR_BYTES = 2953
_HEAD = struct.Struct(">8s16sQII")
_CHECK, _SIGNATURE = 8, 96
MAX_DIGESTS = 2**20


@dataclass(frozen=True, slots=True)
class Inventory:
    """Closures and single trees that are wholly in a store (core/bundle/closure.py)."""

    store: bytes
    counter: int
    closures: tuple[Digest, ...]
    trees: tuple[Digest, ...] = ()
    signature: Signature | None = None

    def _body(self) -> bytes:
        head = _HEAD.pack(MAGIC, self.store, self.counter, len(self.closures), len(self.trees))
        return head + b"".join(d.raw for d in (*self.closures, *self.trees))

    @property
    def digest(self) -> Digest:
        """What is signed."""
        return tagged(DOMAIN, self._body())

    def signed(self, signer: Signer | None) -> Inventory:
        """With the signer's signature."""
        if signer is None:
            return self
        value = signer.sign(message(INVENTORY, self.digest))
        return replace(self, signature=Signature(signer.key, value))

    def encode(self) -> bytes:
        """The file."""
        body = self._body()
        end = b"" if self.signature is None else self.signature.key + self.signature.value
        return body + Digest.of(body).raw[:_CHECK] + end


def decode_inventory(data: bytes) -> Inventory:
    """From the file's bytes; raises E-BUNDLE."""
    if len(data) < _HEAD.size or not data.startswith(MAGIC[:-1]):
        raise _off("this is no inventory")
    magic, store, counter, closures, trees = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise _off("the inventory has a format that this version does not know")
    if closures + trees > MAX_DIGESTS:
        raise _off("the inventory says that it lists more than any store has")
    end = _HEAD.size + 32 * (closures + trees)
    if len(data) not in (end + _CHECK, end + _CHECK + _SIGNATURE):
        raise _off("the inventory is cut short, or something follows it")
    if Digest.of(data[:end]).raw[:_CHECK] != data[end : end + _CHECK]:
        raise _off("the inventory was changed")
    found = [Digest(data[i : i + 32].hex()) for i in range(_HEAD.size, end, 32)]
    first, second = tuple(found[:closures]), tuple(found[closures:])
    if any(list(part) != sorted(set(part)) for part in (first, second)):
        raise _off("the inventory's digests are out of order, or one is there twice")
    rest = data[end + _CHECK :]
    signature = Signature(rest[:32], rest[32:]) if rest else None
    return Inventory(store, counter, first, second, signature)


def _off(text: str) -> ReprobuildError:
    return ReprobuildError("E-BUNDLE", text)
