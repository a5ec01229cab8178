"""Five hundred heads on fifty thousand files: memory follows the work, not the tree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "integrate.py"


@pytest.mark.slow
def test_many_heads_on_many_files() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--synthetic", "--heads", "500", "--files", "50000"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = re.findall(r"500 heads on (\d+) files: .* peak (\d+) MiB here, (\d+) MiB", done.stdout)
    (few, here_few, git_few), (many, here_many, git_many) = (tuple(map(int, r)) for r in rows)
    assert many == 10 * few
    assert here_many < 1.5 * here_few + 16
    assert git_many < 1.5 * git_few + 16


@pytest.mark.slow
def test_the_benchmark_runs_its_three_ways_to_one_tree() -> None:
    """Whatever the ratios are on this machine today: the trees must agree."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--rounds", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert "times the bare loop" in done.stdout
