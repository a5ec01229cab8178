"""Checking the signature of a Debian archive's InRelease with gpgv."""

from __future__ import annotations

import base64
import binascii
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reprobuild.adapters.fetch.redact import redact
from reprobuild.errors import ReprobuildError

# RFC 4880, 9.4: MD5, SHA-1 and RIPE-MD/160 no longer prove anything.
_WEAK_HASHES = frozenset({"1", "2", "3"})
_BEGIN, _END = b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"-----END PGP PUBLIC KEY BLOCK-----"


def dearmor(data: bytes) -> bytes:
    """Binary keys out of armored blocks (RFC 4880, 6.2); binary input is returned as it is."""
    if _BEGIN not in data:
        return data
    keys = b""
    for block in data.split(_BEGIN)[1:]:
        _, _, body = block.partition(_END)[0].replace(b"\r", b"").partition(b"\n\n")
        lines = [line.strip() for line in body.split(b"\n")]
        try:  # a line that starts with "=" is the checksum
            keys += base64.b64decode(b"".join(li for li in lines if not li.startswith(b"=")))
        except binascii.Error:
            continue
    return keys


def verified_text(
    inrelease: bytes, keyrings: Sequence[str], origin: str, only: Sequence[str] = ()
) -> str:
    """The text that a trusted key signed, and nothing that surrounds it.

    `keyrings` are files (binary or armored) or armored blocks; `only`, when given, names the
    fingerprints of those keys (or of their primary keys) that count. One good signature is
    enough; a bad one, or none by these keys, raises E-DEB-UNTRUSTED. Raises E-TOOL-MISSING
    without gpgv.
    """
    with tempfile.TemporaryDirectory(prefix="reprobuild-gpgv-") as name:
        directory = Path(name)
        arguments: list[str] = []
        for number, keyring in enumerate(keyrings):
            data = _keys(keyring)
            if data:
                path = directory / f"{number}.gpg"
                path.write_bytes(data)
                arguments += ["--keyring", str(path)]
        if not arguments:
            raise _untrusted(origin, "there are no keys to check it with", keyrings)
        signed, output = directory / "InRelease", directory / "text"
        signed.write_bytes(inrelease)
        status = _gpgv([*arguments, "--output", str(output), str(signed)], directory)
        _judge(status, origin, keyrings, only)
        if not output.is_file():
            raise _untrusted(origin, "gpgv gave no signed text", keyrings)
        return output.read_text(encoding="utf-8", errors="replace")


def _keys(keyring: str) -> bytes:
    if keyring.startswith("-----BEGIN PGP"):
        return dearmor(keyring.encode())
    try:
        return dearmor(Path(keyring).read_bytes())
    except OSError:
        return b""


def _gpgv(arguments: list[str], home: Path) -> list[list[str]]:
    """The words of each status line."""
    try:
        done = subprocess.run(
            ["gpgv", "--homedir", str(home), "--status-fd", "1", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=120,
        )
    except FileNotFoundError:
        raise ReprobuildError(
            "E-TOOL-MISSING",
            "gpgv is needed to check the signature of a Debian archive",
            hint="install the Debian package gpgv",
            name="gpgv",
        ) from None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [line.split()[1:] for line in lines if line.startswith("[GNUPG:] ")]


def _judge(
    status: list[list[str]], origin: str, keyrings: Sequence[str], only: Sequence[str]
) -> None:
    words = [line[0] for line in status if line]
    if "BADSIG" in words:
        raise _untrusted(origin, "its signature does not match its content", keyrings)
    good = False
    for line in status:  # NEWSIG, then what is said of that one signature
        if line[:1] == ["NEWSIG"]:
            good = False
        elif line[:1] == ["GOODSIG"]:  # never given for an expired or revoked key
            good = True
        elif good and line[:1] == ["VALIDSIG"] and _counts(line, only):
            return
    if "EXPKEYSIG" in words or "KEYEXPIRED" in words:
        raise _untrusted(origin, "the key that signed it has expired", keyrings)
    if "NO_PUBKEY" in words:
        missing = sorted({s[1] for s in status if s[0] == "NO_PUBKEY" and len(s) > 1})
        raise _untrusted(origin, f"it is signed by unknown keys ({', '.join(missing)})", keyrings)
    raise _untrusted(origin, "it carries no good signature", keyrings)


def _counts(validsig: list[str], only: Sequence[str]) -> bool:
    """VALIDSIG's fields: 1 the key's fingerprint, 8 the hash, last the primary key's."""
    strong = len(validsig) > 8 and validsig[8] not in _WEAK_HASHES
    return strong and (not only or bool({validsig[1], validsig[-1]} & set(only)))


def _untrusted(origin: str, why: str, keyrings: Sequence[str]) -> ReprobuildError:
    files = [k for k in keyrings if not k.startswith("-----")]
    return ReprobuildError(
        "E-DEB-UNTRUSTED",
        f"{redact(origin)} is not trusted: {why}",
        origin=redact(origin),
        keyrings=files,
    )
