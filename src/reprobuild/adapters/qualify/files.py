"""Reading and keeping evidence: a file a gate, so that a project's history shows what was run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from reprobuild.core.evidence import MAX_BYTES, Evidence, parse_evidence
from reprobuild.core.schema import is_name
from reprobuild.errors import ReprobuildError

DIRECTORY = "evidence"


class EvidenceFiles:
    """The evidence of a project."""

    def __init__(self, project: Path) -> None:
        self._home = project / DIRECTORY

    def of(self, output: str) -> dict[str, Evidence]:
        """The evidence of an output, by gate; raises E-EVIDENCE for a file that is none."""
        found: dict[str, Evidence] = {}
        folder = self._home / output
        try:
            names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".json"))
        except (FileNotFoundError, NotADirectoryError):
            return found
        for name in names:
            evidence = read_evidence(folder / name, f"{DIRECTORY}/{output}/{name}")
            if evidence.output != output or f"{evidence.gate}.json" != name:
                raise ReprobuildError(
                    "E-EVIDENCE",
                    f"{DIRECTORY}/{output}/{name} is of gate {evidence.gate} of {evidence.output}",
                    file=f"{DIRECTORY}/{output}/{name}",
                )
            found[evidence.gate] = evidence
        return found

    def keep(self, evidence: Evidence) -> Path:
        """Writes it, whole or not at all; what was there of this gate gives way."""
        if not is_name(evidence.output) or not is_name(evidence.gate):
            raise ReprobuildError("E-EVIDENCE", "evidence of a gate that has no proper name")
        folder = self._home / evidence.output
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{evidence.gate}.json"
        descriptor, temporary = tempfile.mkstemp(prefix=".evidence-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(evidence.text().encode())
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return path


def read_evidence(path: Path, name: str) -> Evidence:
    """From a file; raises E-EVIDENCE."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ReprobuildError(
            "E-EVIDENCE", f"{name} cannot be read: {reason}", file=name
        ) from error
    return parse_evidence(data, name)
