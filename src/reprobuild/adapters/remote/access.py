"""What lets this machine in: certificates, and a bearer token from a file or a helper.

    [remote]                        # of the user's configuration; for every server
    ca = "/etc/ssl/build-ca.pem"
    certificate = "~/.config/build/client.pem"
    key = "~/.config/build/client.key"
    token-file = "~/.config/build/token"
    credential-helper = ["build-token", "get"]    # Bazel's protocol, or prints the token alone

    [remote."build.example:443"]    # for this one
    properties = { pool = "large" }
    jobs = 200

Secrets are read here and go into the metadata of calls; no argument, environment variable,
address, event, log or error has them.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reprobuild.adapters.remote.address import is_loopback
from reprobuild.errors import ReprobuildError

_HELPER_SECONDS = 60
_REREAD = 60.0
"""Seconds for which a helper's token is used, where it does not say."""

_KEYS = frozenset(
    {"ca", "certificate", "credential-helper", "jobs", "key", "properties", "token-file"}
)


@dataclass(frozen=True, slots=True)
class Access:
    """What the configuration says of one server."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    token_file: str = ""
    helper: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    jobs: int = 0

    def pem(self, path: str, what: str) -> bytes | None:
        """A file's bytes, None for no file; raises E-REMOTE-ACCESS."""
        if not path:
            return None
        try:
            return Path(path).expanduser().read_bytes()
        except OSError as error:
            raise ReprobuildError(
                "E-REMOTE-ACCESS", f"the {what} {path} cannot be read: {error.strerror}", file=path
            ) from error


def parse_access(table: object, host: str) -> Access:
    """The `[remote]` table for `host:port`; raises E-CONFIG."""
    if not isinstance(table, dict):
        raise ReprobuildError("E-CONFIG", "[remote] must be a table", key="remote")
    merged = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if isinstance(table.get("properties"), dict):
        merged["properties"] = table["properties"]
    own = table.get(host, {})
    if not isinstance(own, dict):
        raise ReprobuildError("E-CONFIG", f'[remote."{host}"] must be a table', key="remote")
    merged.update(own)
    unknown = sorted(set(merged) - _KEYS)
    if unknown:
        raise ReprobuildError(
            "E-CONFIG", f"[remote] has no key {unknown[0]!r}", key="remote", known=sorted(_KEYS)
        )
    helper, properties = merged.get("credential-helper", []), merged.get("properties", {})
    jobs = merged.get("jobs", 0)
    words = [merged.get(key, "") for key in ("ca", "certificate", "key", "token-file")]
    good = (
        all(isinstance(word, str) for word in words)
        and isinstance(helper, list)
        and all(isinstance(word, str) for word in helper)
        and isinstance(properties, dict)
        and all(isinstance(value, str) for value in properties.values())
        and type(jobs) is int
        and jobs >= 0
    )
    if not good:
        raise ReprobuildError(
            "E-CONFIG",
            "[remote]: paths are strings, credential-helper a list of words, properties a table "
            "of strings, jobs a number",
            key="remote",
        )
    ca, certificate, key, token_file = words
    return Access(ca, certificate, key, token_file, tuple(helper), properties, jobs)


class Token:
    """A bearer token, read again when its file changed, or asked for anew when it got old."""

    def __init__(self, access: Access, host: str, *, secure: bool) -> None:
        self._access, self._host = access, host
        self._lock = threading.Lock()
        self._value = ""
        self._stamp: tuple[int, int] | None = None
        self._until = 0.0
        wanted = bool(access.token_file or access.helper)
        if wanted and not secure and not is_loopback(host):
            raise ReprobuildError(
                "E-REMOTE-ACCESS",
                f"a token would go to {host} in the clear",
                hint="say grpcs://, or leave the token out",
            )

    def metadata(self) -> list[tuple[str, str]]:
        """For a call; raises E-REMOTE-ACCESS."""
        with self._lock:
            if self._access.token_file:
                self._read()
            elif self._access.helper and time.monotonic() >= self._until:
                self._ask()
            return [("authorization", f"Bearer {self._value}")] if self._value else []

    def forget(self) -> None:
        """The server refused it: the next call asks again."""
        with self._lock:
            self._until, self._stamp = 0.0, None

    def redact(self, text: str) -> str:
        """Text of a server's, without the token."""
        return text.replace(self._value, "…") if self._value else text

    def _read(self) -> None:
        path = Path(self._access.token_file).expanduser()
        try:
            info = path.stat()
            stamp = (info.st_mtime_ns, info.st_size)
            if stamp != self._stamp:
                self._value = path.read_text("ascii").strip()
                self._stamp = stamp
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise ReprobuildError(
                "E-REMOTE-ACCESS",
                f"the token file {path} cannot be read: {reason}",
                file=os.fspath(path),
            ) from None

    def _ask(self) -> None:
        """Bazel's credential-helper protocol; what is no JSON is taken for the token itself."""
        program = self._access.helper[0]
        try:
            done = subprocess.run(
                [*self._access.helper, *(("get",) if len(self._access.helper) == 1 else ())],
                input=json.dumps({"uri": f"https://{self._host}/"}).encode(),
                capture_output=True,
                timeout=_HELPER_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            kind = type(error).__name__
            raise ReprobuildError(
                "E-REMOTE-ACCESS", f"the credential helper {program} failed ({kind})"
            ) from None
        self._value = _token(done.stdout)
        self._until = time.monotonic() + _REREAD
        if not self._value:
            raise ReprobuildError(
                "E-REMOTE-ACCESS", f"the credential helper {program} gave no bearer token"
            )


def _token(answer: bytes) -> str:
    text = answer.decode("ascii", "replace").strip()
    if not text.startswith("{"):
        return text if text.isprintable() and " " not in text else ""
    try:
        headers = json.loads(text)["headers"]
        values = next(v for k, v in headers.items() if k.lower() == "authorization")
        kind, _, value = str(values[0]).partition(" ")
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, IndexError):
        return ""
    return value if kind.lower() == "bearer" else ""
