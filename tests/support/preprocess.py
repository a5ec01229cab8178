"""A tree, cut down to what one unit could read, held against the preprocessor of this machine."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.core.derivation import Derivation, Input, InputContent
from reprobuild.core.digest import Digest
from reprobuild.engine.narrow import Narrower
from support.trees import Given, listing, make

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

DIRECTORIES = ("-I", "one", "-isystem", "two", "-isystem", "two/sub")
FLAGS = ("-nostdinc", "-nostdinc++", "-std=c++17", "-w", "-x", "c++")


@dataclass(frozen=True)
class Cut:
    """What narrowing made of a tree: the files that are left, and why it was left whole."""

    content: MemoryStore
    whole: Digest
    tree: Digest
    note: str

    @property
    def names(self) -> set[str]:
        """Paths of files and links that are left."""
        return set(listing(self.content, self.tree))


def cut(
    files: Mapping[str, Given],
    unit: str = "main.cu",
    *,
    starts: Sequence[str] = (),
    defines: Sequence[str] = (),
    search: bytes = b"exit 0\n",
) -> Cut:
    """Cuts a tree as a cuda-module would. `search` is what the compiler said of its own list of
    directories: here, that there are no more than those of the command line."""
    content = MemoryStore()
    whole = make(content, files)
    one, two = Digest.of(b"source"), Digest.of(b"search")
    derivation = Derivation(
        "m:main.cu",
        "sandbox",
        (Input("source", one, at="/inputs/source"), Input("search", two, at="/search")),
        argv=("cc",),
        narrow={
            "defines": list(defines),
            "directories": ["/inputs/source/one", "/inputs/source/two", "/inputs/source/two/sub"],
            "inputs": ["source"],
            "search": "search",
            "starts": [f"/inputs/source/{unit}", *starts],
        },
    )
    told = make(content, {"directories": search})
    inputs = {"source": InputContent(whole), "search": InputContent(told)}
    narrowed = Narrower(content).narrow(derivation, inputs)
    return Cut(content, whole, narrowed.inputs["source"].digest, narrowed.note)


def preprocessed(
    made: Cut, tree: Digest, unit: str = "main.cu", flags: Sequence[str] = ()
) -> tuple[bool, str]:
    """Whether the preprocessor accepts a unit of a tree, and the text that it makes."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(
            MemoryStore.materialise(made.content, tree), Path(place, "w"), symlinks=True
        )
        done = subprocess.run(
            ["g++", "-E", *FLAGS, *DIRECTORIES, *flags, unit],
            cwd=Path(place, "w"),
            capture_output=True,
            check=False,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )
    return done.returncode == 0, done.stdout.decode(errors="surrogateescape")


def check_equal(made: Cut, unit: str = "main.cu", flags: Sequence[str] = ()) -> None:
    """The cut root and the whole one are one to the compiler.

    A unit that is refused in the cut root is compiled with the whole trees, so that is sound, too;
    what must never be is that both are accepted and differ.
    """
    whole_ok, whole = preprocessed(made, made.whole, unit, flags)
    cut_ok, text = preprocessed(made, made.tree, unit, flags)
    if cut_ok:
        assert whole_ok, "accepted in the cut root alone"
        assert text == whole
