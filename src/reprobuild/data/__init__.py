"""Programs that go into images, as files."""

from __future__ import annotations

from pathlib import Path


def contract_program() -> str:
    """The text of the program that prints an image's runtime contract inside it."""
    return Path(__file__).with_name("contract.py").read_text(encoding="utf-8")


def verify_program() -> str:
    """The text of the program that checks an image's files from inside."""
    return Path(__file__).with_name("verify.py").read_text(encoding="utf-8")
