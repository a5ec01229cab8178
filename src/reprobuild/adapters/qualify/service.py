"""What qualification asks of the world, in one hand: evidence files, this machine, containers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from reprobuild.adapters.qualify.bench import HostBench
from reprobuild.adapters.qualify.files import EvidenceFiles, read_evidence
from reprobuild.core.abi import ElfFacts
from reprobuild.core.evidence import Evidence


class Qualification:
    """Over one project and one environment."""

    def __init__(self, project: Path, environment: Mapping[str, str]) -> None:
        self._files = EvidenceFiles(project)
        self.bench = HostBench(environment)

    def of(self, output: str) -> dict[str, Evidence]:
        """The recorded evidence of an output, by gate; raises E-EVIDENCE."""
        return self._files.of(output)

    def keep(self, evidence: Evidence) -> Path:
        """Records evidence; what was recorded of this gate gives way."""
        return self._files.keep(evidence)

    def read(self, path: Path) -> Evidence:
        """Evidence from any file; raises E-EVIDENCE. Whose it is, is not looked at."""
        return read_evidence(path, str(path))

    def compose_takes(self, text: str) -> tuple[bool | None, str]:
        """Whether Compose takes a file of that text (None: no Compose here), and its words."""
        with tempfile.TemporaryDirectory(prefix="reprobuild-") as folder:
            path = Path(folder) / "compose.yml"
            path.write_text(text, encoding="utf-8")
            return self.bench.compose_config(path)

    def run_image(self, layout: Path, reference: str, argv: Sequence[str]) -> tuple[int, str]:
        """Runs an image once in Docker; raises E-DOCKER-UNAVAILABLE, E-DOCKER."""
        from reprobuild.adapters.docker.run import load_and_run

        return load_and_run(layout, reference, argv)

    @staticmethod
    def read_elf(stream: BinaryIO, path: str) -> ElfFacts | None:
        """What an ELF file needs; None for what is none."""
        from reprobuild.adapters.elf.read import read_elf

        return read_elf(stream, path)
