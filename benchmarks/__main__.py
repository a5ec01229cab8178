"""All benchmarks: one table of ratios, then those that print tables of their own.

    python benchmarks [--quick] [--rounds N] [--only-table]

Exits 1 when a ratio is not what was wanted, or a benchmark fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import content
import realize
import upkeep
from harness import HEAD, rows

IN_THE_TABLE = ("harness", "graphs", "nix", "realize", "content", "upkeep", "__main__")


def main() -> int:
    """Measures everything; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the small sizes alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only-table", action="store_true", help="leave the others out")
    given = parser.parse_args()
    print(HEAD)
    done = [
        row
        for part in (realize, content, upkeep)
        for row in rows(part.ALL, [], given.quick, given.rounds)
    ]
    status = 0 if all(row.good() for row in done) else 1
    if not given.only_table:
        for file in sorted(Path(__file__).parent.glob("*.py")):
            if file.stem not in IN_THE_TABLE:
                print(f"\n== {file.name}", flush=True)
                status |= subprocess.run([sys.executable, str(file)], check=False).returncode != 0
    print(f"\n{HEAD}")
    for row in done:
        print(row.line())
    return status


if __name__ == "__main__":
    sys.exit(main())
