"""Which host tools a build of a weaker grade stands on, as one digest.

With the host's toolchain, the host is an input. Hashing all of /usr for every run would take
minutes, so what decides objects is hashed by content: compilers, assembler, linker, archiver,
interpreter, shell, C library and loader, and the release's name. The digest is part of every
action digest of that grade; a record of one host does not serve another.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from reprobuild.core.digest import blob_hasher

_TOOLS = ("sh", "gcc", "g++", "cc", "c++", "as", "ld", "ar", "ranlib", "python3", "perl", "make",
          "ninja", "cmake", "nvcc", "ptxas", "cicc", "fatbinary", "nvlink")  # fmt: skip
_PARTS = ("cc1", "cc1plus", "collect2", "lto1")
_FILES = (
    "/etc/os-release",
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib64/libstdc++.so.6",
)


def host_tools_digest() -> str:
    """Twelve hex digits over names and contents of the host's tools; absent ones count as such."""
    hasher = blob_hasher()
    for name, path in _found():
        hasher.update(name.encode() + b"\0")
        if path is None:
            hasher.update(b"absent\0")
            continue
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                hasher.update(chunk)
    return hasher.hexdigest()[:12]


def _found() -> Iterator[tuple[str, Path | None]]:
    search = "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin"
    for tool in _TOOLS:
        path = shutil.which(tool, path=search)
        yield tool, Path(path).resolve() if path else None
    gcc = shutil.which("gcc", path=search)
    for part in _PARTS:
        yield part, _part(gcc, part) if gcc else None
    for file in _FILES:
        yield file, Path(file).resolve() if Path(file).exists() else None


def _part(gcc: str, part: str) -> Path | None:
    try:
        said = subprocess.run(
            [gcc, f"-print-prog-name={part}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    path = Path(said)
    return path.resolve() if path.is_absolute() and path.is_file() else None
