"""Environment and configuration, read once into a frozen value.

The configuration file is `$REPROBUILD_CONFIG`, else `$XDG_CONFIG_HOME/reprobuild/config.toml`
(default `~/.config`). It is parsed on first use only: a run with nothing to do needs none of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from reprobuild.core.files import FLAKE_FILE
from reprobuild.errors import ReprobuildError
from reprobuild.whereabouts import flake_directory, store_directory

SECTIONS = ("mirrors", "remote")
"""What the configuration file may have."""

_LARGEST = 2**20  # bytes of it


@dataclass(frozen=True)
class Settings:
    """What the call and its surroundings decide.

    `directory` is -C, `store` is --store; both None where not given. `environment` is the
    process's, as it was at the start.
    """

    directory: Path | None = None
    store: Path | None = None
    offline: bool = False
    json: bool = False
    events: str | None = None
    quiet: bool = False
    verbose: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @cached_property
    def flake_dir(self) -> Path:
        """The flake's directory; raises E-NO-FLAKE when there is none from here upwards."""
        found = flake_directory(None if self.directory is None else str(self.directory))
        if found is not None:
            return Path(found)
        start = (self.directory or Path.cwd()).absolute()
        raise ReprobuildError(
            "E-NO-FLAKE", f"there is no {FLAKE_FILE} in {start}", directory=str(start)
        )

    @cached_property
    def store_path(self) -> Path:
        """--store, else $REPROBUILD_STORE, else `store/` beside the flake.

        Raises E-USAGE for a path that is not UTF-8: it could not stand in any document.
        """
        by_environment = self.environment.get("REPROBUILD_STORE")
        named = None if self.store is None else str(self.store)
        flake = "" if named or by_environment else str(self.flake_dir)
        path = Path(store_directory(named, by_environment, flake))
        try:
            str(path).encode()
        except UnicodeEncodeError:
            shown = os.fsencode(path).decode("utf-8", "backslashreplace")
            raise ReprobuildError(
                "E-USAGE",
                f"the store's path is not UTF-8: {shown}",
                hint="name a store elsewhere with --store DIR or $REPROBUILD_STORE",
            ) from None
        return path

    @cached_property
    def config_file(self) -> Path:
        """Where the user's configuration is, whether it exists or not."""
        named = self.environment.get("REPROBUILD_CONFIG")
        if named:
            return Path(named)
        base = self.environment.get("XDG_CONFIG_HOME")
        home = Path(base) if base else Path(self.environment.get("HOME", "/")) / ".config"
        return home / "reprobuild" / "config.toml"

    @cached_property
    def config(self) -> Mapping[str, object]:
        """The parsed configuration; empty where there is no file. Raises E-CONFIG."""
        import tomllib

        path = self.config_file
        try:
            if path.exists() and not path.is_file():
                raise ValueError("it is no plain file")
            with path.open("rb") as file:
                data = file.read(_LARGEST + 1)
            if len(data) > _LARGEST:
                raise ValueError(f"it is longer than {_LARGEST} bytes")
            found = tomllib.loads(data.decode("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ReprobuildError("E-CONFIG", f"{path}: {error}", file=str(path)) from error
        unknown = sorted(set(found) - set(SECTIONS))
        if unknown:
            raise ReprobuildError(
                "E-CONFIG",
                f"{path}: there is no section {unknown[0]!r}",
                hint=f"there are {' and '.join(SECTIONS)}",
                file=str(path),
                key=unknown[0],
            )
        return found

    @cached_property
    def state_dir(self) -> Path:
        """What runs remember of this user's doings: $XDG_STATE_HOME, default `~/.local/state`."""
        base = self.environment.get("XDG_STATE_HOME")
        home = Path(base) if base else Path(self.environment.get("HOME", "/")) / ".local/state"
        return home / "reprobuild"

    @property
    def colour(self) -> bool:
        """Whether colour and live progress are wanted at all (a terminal is asked elsewhere)."""
        env = self.environment
        return "NO_COLOR" not in env and env.get("TERM", "dumb") != "dumb"

    @property
    def cache_dir(self) -> Path:
        """Git objects and half-done downloads: may be lost at any time without harm."""
        return self.store_path / "cache"

    @property
    def runtime_dir(self) -> Path:
        """Locks of this machine that need not outlive a reboot."""
        return self.system_runtime_dir or self.store_path / "runtime"

    @property
    def system_runtime_dir(self) -> Path | None:
        """The same where the system has a place for it; None where it must lie in the store."""
        if os.geteuid() == 0:
            return Path("/run/reprobuild")
        base = self.environment.get("XDG_RUNTIME_DIR")
        return Path(base) / "reprobuild" if base else None
