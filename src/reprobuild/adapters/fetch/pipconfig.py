"""What the user's pip is configured for, asked from pip itself.

pip merges its files and `PIP_…` variables; `pip config list` prints the result, one
`SECTION.KEY='VALUE'` a line (`:env:` for the environment). Source: pip's user guide,
"Configuration". Nothing of it is shown: values may hold passwords.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprobuild.errors import ReprobuildError


def default_index() -> str:
    """The index that is asked where nothing is configured, as the library knows it."""
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    return PYPI_SIMPLE_ENDPOINT.rstrip("/")


_LINE = re.compile(r"(?P<section>[^.=]+)\.(?P<key>[^=]+)=(?P<value>.*)\Z")
# Later sections override earlier ones, as for `pip download`.
_SECTIONS = ("global", "download", ":env:")


@dataclass(frozen=True, slots=True)
class PipConfig:
    """Where pip would look and how it would get there. URLs may hold credentials."""

    indexes: tuple[str, ...] = field(default_factory=lambda: (default_index(),))
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = field(default=None, repr=False)
    trusted_hosts: tuple[str, ...] = ()


def parse_pip_config(text: str) -> PipConfig:
    """From the output of `pip config list`; lines that are not understood are passed over."""
    merged: dict[str, str] = {}
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            continue
        try:
            value = ast.literal_eval(match["value"])
        except (ValueError, SyntaxError):
            continue
        key = match["key"].strip().lower().replace("_", "-")
        found.setdefault(match["section"].strip(), {})[key] = str(value)
    for section in _SECTIONS:
        merged.update(found.get(section, {}))
    return _from_options(merged)


def _from_options(options: Mapping[str, str]) -> PipConfig:
    main = (options.get("index-url") or default_index()).split()
    extra = options.get("extra-index-url", "").split()
    no_index = options.get("no-index", "").strip().lower() in ("1", "true", "yes", "on", "t", "y")
    return PipConfig(
        indexes=() if no_index else tuple(dict.fromkeys([*main, *extra])),
        find_links=tuple(dict.fromkeys(options.get("find-links", "").split())),
        cert=options.get("cert") or None,
        client_cert=options.get("client-cert") or None,
        proxy=options.get("proxy") or None,
        trusted_hosts=tuple(options.get("trusted-host", "").split()),
    )


def read_pip_config(python: Sequence[str] = ()) -> PipConfig:
    """Asks the pip of `python` (default: this interpreter's, else `python3 -m pip`, else `pip`).

    Without any pip, only its variables in the environment count. Raises E-CONFIG when pip calls
    its own configuration broken.
    """
    own = [[sys.executable, "-m", "pip"], ["python3", "-m", "pip"], ["pip"]]
    commands = [list(python)] if python else own
    for command in commands:
        try:
            done = subprocess.run(
                [*command, "--no-input", "--disable-pip-version-check", "config", "list"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                cwd="/",  # a pip/ directory in the current one must not be run
                timeout=60,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return parse_pip_config(done.stdout.decode("utf-8", "replace"))
        if b"No module named" not in done.stderr:
            raise ReprobuildError(
                "E-CONFIG",
                "pip cannot read its own configuration",
                hint="run `python3 -m pip config list` and mend what it names",
            )
    return from_environment(os.environ)


def from_environment(environment: Mapping[str, str]) -> PipConfig:
    """What the `PIP_…` variables alone say, where there is no pip to ask."""
    found = {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith("PIP_") and value
    }
    return _from_options(found)


def local_path(text: str) -> Path | None:
    """`text` as a local path, where a find-links entry is one (not a URL)."""
    return None if "://" in text or text.startswith("file:") else Path(text).expanduser()
