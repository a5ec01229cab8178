"""How much of the torture is done, and what is counted of it.

By default a sample of seconds; with `--full` (`make torture`) everything. Each test adds to rows of
a table, which is printed at the end and, with `--write FILE`, put between the marks of that page.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Tally = Callable[[str, str, int], None]
_BEGIN, _END = "<!-- counts: made by `make torture` -->", "<!-- end of counts -->"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torture")
    group.addoption("--full", action="store_true", help="all points and full lengths, not a sample")
    group.addoption("--actions", metavar="N", default="100000", help="of the soak, with --full")
    group.addoption("--kills", metavar="N", default="1000", help="of the command, with --full")
    group.addoption("--seed", metavar="N", default="20260101", help="of the moments of these kills")
    group.addoption("--write", metavar="FILE", help="the page that takes the table of counts")


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether everything is asked for."""
    return bool(pytestconfig.getoption("--full", default=False))


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Adds to a row of the table: `tally(row, column, number)`."""

    def add(row: str, column: str, number: int) -> None:
        record_property("tally", [row, column, number])

    return add


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory where that can be had: thousands of stores are made, and what a killed
    process wrote is still there, so nothing would be shown by waiting for a disk."""
    place = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=place if os.access(place, os.W_OK) else None) as name:
        yield Path(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "tally" and report.when == "call":
                    rows.setdefault(value[0], Counter())[value[1]] += value[2]
    if not rows:
        return
    lines = table(rows)
    terminalreporter.section("torture")
    for line in lines:
        terminalreporter.line(line)
    page = terminalreporter.config.getoption("--write", default=None)
    if (
        page
        and not terminalreporter.stats.get("failed")
        and not terminalreporter.stats.get("error")
    ):
        path = Path(page)
        before, _, rest = path.read_text("utf-8").partition(_BEGIN)
        _, _, after = rest.partition(_END)
        text = "\n".join([before + _BEGIN, "", *lines, "", _END]) + after
        path.write_text(text, encoding="utf-8")


def table(rows: dict[str, Counter[str]]) -> list[str]:
    """Markdown: what was done, and the counts of it."""
    lines = ["| what | counts |", "| --- | --- |"]
    for row, counts in rows.items():
        said = ", ".join(f"{number:,} {column}" for column, number in counts.items())
        lines.append(f"| {row} | {said} |")
    return lines
