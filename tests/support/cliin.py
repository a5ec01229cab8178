"""The command line in this process: quick, and everything but the interpreter's start is real."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from reprobuild.cli.main import run


@dataclass(frozen=True)
class Said:
    """What a call ended with."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


def cli(*argv: str) -> Said:
    """Runs `reprobuild ARGV…`; with --offline in a process of its own, which it seals."""
    if "--offline" in argv:
        done = subprocess.run(
            [sys.executable, "-m", "reprobuild", *argv], capture_output=True, text=True, check=False
        )
        return Said(done.returncode, done.stdout, done.stderr)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run([str(a) for a in argv])
    return Said(status, out.getvalue(), err.getvalue())
