"""ed25519 keys in the user's configuration directory; never in a store, never in a project.

    keys/NAME.pem    a private key (PKCS #8, PEM), mode 0600
    keys/NAME.pub    its public key (SubjectPublicKeyInfo, PEM)
    keys/NAME.rotated.json  how it came after earlier ones (core/rotation.py), to be given to others
    trust/NAME.pub   a public key of somebody else that is believed
    keys.json        {"revoked": {key id: reason}, "rotated": [{"from", "to", "signature"}]}

A key id is the SHA-256 of the 32 bytes of the public key, in hex digits.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprobuild.adapters.regular import read_regular
from reprobuild.core.publickey import PublicKey, key_id
from reprobuild.core.rotation import DOMAIN, Rotation, leading_to, parse, render, vouched
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DEFAULT = "default"
_LARGEST_KEY = 2**16  # bytes
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


class PrivateKey:
    """A private key that signs (`core.bundle.signing.Signer`)."""

    def __init__(self, inner: Ed25519PrivateKey) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return "PrivateKey(…)"

    @property
    def key(self) -> bytes:
        """The 32 bytes of the public key."""
        return self._inner.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature (RFC 8032)."""
        return self._inner.sign(message)


class Keyring:
    """The keys below `home`, the configuration directory. It is only made when a key is."""

    def __init__(self, home: Path) -> None:
        self.home = home

    # -- own keys ------------------------------------------------------------------------------

    def generate(self, name: str = DEFAULT) -> PublicKey:
        """Makes a new key; raises E-KEY when there is one of that name that is not revoked.

        A revoked one gets another name; it vouches for nothing.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        path = self._private(name)
        if path.exists() and self._is_revoked(old := self._load(name)):
            self._rename(name, old)
        elif path.exists():
            raise ReprobuildError(
                "E-KEY",
                f"there is a key {name} already: {path}",
                hint="`reprobuild key rotate` replaces it and says so to those who trust it",
            )
        key = Ed25519PrivateKey.generate()
        self._keep(name, key)
        return PublicKey(name, key.public_key().public_bytes_raw(), own=True)

    def signer(self, name: str = DEFAULT) -> PrivateKey:
        """The private key of that name; raises E-KEY (missing, off, revoked, open to others)."""
        found = self._load(name)
        if self._is_revoked(found):
            words = "reprobuild key generate" + ("" if name == DEFAULT else f" {name}")
            raise ReprobuildError(
                "E-KEY",
                f"the key {name} is revoked",
                hint=f"`{words}` makes another of that name",
                key=key_id(found.key),
            )
        return found

    def _is_revoked(self, key: PrivateKey) -> bool:
        return key_id(key.key) in self._state()["revoked"]

    def _load(self, name: str) -> PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        path = self._private(name)
        try:
            mode = path.stat().st_mode
            data = path.read_bytes()
        except FileNotFoundError:
            raise self._missing(name) from None
        except OSError as error:
            raise ReprobuildError(
                "E-KEY", f"the key {name} cannot be read: {error.strerror}", file=str(path)
            ) from error
        if mode & 0o077:
            raise ReprobuildError(
                "E-KEY",
                f"the private key {path} can be read by others",
                hint=f"run `chmod 600 {path}`, or rotate it when others may have seen it",
            )
        try:
            key = load_pem_private_key(data, password=None)
        except (ValueError, TypeError) as error:
            raise ReprobuildError("E-KEY", f"{path} is no private key", file=str(path)) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ReprobuildError("E-KEY", f"{path} is no ed25519 key", file=str(path))
        return PrivateKey(key)

    def _missing(self, name: str) -> ReprobuildError:
        own = sorted(path.stem for path in (self.home / "keys").glob("*.pem"))
        if own:
            said, hint = f"there is no key {name} of yours", f"there are: {', '.join(own)}; "
        else:
            said, hint = "you have no signing key yet", ""
        words = "reprobuild key generate" + ("" if name == DEFAULT else f" {name}")
        return ReprobuildError(
            "E-KEY", said, hint=f"{hint}`{words}` makes it", file=str(self._private(name))
        )

    def has(self, name: str = DEFAULT) -> bool:
        """Whether there is a private key of that name."""
        return self._private(name).exists()

    def rotate(self, name: str = DEFAULT) -> tuple[PublicKey, PublicKey]:
        """(old, new): the name signs with a new key from now on; the old one, which vouches for it,
        is still believed for what it signed. Raises E-KEY."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        old = self.signer(name)
        new = Ed25519PrivateKey.generate()
        public = new.public_key().public_bytes_raw()
        state = self._state()
        state["rotated"].append(
            {
                "from": old.key.hex(),
                "signature": old.sign(DOMAIN + public).hex(),
                "to": public.hex(),
            }
        )
        kept = self._rename(name, old)
        self._write_state(state)
        self._keep(name, new)
        _write(self.rotation_file(name), render(self.rotations(public)), 0o644)
        return PublicKey(kept, old.key, own=True), PublicKey(name, public, own=True)

    def _rename(self, name: str, old: PrivateKey) -> str:
        """Gives a key another name, before its own is given away: at no moment is one lost."""
        kept = f"{name}.{key_id(old.key)[:12]}"
        _write(self._private(kept), self._private(name).read_bytes(), 0o600)
        _write(self._public(kept), public_pem(old.key), 0o644)
        return kept

    def revoke(self, text: str, reason: str = "revoked") -> PublicKey:
        """Believes a key (by name, id or the beginning of its id) no more; raises E-KEY."""
        fitting = [
            k for k in self.known() if k.name == text or (len(text) >= 8 and k.id.startswith(text))
        ]
        if len({k.key for k in fitting}) != 1:
            raise ReprobuildError("E-KEY", f"{len(fitting)} keys are called {text[:80]!r}")
        state = self._state()
        state["revoked"][fitting[0].id] = reason
        self._write_state(state)
        return PublicKey(fitting[0].name, fitting[0].key, fitting[0].own, reason)

    def rotation_file(self, name: str = DEFAULT) -> Path:
        """Where the word of earlier keys for the one of that name lies, once it was rotated."""
        return self.home / "keys" / f"{_checked(name)}.rotated.json"

    def rotations(self, key: bytes) -> list[Rotation]:
        """How the own key `key` (32 bytes) came after earlier ones; raises E-KEY."""
        rows = self._state()["rotated"]
        try:
            return leading_to(parse(json.dumps({"format": 0, "rotated": rows}).encode()), key)
        except ReprobuildError as error:
            path = self.home / "keys.json"
            raise ReprobuildError("E-KEY", f"{path}: {error.message}", file=str(path)) from error

    # -- trust ---------------------------------------------------------------------------------

    def trust(self, name: str, key: bytes) -> PublicKey:
        """Believes somebody else's key (32 bytes) from now on; raises E-KEY when it is revoked."""
        if key_id(key) in self._state()["revoked"]:
            raise ReprobuildError("E-KEY", "this key is revoked", key=key_id(key))
        _write(self._trusted(name), public_pem(key), 0o644)
        return PublicKey(name, key, own=False)

    def trust_rotated(self, data: bytes) -> list[PublicKey]:
        """Believes the keys that ones believed here vouch for, named after those; returns what
        was new. Raises E-KEY when no key that is believed here vouches for any of them."""
        known = {k.key: k for k in self.known() if not k.revoked}
        rotations = parse(data)
        found = self.vouched(rotations, known)
        if not found and not any(r.new in known for r in rotations):
            raise ReprobuildError(
                "E-KEY",
                "no key that is believed here vouches for these",
                hint="ask for the new public key itself, over a way you trust",
                keys=[key_id(r.new) for r in rotations[:20]],
            )
        return [self.trust(_successor(known[old].name, key), key) for key, old in found.items()]

    def vouched(self, rotations: Sequence[Rotation], keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The keys that `keys` vouch for, each with the one at the beginning of its chain; what is
        revoked here vouches for nothing."""
        return vouched(rotations, keys, signed_by, self._state()["revoked"])

    def known(self) -> list[PublicKey]:
        """Own and trusted keys, by name, revoked ones included."""
        revoked = self._state()["revoked"]
        return [
            PublicKey(path.stem, key, own, str(revoked.get(key_id(key), "")))
            for path, own in self._files()
            for key in [read_public(path)]
        ]

    def verify(self, key: bytes, message: bytes, signature: bytes) -> bool:
        """Whether `key` is believed here and made this signature (`core.bundle.signing.Trust`)."""
        believed = any(k.key == key and not k.revoked for k in self.known())
        return believed and signed_by(key, message, signature)

    @staticmethod
    def signed_by(key: bytes, message: bytes, signature: bytes) -> bool:
        """Whether a public key (32 bytes) made a signature, believed or not."""
        return signed_by(key, message, signature)

    @staticmethod
    def read(path: Path) -> tuple[str, bytes]:
        """Key id and the 32 bytes of a public key file (PEM); raises E-KEY."""
        key = read_public(path)
        return key_id(key), key

    @staticmethod
    def pem(key: bytes) -> str:
        """A public key as others read it."""
        return public_pem(key).decode()

    def _files(self) -> Iterator[tuple[Path, bool]]:
        for folder, own in (("keys", True), ("trust", False)):
            for path in sorted((self.home / folder).glob("*.pub")):
                yield path, own

    # -- files ---------------------------------------------------------------------------------

    def _private(self, name: str) -> Path:
        return self.home / "keys" / f"{_checked(name)}.pem"

    def _public(self, name: str) -> Path:
        return self.home / "keys" / f"{_checked(name)}.pub"

    def _trusted(self, name: str) -> Path:
        return self.home / "trust" / f"{_checked(name)}.pub"

    def _keep(self, name: str, key: Ed25519PrivateKey) -> None:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _write(self._private(name), data, 0o600)
        _write(self._public(name), public_pem(key.public_key().public_bytes_raw()), 0o644)

    def _state(self) -> dict[str, Any]:
        path = self.home / "keys.json"
        try:
            found = json.loads(path.read_text("utf-8"))
            revoked, rotated = found["revoked"], found["rotated"]
            if not isinstance(revoked, Mapping) or not isinstance(rotated, list):
                raise TypeError("no tables")
        except FileNotFoundError:
            return {"revoked": {}, "rotated": []}
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Not to be taken for empty: what was revoked would be believed again.
            raise ReprobuildError("E-KEY", f"{path} is off: {error}", file=str(path)) from error
        return {"revoked": dict(revoked), "rotated": list(rotated)}

    def _write_state(self, state: Mapping[str, Any]) -> None:
        text = json.dumps(state, indent=2, sort_keys=True) + "\n"
        _write(self.home / "keys.json", text.encode(), 0o600)


def _successor(name: str, key: bytes) -> str:
    return f"{name[:48]}.{key_id(key)[:12]}"


def signed_by(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the public key (32 bytes) made this signature."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_pem(key: bytes) -> bytes:
    """A public key as SubjectPublicKeyInfo in PEM, which other tools read."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = Ed25519PublicKey.from_public_bytes(key)
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_public(path: Path) -> bytes:
    """The 32 bytes of a public key file (PEM); raises E-KEY."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        found = load_pem_public_key(read_regular(path, _LARGEST_KEY))
    except OSError as error:
        raise ReprobuildError(
            "E-KEY", f"{path} cannot be read: {error.strerror}", file=str(path)
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ReprobuildError("E-KEY", f"{path} is no public key", file=str(path)) from error
    if not isinstance(found, Ed25519PublicKey):
        raise ReprobuildError("E-KEY", f"{path} is no ed25519 key", file=str(path))
    return found.public_bytes_raw()


def _checked(name: str) -> str:
    if not _NAME.match(name):
        raise ReprobuildError("E-KEY", f"{name[:80]!r} cannot be the name of a key")
    return name


def _write(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by more than `mode` says; raises E-KEY."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ReprobuildError(
            "E-KEY", f"{path} could not be written: {error.strerror}", file=str(path)
        ) from error
