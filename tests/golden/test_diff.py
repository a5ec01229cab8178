"""How one comparison is told, to the letter; and what each part of it says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reprobuild.core.diff.changelog import changelog
from reprobuild.core.diff.markdown import render_markdown
from reprobuild.core.diff.text import render_text
from reprobuild.core.encoding import encode
from reprobuild.engine.diff import failed_checks
from support.diffkit import full_report

HERE = Path(__file__).parent / "diff"

FORMS = {
    "report.txt": lambda: render_text(full_report()),
    "report-all.txt": lambda: render_text(full_report(everything=True), everything=True),
    "report.md": lambda: render_markdown(full_report()),
    "changelog.md": lambda: changelog([full_report()]),
    "report.json": lambda: json.dumps(full_report(), indent=2, sort_keys=True) + "\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_to_the_letter(name: str) -> None:
    """`REPROBUILD_UPDATE_GOLDEN=1` writes them anew; read the difference before it is kept."""
    text = FORMS[name]()
    path = HERE / name
    if os.environ.get("REPROBUILD_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def test_the_report_fits_a_screen() -> None:
    lines = render_text(full_report()).splitlines()
    assert len(lines) <= 60
    assert all(len(line) <= 160 for line in lines)


def test_what_is_not_reproducible_comes_first() -> None:
    lines = render_text(full_report()).splitlines()
    assert lines[3].startswith("NOT REPRODUCIBLE: steady")


def test_the_promised_keys() -> None:
    report = full_report()
    for row in report["components"].values():
        assert {"base", "heads", "tree", "patch", "dependencies", "drv", "output"} <= set(row)
    assert {"kept", "changed", "bytes_to_pull"} <= set(report["layers"])
    assert "causes" in report
    assert "kernels" in report
    encode(report)  # plain data, and nothing else


def test_checks() -> None:
    report = full_report()
    every = ["new-root-cause", "non-reproducible", "kernel-lost", "downgrade", "isolation-weaker"]
    assert list(failed_checks(report, every)) == every
    assert failed_checks(report, ["kernel-lost"]) == {"kernel-lost": ["opt/lib.so: kernel<9>(int)"]}
    assert failed_checks(report, ["downgrade"]) == {"downgrade": ["debian: libc6 2.36 → 2.35"]}
    assert failed_checks(report, []) == {}
