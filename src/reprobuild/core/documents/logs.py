"""Reading a server's log against a release: what it must say, and what spoils a comparison.

A log is hostile text: lines are looked at one by one, and only so much of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from reprobuild.core.documents.facts import ReleaseFacts
from reprobuild.core.documents.prose import fill
from reprobuild.core.documents.runbook import Served
from reprobuild.core.profiles.model import LogChecks

MAX_LINE = 20_000
_FIELD = re.compile(r"\b(?P<key>[A-Za-z_][A-Za-z0-9_]{0,60})=(?P<value>[^\s,;]{1,200})")
_KV = re.compile(r"[:=]\s*(?P<size>[0-9][0-9,._]*)\s*(?P<unit>[A-Za-z]*)")
_EAGER = re.compile(r"enforce[_-]eager[=:]\s*True|eager (?:mode|decode|dispatch)", re.IGNORECASE)
_NOT = re.compile(r"\b(?:no|not|without|disabled?)\b", re.IGNORECASE)
_JIT = re.compile(r"/cache/jit/(?P<print>[A-Za-z0-9][A-Za-z0-9._-]{5,200})")

State = Literal["ok", "missing", "invalidates"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for: `missing` was not in the log, `invalidates` makes figures of
    this server no measure of the release. `line` counts from 1; 0 where there is none."""

    check: str
    state: State
    said: str
    line: int = 0


def check_logs(
    lines: Iterable[str], facts: ReleaseFacts, name: str, served: Served, values: Mapping[str, str]
) -> list[Finding]:
    """Every finding, in the order of the checks; raises E-FLAKE for a profile without `log`."""
    log = served.profile.log or LogChecks()
    where = f"outputs.{facts.output}.profiles.{name}.log.version"
    version = fill(log.version, values, where) if log.version else ""
    reader = _Reader(log, facts, served, version)
    for number, line in enumerate(lines, 1):
        reader.take(number, line[:MAX_LINE])
    return reader.findings()


class _Reader:
    def __init__(self, log: LogChecks, facts: ReleaseFacts, served: Served, version: str) -> None:
        self.log, self.facts, self.served, self.version = log, facts, served, version
        self.launch: tuple[int, dict[str, str]] | None = None
        self.seen_version = 0
        self.kv: tuple[int, str] | None = None
        self.captured: list[tuple[int, str]] = []
        self.spoilt: list[Finding] = []
        self.labels: dict[str, int] = {}

    def take(self, number: int, line: str) -> None:
        """Looks at one line."""
        if self.log.launch and self.log.launch in line:
            said = line.partition(self.log.launch)[2]
            fields = {m["key"]: m["value"] for m in _FIELD.finditer(said)}
            if self.launch is not None and self.launch[1] != fields:
                self._spoils("launch line", "the log has two different launch lines", number)
            self.launch = number, fields
        if self.version and self.version in line:
            self.seen_version = self.seen_version or number
        if self.log.captured and self.log.captured in line:
            self.captured.append((number, line))
        if self.log.kv and self.log.kv in line and self.kv is None:
            size = _KV.search(line.partition(self.log.kv)[2])
            self.kv = number, f"{size['size']} {size['unit']}".strip() if size else ""
        if (eager := _EAGER.search(line)) and not _NOT.search(line[: eager.start()][-40:]):
            self._spoils(
                "eager decode", f"decoding without a CUDA graph: {line.strip()[:120]}", number
            )
        self._sources(number, line)

    def _sources(self, number: int, line: str) -> None:
        for view in self.facts.sources:
            for match in re.finditer(
                rf"(?<![a-z0-9]){re.escape(view.component)}([0-9a-f]{{7,40}})\b", line
            ):
                tree = match[1]
                if view.tree and not view.tree.startswith(tree):
                    what = f"{view.component} tree {tree} is not the release's {view.tree[:12]}"
                    self._spoils("source labels", what, number)
                else:
                    self.labels.setdefault(view.component, number)
        if self.facts.fingerprint:
            for match in _JIT.finditer(line):
                if match["print"] != self.facts.fingerprint:
                    what = f"the JIT cache {match['print'][:80]} is of another image"
                    self._spoils("JIT cache", what, number)

    def _spoils(self, check: str, said: str, line: int) -> None:
        if not any(f.check == check and f.said == said for f in self.spoilt):
            self.spoilt.append(Finding(check, "invalidates", said, line))

    def findings(self) -> list[Finding]:
        """After the last line."""
        found = [*self._launch(), *self._version(), *self._graphs(), *self._kv()]
        for component, line in self.labels.items():
            found.append(Finding("source labels", "ok", f"{component} is the release's tree", line))
        return found + self.spoilt

    def _launch(self) -> list[Finding]:
        if not self.log.launch:
            return []
        if self.launch is None:
            return [Finding("launch line", "missing", f"no line has {self.log.launch!r}")]
        number, fields = self.launch
        found = []
        for key, setting in self.log.fields.items():
            wanted = self.served.resolved.settings.get(setting)
            got = fields.get(key)
            if got is None:
                found.append(
                    Finding(f"launch {key}", "missing", f"expected {key}={wanted}", number)
                )
            elif got != str(wanted):
                said = f"{key}={got[:80]}; the release has {key}={wanted}"
                found.append(Finding(f"launch {key}", "invalidates", said, number))
            else:
                found.append(Finding(f"launch {key}", "ok", f"{key}={got}", number))
        return found

    def _version(self) -> list[Finding]:
        if not self.version:
            return []
        if self.seen_version:
            return [Finding("version", "ok", self.version, self.seen_version)]
        return [Finding("version", "missing", f"no line has {self.version!r}")]

    def _graphs(self) -> list[Finding]:
        if not self.log.captured:
            return []
        if not self.captured:
            return [Finding("CUDA graphs", "missing", f"no line has {self.log.captured!r}")]
        found = []
        for graph in self.log.graphs:
            line = next((n for n, text in self.captured if graph.lower() in text.lower()), 0)
            state: State = "ok" if line else "missing"
            found.append(
                Finding(f"graph {graph}", state, "captured" if line else "not captured", line)
            )
        return found or [Finding("CUDA graphs", "ok", "captured", self.captured[0][0])]

    def _kv(self) -> list[Finding]:
        if not self.log.kv:
            return []
        if self.kv is None:
            return [Finding("KV cache", "missing", f"no line has {self.log.kv!r}")]
        number, size = self.kv
        return [Finding("KV cache", "ok" if size else "missing", size or "no size is said", number)]
