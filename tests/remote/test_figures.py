"""The timeline and the figures of a run, in the forms of others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reprobuild.adapters.report.metrics import OpenMetrics
from reprobuild.adapters.report.trace import ChromeTrace
from reprobuild.errors import ReprobuildError

SAMPLE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\["\\n])*",?)*\})? [0-9.e+-]+\Z')


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def tell(reporter: Any, clock: Clock) -> None:
    """Two builds at once, one of them on a server, and one that failed."""
    reporter.emit("started", name="a", drv="blake3:a", kind="build")
    clock.now += 1
    reporter.emit("started", name='b"\n', drv="blake3:b", kind="build")
    clock.now += 2
    reporter.emit(
        "remote", name="a", node="h:1", cached=False, attempts=2, queued_ms=500, duration_ms=1500,
        uploaded=10, downloaded=20,
    )  # fmt: skip
    reporter.emit("finished", name="a", drv="blake3:a", how="built", duration_ms=1500)
    reporter.emit("note", text="something")
    clock.now += 1
    reporter.emit("failed", name='b"\n', drv="blake3:b", error="no", code="E-BUILD-FAILED")


def test_a_timeline(tmp_path: Path) -> None:
    clock = Clock()
    trace = ChromeTrace(tmp_path / "trace.json", clock)
    tell(trace, clock)
    trace.close()
    document = json.loads((tmp_path / "trace.json").read_text())
    events = document["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    spans = {
        (processes[e["pid"]], e["name"]): (e["ts"], e["dur"], e["tid"], e["cat"])
        for e in events
        if e["ph"] == "X"
    }
    assert spans == {
        ("this machine", "a"): (0, 3_000_000, 1, "built"),
        ("this machine", 'b"\n'): (1_000_000, 3_000_000, 2, "E-BUILD-FAILED"),
        ("h:1", "a"): (1_500_000, 1_500_000, 1, "remote"),
        ("h:1 (queue)", "a"): (1_000_000, 500_000, 1, "queue"),
    }
    assert [e["name"] for e in events if e["ph"] == "i"] == ["something"]


def test_spans_of_one_row_do_not_overlap(tmp_path: Path) -> None:
    clock = Clock()
    trace = ChromeTrace(tmp_path / "t", clock)
    for i in range(20):
        trace.emit("started", name=str(i))
        clock.now += 0.1
        if i >= 3:
            trace.emit("finished", name=str(i - 3), how="built")
    trace.close()
    rows: dict[int, list[tuple[int, int]]] = {}
    for e in json.loads((tmp_path / "t").read_text())["traceEvents"]:
        if e["ph"] == "X":
            rows.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
    for spans in rows.values():
        assert all(a[1] <= b[0] for a, b in zip(sorted(spans), sorted(spans)[1:], strict=False))


def test_figures(tmp_path: Path) -> None:
    clock = Clock()
    figures = OpenMetrics(tmp_path / "m.txt", clock)
    tell(figures, clock)
    figures.close()
    text = (tmp_path / "m.txt").read_text()
    assert text.endswith("# EOF\n")
    lines = text.splitlines()[:-1]
    assert all(line.startswith("# ") or SAMPLE.match(line) for line in lines)
    a = '{name="a",drv="blake3:a",how="built",node="h:1"}'
    assert f"reprobuild_action_seconds{a} 3" in lines
    assert f"reprobuild_action_run_seconds{a} 1.5" in lines
    assert f"reprobuild_action_queued_seconds{a} 0.5" in lines
    assert f"reprobuild_action_uploaded_bytes{a} 10" in lines
    assert f"reprobuild_action_attempts{a} 2" in lines
    assert r'reprobuild_action_seconds{name="b\"\n",drv="blake3:b",how="failed"} 3' in lines
    assert 'reprobuild_actions_total{how="built"} 1' in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(families)) == len(families)


@pytest.mark.parametrize("kind", [ChromeTrace, OpenMetrics])
def test_a_place_that_cannot_be_written_is_refused_at_once(kind: Any, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none" / "file"):
        with pytest.raises(ReprobuildError) as caught:
            kind(place)
        assert caught.value.code == "E-USAGE"
