"""A FIFO or a device in the place of a file that somebody names: refused, never waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.demo import Demo

COMMANDS = {
    "key trust": ["key", "trust", "FILE"],
    "rotated key": ["key", "trust", "FILE.json"],
    "import": ["import", "FILE"],
    "export --have": ["export", "demo", "-o", "x.bundle", "--have", "FILE"],
    "diff": ["diff", "file:FILE", "file:FILE"],
    "verdict": ["verdict", "FILE", "FILE"],
    "image verify": ["image", "verify", "file:FILE"],
    "qualify": ["qualify", "demo", "--import", "FILE"],
    "compose": ["compose", "FILE", "--output-dir", "x"],
    "audit": ["audit", "FILE"],
    "init": ["init", "--from-lock", "FILE"],
    "contract": ["init", "--from-contract", "FILE"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("what", ["fifo", "device"])
def test_what_is_no_file_is_refused(
    demo_template: Demo, tmp_path: Path, what: str, words: list[str]
) -> None:
    for name in ("it", "it.json"):
        if what == "fifo":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to("/dev/zero")
    given = [word.replace("FILE", str(tmp_path / "it")) for word in words]
    done = demo_template.run(
        *given,
        status=None,
        cwd=tmp_path,
        env={"XDG_CONFIG_HOME": str(tmp_path / "config")},
        timeout=120,  # a hang, not slowness
    )
    assert done.status in (1, 2, 3, 4), done.err
    assert "error: " in done.err
    assert str(tmp_path / "it") in done.err or "/dev/zero" in done.err
    assert not (tmp_path / "x.bundle").exists()
