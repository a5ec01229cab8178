"""The composition root: the only room that names adapters. `App` (app.py) is one run of the tool;
it is imported when it is asked for, since a run with nothing to do (glimpse.py) needs none."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes longer to import than this file
if TYPE_CHECKING:
    from reprobuild.app.app import App

__all__ = ["App"]


def __getattr__(name: str) -> object:
    if name == "App":
        from reprobuild.app import app

        return app.App
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
