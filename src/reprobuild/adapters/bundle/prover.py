"""Rebuilding a bundle from itself alone: an empty store, no network, no record of any build."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reprobuild import __version__
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError

_COMMAND = "from reprobuild.cli.main import entry; entry()"
_NAMESPACES = (("unshare", "--net"), ("unshare", "--user", "--map-current-user", "--net"))


def rebuild(
    bundle: Path, digest: str, installables: Sequence[str], isolation: str | None
) -> dict[str, Value]:
    """The certificate's document, unsigned.

    The work is done beside the bundle and removed. Raises E-PROOF with the error of the import
    or the rebuild when it could not be done; outputs that differ are in the certificate.
    """
    home = Path(tempfile.mkdtemp(prefix=".proof-", dir=bundle.parent))
    home.chmod(0o755)
    try:
        network = _network()
        base = [*network, sys.executable, "-P", "-c", _COMMAND, "--offline", "--json", "--quiet"]
        base += ["--store", str(home / "store")]
        project = home / "project"
        words = ["import", str(bundle), "--unsigned", "--project", str(project)]
        imported = _run([*base, *words], home, (0,))
        grade = ["--isolation", isolation] if isolation else []
        call = ["-C", str(project), "realize", *grade, "--from-source", "--keep-going"]
        done = _run([*base, *call, *installables], home, (0, 6))
    finally:
        _remove(home)
    return {
        "bundle": digest.removeprefix("blake3:"),
        "compared": _compared(done),
        "counts": done.get("counts"),
        "host": _host(),
        "imported": {"added": imported["added"], "records_left_out": imported["records_left_out"]},
        "isolation": sorted({o["isolation"] for o in done.get("outputs", {}).values()}),
        "network": " ".join(network) or "seccomp alone",
        "outputs": {n: o["tree"] for n, o in done.get("outputs", {}).items()},
        "reprobuild": __version__,
    }


def _compared(done: Mapping[str, Any]) -> Value:
    if "compared" in done:
        found: Value = done["compared"]
        return found
    facts = done["error"]["facts"]
    different = {str(n): text for n, text in enumerate(facts.get("different", ["?"]))}
    return {"different": different, "equal": 0, "unknown": 0}


def _network() -> list[str]:
    """The words that run something in a network namespace of its own, where that can be had."""
    for words in _NAMESPACES:
        if shutil.which(words[0]) is None:
            continue
        trial = subprocess.run([*words, "true"], capture_output=True, check=False)
        if trial.returncode == 0:
            return list(words)
    return []


def _run(argv: Sequence[str], home: Path, good: Sequence[int]) -> dict[str, Any]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("REPROBUILD_")}
    done = subprocess.run(
        argv, capture_output=True, stdin=subprocess.DEVNULL, cwd=home, env=env, check=False
    )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {}
    if not isinstance(document, dict) or done.returncode not in good or not document:
        error = document.get("error", {}) if isinstance(document, dict) else {}
        said = error.get("message") or done.stderr.decode("utf-8", "replace")[-1000:]
        raise ReprobuildError(
            "E-PROOF",
            f"the rebuild from the bundle alone failed: {said}",
            hint=str(error.get("hint", "see what it says")),
            because=str(error.get("code", done.returncode)),
        )
    return document


def _remove(home: Path) -> None:
    for top, _, _ in os.walk(home):
        if not os.path.islink(top):  # noqa: PTH114
            os.chmod(top, 0o755)  # noqa: PTH101, S103
    shutil.rmtree(home, ignore_errors=True)


def _host() -> dict[str, Value]:
    names = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return {
        "cpus": os.cpu_count() or 0,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "system": names.get("PRETTY_NAME", platform.system()),
        "uid": os.geteuid(),
    }
