"""What pushes remember from one run to the next: open upload sessions, and where blobs are.

Nothing depends on it but speed: a file that is missing or damaged counts as empty. Sessions may
hold what a registry signed for this user, so the files are the user's alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from reprobuild.adapters.fetch.ocireference import ImageReference

MOST_BLOBS = 20_000
MOST_REPOSITORIES = 4


class PushMemory:
    """Kept below `home`; with None, nothing is remembered."""

    def __init__(self, home: Path | None) -> None:
        self._home = home

    def _session_file(self, target: ImageReference, digest: str) -> Path | None:
        if self._home is None:
            return None
        key = f"{target.host}/{target.repository}@{digest}"
        return self._home / "sessions" / hashlib.sha256(key.encode()).hexdigest()

    def session(self, target: ImageReference, digest: str) -> str:
        """The address of an open upload; empty when none is known."""
        file = self._session_file(target, digest)
        with suppress(OSError, ValueError):
            return file.read_text("utf-8") if file is not None else ""
        return ""

    def keep_session(self, target: ImageReference, digest: str, place: str) -> None:
        """Remembers an open upload."""
        file = self._session_file(target, digest)
        if file is not None:
            _write(file, place)

    def forget_session(self, target: ImageReference, digest: str) -> None:
        """The upload is done, or lost."""
        file = self._session_file(target, digest)
        if file is not None:
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def _known_file(self, host: str) -> Path | None:
        if self._home is None:
            return None
        return self._home / "known" / f"{hashlib.sha256(host.encode()).hexdigest()}.json"

    def _known(self, host: str) -> dict[str, list[str]]:
        file = self._known_file(host)
        with suppress(OSError, ValueError, AttributeError, TypeError):
            if file is not None:
                found = json.loads(file.read_text("utf-8"))
                return {str(k): [str(name) for name in v] for k, v in found.items()}
        return {}

    def sources(self, digest: str, target: ImageReference, stated: Sequence[str]) -> list[str]:
        """Repositories of the target's registry that may have the blob, `stated` ones first."""
        names = [*stated, *self._known(target.host).get(digest, [])]
        return [name for name in dict.fromkeys(names) if name != target.repository]

    def repositories(self, host: str) -> list[str]:
        """Every repository of a registry that something is known of."""
        return sorted({name for names in self._known(host).values() for name in names})

    def learn(self, target: ImageReference, digests: Iterable[str]) -> None:
        """These blobs are in the target's repository now."""
        file = self._known_file(target.host)
        if file is None:
            return
        known = self._known(target.host)
        for digest in digests:
            names = [target.repository, *known.pop(digest, [])]
            known[digest] = list(dict.fromkeys(names))[:MOST_REPOSITORIES]
        kept = dict(list(known.items())[-MOST_BLOBS:])
        _write(file, json.dumps(kept))


def _write(file: Path, text: str) -> None:
    """Whole or not at all, for the user alone; failing is no harm."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(prefix=".new-", dir=file.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                out.write(text)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
