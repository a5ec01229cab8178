"""How libraries of an extra get where this program looks for them."""

from __future__ import annotations

import shlex
import sys


def install_command(extra: str) -> str:
    """The command that installs an extra beside this program, also where that is a clone's `.venv`.

    It names the interpreter: a `pip` on the PATH may install for another one. What is installed
    already is not looked for in any index, so that only the extra's own libraries are fetched.
    """
    python = shlex.quote(sys.executable or "python3")
    return f"{python} -m pip install 'reprobuild[{extra}]'"
