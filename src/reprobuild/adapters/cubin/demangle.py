"""C++ names for people.

By pycxxfilt: LLVM's own demangler, vendored, so that the text does not depend on a C++ library of
the host (cxxfilt asks the host's libstdc++) and CUTLASS's names come out whole (itanium-demangler
does not know C++17 and later). It recurses with the name and can be made to write without end, so
it runs in a child process with limits: a hostile name costs that child, and stays as it is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from reprobuild.errors import ReprobuildError

MAX_NAME = 2**15
"""Longer names stay as they are."""
_RESTARTS = 16
_SECONDS = 20
_ABSENT = 77
"""What the child ends with where the library cannot be imported."""

_PROGRAM = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
resource.setrlimit(resource.RLIMIT_CPU, ({_SECONDS}, {_SECONDS}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    import pycxxfilt
except ImportError:
    sys.exit({_ABSENT})
for line in sys.stdin:
    name = json.loads(line)
    try:
        text = pycxxfilt.itanium_demangle(name)
    except (ValueError, MemoryError):
        text = None
    if text is not None and len(text) > 2**17:
        text = None
    print(json.dumps(text), flush=True)
"""


def demangle(names: Iterable[str]) -> Mapping[str, str]:
    """Each name with its demangled form, or itself where it has none.

    Raises E-ENVIRONMENT where no helper process can demangle: what is compared with these names
    would come out otherwise than elsewhere.
    """
    result = dict.fromkeys(names, "")
    todo = [n for n in result if n.startswith("_Z") and len(n) <= MAX_NAME]
    restarts = 0
    while todo and restarts < _RESTARTS:
        done = _batch(todo)
        result.update((n, text) for n, text in zip(todo, done, strict=False) if text)
        # What is missing begins with the name that the child died of.
        todo = todo[len(done) + 1 :]
        restarts += 1
    return {name: text or name for name, text in result.items()}


def _batch(names: Sequence[str]) -> list[str | None]:
    """The answers of one child, as far as it came."""
    lines = "".join(json.dumps(name) + "\n" for name in names)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM],
            input=lines.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError as error:
        raise _unable(f"{sys.executable or 'python'}: {error.strerror}") from error
    if done.returncode == _ABSENT:
        raise _unable(f"{sys.executable} does not find pycxxfilt")
    whole = done.stdout[: done.stdout.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()]


def _unable(why: str) -> ReprobuildError:
    return ReprobuildError(
        "E-ENVIRONMENT",
        f"C++ names cannot be read: {why}",
        hint="install reprobuild with its dependencies for this Python",
        executable=sys.executable,
    )
