"""Programs that go into images, as files."""

from __future__ import annotations

from pathlib import Path


def contract_program() -> str:
    """The text of the program that prints an image's runtime contract inside it."""
    return Path(__file__).with_name("contract.py").read_text(encoding="utf-8")
