"""Figures of a run in the OpenMetrics text format (version 1.0), for Prometheus and its kin.

One sample for each derivation that was made or looked up, labelled with its name, its drv digest,
how it was come by, and the server where that was not this machine.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from reprobuild.adapters.places import check_place
from reprobuild.adapters.report.whole import write_whole
from reprobuild.core.encoding import Value

FAMILIES: Mapping[str, tuple[str, str, str]] = {
    "seconds": ("seconds", "seconds", "From its turn to its end, as seen from here"),
    "run_seconds": ("run_seconds", "seconds", "At work, on the server that ran it"),
    "queued_seconds": ("queued_seconds", "seconds", "Waiting for a worker"),
    "uploaded_bytes": ("uploaded_bytes", "bytes", "Sent for it"),
    "downloaded_bytes": ("downloaded_bytes", "bytes", "Received for it"),
    "attempts": ("attempts", "", "Times that a server was asked"),
}


@dataclass
class OpenMetrics:
    """A reporter that keeps figures, and writes them when it is closed."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    _since: dict[str, float] = field(default_factory=dict)
    _remote: dict[str, dict[str, Value]] = field(default_factory=dict)
    _samples: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    _total: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        check_place(self.path, "--metrics")

    def emit(self, event: str, **fields: Value) -> None:
        """Takes an event."""
        name = str(fields.get("name", ""))
        with self._lock:
            if event == "started":
                self._since[name] = self.clock()
            elif event == "remote":
                self._remote[name] = dict(fields)
            elif event in ("finished", "failed"):
                self._end(name, event, fields)

    def _end(self, name: str, event: str, fields: Mapping[str, Value]) -> None:
        how = "failed" if event == "failed" else str(fields.get("how", ""))
        remote = self._remote.pop(name, {})
        labels = {"name": name, "drv": str(fields.get("drv", "")), "how": how}
        if remote.get("node"):
            labels["node"] = str(remote["node"])
        self._total[how] += 1
        begun = self._since.pop(name, None)
        if begun is not None:
            self._sample("seconds", labels, self.clock() - begun)
        if remote:
            self._sample("run_seconds", labels, cast(int, remote["duration_ms"]) / 1000)
            self._sample("queued_seconds", labels, cast(int, remote["queued_ms"]) / 1000)
            for key in ("uploaded", "downloaded"):
                self._sample(f"{key}_bytes", labels, cast(int, remote[key]))
            self._sample("attempts", labels, cast(int, remote["attempts"]))

    def _sample(self, family: str, labels: dict[str, str], value: float) -> None:
        self._samples.setdefault(family, []).append((labels, value))

    def text(self) -> str:
        """All of it."""
        lines: list[str] = []
        for key, (suffix, unit, words) in FAMILIES.items():
            samples = self._samples.get(key)
            if not samples:
                continue
            family = f"reprobuild_action_{suffix}"
            lines.append(f"# TYPE {family} gauge")
            if unit:
                lines.append(f"# UNIT {family} {unit}")
            lines.append(f"# HELP {family} {words}.")
            lines += [f"{family}{_labels(labels)} {value:.6g}" for labels, value in samples]
        if self._total:
            lines += [
                "# TYPE reprobuild_actions counter",
                "# HELP reprobuild_actions Derivations of this run, by how they were come by.",
            ]
            lines += [
                f"reprobuild_actions_total{_labels({'how': how})} {count}"
                for how, count in sorted(self._total.items())
            ]
        return "\n".join([*lines, "# EOF"]) + "\n"

    def close(self) -> None:
        """Writes the file; raises E-WRITE."""
        with self._lock:
            text = self.text()
        write_whole(self.path, text.encode())


def _labels(labels: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return "{" + ",".join(f'{key}="{quoted(value)}"' for key, value in labels.items()) + "}"
