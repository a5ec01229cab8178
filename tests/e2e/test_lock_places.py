"""What `lock` says of places that hold no git repository, and of repositories that are hostile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cliin import Said, cli


def project(path: Path, url: str) -> Callable[..., Said]:
    """A flake over a repository; what runs the command in it."""
    (path / "derivations").mkdir(parents=True)
    (path / "derivations" / "lib.toml").write_text('input = "lib"\nresult = "source"\n')
    (path / "flake-like.toml").write_text(
        'format = 0\ndefault = "rel"\n'
        f'[inputs.lib]\nkind = "git"\nurl = "{url}"\nref = "refs/heads/main"\n'
        '[outputs.rel]\ncomponents = ["lib"]\n'
        '[outputs.rel.sources.lib]\ninput = "lib"\nheads = [{ number = 1 }]\n'
    )
    return lambda *argv: cli("-C", str(path), "--store", str(path.parent / "store"), *argv)


def absent(place: Path) -> None:
    pass


def closed(place: Path) -> None:
    place.mkdir()
    place.chmod(0)


@pytest.mark.parametrize(
    "make",
    [
        absent,
        Path.mkdir,
        lambda place: place.write_text("no repository\n"),
        lambda place: place.write_text("x" * 5000),
        lambda place: place.write_bytes(b"gitdir: " + bytes(100)),
        lambda place: place.write_text("gitdir: " + "y" * 3000),
        lambda place: place.symlink_to("/dev/zero"),
        lambda place: place.symlink_to(place),
        os.mkfifo,
        closed,
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_place_without_a_repository_is_left_open(
    make: Callable[[Path], object], scheme: str, tmp_path: Path
) -> None:
    """As one that cannot be reached: what is wanted of it waits, and the words say why."""
    place = tmp_path / "place"
    make(place)
    run = project(tmp_path / "project", f"{scheme}{place}")
    said = run("lock")
    assert said.status == 0, said
    assert f"there is no git repository at {scheme}{place}" in said.err
    assert "reached and does not have it" not in said.err
    for argv in (("lock", "--check"), ("realize", "rel")):
        later = run(*argv)
        assert later.status == 4
        assert "E-GIT-FETCH" in later.err and "does not have it" not in later.err
