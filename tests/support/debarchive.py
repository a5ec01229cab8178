"""A small signed Debian archive on the disk, made with gpg."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


def missing_tools() -> str:
    """Why no archive can be made here, or nothing."""
    lacking = [tool for tool in ("gpg", "gpgv") if shutil.which(tool) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


@dataclass(frozen=True)
class Signer:
    """A key of its own; `keyring` is its public half, binary."""

    home: Path
    keyring: Path
    armored: str
    signs_now: bool = True

    @property
    def fingerprint(self) -> str:
        """Of the first key."""
        lines = self._gpg("--list-keys", "--with-colons").decode().splitlines()
        return next(line.split(":")[9] for line in lines if line.startswith("fpr:"))

    def add_key(self, address: str) -> None:
        """A second key, which `keyring` does not hold."""
        self._gpg("--passphrase", "", "--quick-generate-key", address, "ed25519", "sign", "0")

    def sign(self, text: str, *options: str) -> bytes:
        """Clear-signs."""
        return self._gpg("--clearsign", *options, data=text.encode())

    def _gpg(self, *arguments: str, data: bytes = b"") -> bytes:
        return subprocess.run(
            ["gpg", "--homedir", str(self.home), "--batch", "--quiet", *arguments],
            input=data,
            capture_output=True,
            check=True,
        ).stdout


@contextmanager
def signer(directory: Path, *, expires: str = "0", at: str = "") -> Iterator[Signer]:
    """A fresh key; its agent is stopped at the end. `at` fakes the time (YYYYMMDDTHHMMSS)."""
    directory.mkdir(parents=True, exist_ok=True)
    # The agent's socket has a short path limit: not below a test's long directory.
    home = Path(tempfile.mkdtemp(prefix="gpg-"))
    clock = ["--faked-system-time", at] if at else []
    empty = Signer(home, Path(), "")
    try:
        empty._gpg(
            *clock, "--passphrase", "", "--quick-generate-key", "Archive <a@example.org>",
            "ed25519", "sign", expires,
        )  # fmt: skip
        keyring = directory / "archive.gpg"
        keyring.write_bytes(empty._gpg("--export"))
        yield Signer(home, keyring, empty._gpg("--armor", "--export").decode(), not at)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
        shutil.rmtree(home, ignore_errors=True)


class DebArchive:
    """Packages in a pool, indexed and signed by `publish`."""

    def __init__(self, root: Path, key: Signer, suite: str = "bookworm") -> None:
        self.root = root
        self.key = key
        self.suite = suite
        self.stanzas: dict[str, list[str]] = {}
        self.fields: dict[str, str] = {
            "Origin": "Test",
            "Suite": "oldstable",
            "Codename": suite,
            "Acquire-By-Hash": "no",
        }

    def add(self, name: str, version: str, body: bytes, *, component: str = "main",
            location: str = "", extra: str = "") -> str:  # fmt: skip
        """Puts a package into the pool; returns its location."""
        file = f"{name}_{version.rpartition(':')[2]}_amd64.deb"
        location = location or f"pool/{component}/{name[0]}/{name}/{file}"
        path = self.root / location
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        self.stanzas.setdefault(component, []).append(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n"
            f"Description: a test\n more of it\n{extra}Filename: {location}\n"
            f"Size: {len(body)}\nSHA256: {hashlib.sha256(body).hexdigest()}\n"
        )
        return location

    def publish(self, *, suffixes: tuple[str, ...] = ("", ".gz", ".xz"),
                declared: Mapping[str, bytes] | None = None) -> None:  # fmt: skip
        """Writes Packages and a signed InRelease; `declared` replaces what is said of a file."""
        dist = self.root / "dists" / self.suite
        lines = []
        for component, stanzas in self.stanzas.items():
            text = "\n".join(stanzas).encode()
            packed = {"": text, ".gz": gzip.compress(text), ".xz": lzma.compress(text)}
            for suffix in suffixes:
                name = f"{component}/binary-amd64/Packages{suffix}"
                path = dist / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(packed[suffix])
                if self.fields.get("Acquire-By-Hash") == "yes":
                    digest = hashlib.sha256(packed[suffix]).hexdigest()
                    by_hash = path.parent / "by-hash" / "SHA256" / digest
                    by_hash.parent.mkdir(parents=True, exist_ok=True)
                    by_hash.write_bytes(packed[suffix])
                said = (declared or {}).get(name, packed[suffix])
                lines.append(f" {hashlib.sha256(said).hexdigest()} {len(said)} {name}")
        self.release = "".join(f"{key}: {value}\n" for key, value in self.fields.items())
        self.release += "SHA256:\n" + "\n".join(lines) + "\n"
        if self.key.signs_now:
            self.sign(self.key)

    def sign(self, key: Signer, *options: str) -> None:
        """Signs the release text anew."""
        path = self.root / "dists" / self.suite / "InRelease"
        path.write_bytes(key.sign(self.release, *options))
