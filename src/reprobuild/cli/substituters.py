"""Binary caches as commands name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.engine.substitute import Substitution
    from reprobuild.ports import Reporter


def substitution(app: App, urls: Sequence[str], reporter: Reporter | None = None) -> Substitution:
    """The caches at `urls`, asked in this order; their entries count by the user's keys."""
    from reprobuild.engine.substitute import Substitution

    caches = [app.bundles.cache(url, app.sources.fetch_settings, app.reporter) for url in urls]
    return Substitution(app.store, caches, app.keyring, reporter or app.reporter)
