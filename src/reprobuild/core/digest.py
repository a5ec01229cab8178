"""Digests: parsed or computed, never bare strings. Store, git and OCI each have their own type."""

from __future__ import annotations

from blake3 import blake3

from reprobuild.core.blake import blake3_hex, tagged_hex
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it: a process that adds a tree is short, and waits for this
if TYPE_CHECKING:
    from typing import Protocol, Self

    from reprobuild.core.encoding import Value
else:
    Protocol = object

_DIGITS = "0123456789abcdef"


class Hasher(Protocol):
    """What hashlib and blake3 objects have in common."""

    def update(self, data: bytes, /) -> object: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


class _Name:
    """What is named by hex digits: immutable, equal to and ordered among its own kind alone.

    Written out, since making three dataclasses takes longer than hashing a small tree, and making
    an object of one three times as long.
    """

    __slots__ = ("hex",)
    __match_args__ = ("hex",)

    hex: str

    def __init__(self, hex: str) -> None:
        _set_hex(self, hex)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __eq__(self, other: object) -> bool:
        return self.hex == other.hex if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.hex)

    def __lt__(self, other: Self) -> bool:
        return self.hex < other.hex if isinstance(other, type(self)) else NotImplemented

    def __le__(self, other: Self) -> bool:
        return self.hex <= other.hex if isinstance(other, type(self)) else NotImplemented

    def __gt__(self, other: Self) -> bool:
        return self.hex > other.hex if isinstance(other, type(self)) else NotImplemented

    def __ge__(self, other: Self) -> bool:
        return self.hex >= other.hex if isinstance(other, type(self)) else NotImplemented

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.hex,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex!r})"


_set_hex = _Name.__dict__["hex"].__set__


def _is_hex(text: str, length: int) -> bool:
    return len(text) == length and not text.strip(_DIGITS)


class Digest(_Name):
    """A BLAKE3 digest of 32 bytes: names blobs, trees, derivations, actions and records."""

    __slots__ = ()

    PREFIX = "blake3:"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `blake3:<64 hex>` or the bare 64 hex digits; raises E-DIGEST."""
        bare = text.removeprefix(cls.PREFIX)
        if not _is_hex(bare, 64):
            raise ReprobuildError("E-DIGEST", f"{text[:80]!r} is no BLAKE3 digest", got=text[:80])
        return cls(bare)

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The plain digest of `data`: what names a blob (and what b3sum prints)."""
        return cls(blake3_hex(data))

    @classmethod
    def from_raw(cls, raw: bytes) -> Self:
        """From the 32 bytes themselves; raises E-DIGEST when there are not 32."""
        if len(raw) != 32:
            raise ReprobuildError("E-DIGEST", f"a BLAKE3 digest has 32 bytes, not {len(raw)}")
        return cls(raw.hex())

    @property
    def raw(self) -> bytes:
        """The 32 bytes."""
        return bytes.fromhex(self.hex)

    @property
    def short(self) -> str:
        """The first 12 digits, for people."""
        return self.hex[:12]

    def __str__(self) -> str:
        return self.PREFIX + self.hex


class Sha256(_Name):
    """A SHA-256 digest: OCI blobs and manifests, wheels, Debian packages, downloads."""

    __slots__ = ()

    PREFIX = "sha256:"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `sha256:<64 hex>` or the bare 64 hex digits; raises E-DIGEST."""
        bare = text.removeprefix(cls.PREFIX)
        if not _is_hex(bare, 64):
            raise ReprobuildError("E-DIGEST", f"{text[:80]!r} is no SHA-256 digest", got=text[:80])
        return cls(bare)

    def __str__(self) -> str:
        return self.PREFIX + self.hex


class GitOid(_Name):
    """A git object name: 40 hex digits (SHA-1 repositories) or 64 (SHA-256 repositories)."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the full hex name; abbreviations and anything else raise E-DIGEST."""
        if not (_is_hex(text, 40) or _is_hex(text, 64)):
            raise ReprobuildError(
                "E-DIGEST", f"{text[:80]!r} is no full git object name", got=text[:80]
            )
        return cls(text)

    def __str__(self) -> str:
        return self.hex


def tagged(domain: str, payload: bytes) -> Digest:
    """BLAKE3 over `domain`, one NUL byte and `payload`: every digest that is not a blob's.

    `domain` is text like `reprobuild/derivation/v0`; the version moves with the format.
    """
    return Digest(tagged_hex(domain, payload))


def document_digest(domain: str, value: Value) -> Digest:
    """The digest of a document: its canonical encoding under a domain tag."""
    from reprobuild.core.encoding import encode

    return tagged(domain, encode(value))


def blob_hasher() -> Hasher:
    """A fresh streaming hasher whose hex digest names a blob."""
    return blake3()
