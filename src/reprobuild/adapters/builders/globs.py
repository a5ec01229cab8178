"""Path patterns, as all built-ins read them (core/globs.py)."""

from __future__ import annotations

from reprobuild.core.globs import Selection

__all__ = ["Selection"]
