"""Other machines: where builds may run, and where results are shared."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.adapters.remote.cluster import Cluster
    from reprobuild.adapters.remote.service import Remote
    from reprobuild.app.run import Run
    from reprobuild.engine.remote import Elsewhere


class Remoting:
    """Other machines: where builds may run, and where results are shared."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def _remote(self) -> Remote:
        from reprobuild.adapters.remote.service import Remote
        from reprobuild.adapters.store.scanmemo import SqliteScanMemo

        if self._run.offline:
            raise ReprobuildError(
                "E-OFFLINE", "other machines are out of reach: the network is off (--offline)"
            )
        memo = SqliteScanMemo(self._run.store.path / "cache" / "remote-sha256.sqlite")
        self._run.closers.append(memo.close)
        config = self._run.settings.config.get("remote", {})
        return Remote(self._run.store, memo, config, self._run.reporter, self._run.cancel)

    def elsewhere(self, url: str, *, jobs: int, fallback: bool) -> Elsewhere:
        """Builds on the servers of an address; raises E-USAGE, E-CONFIG, E-TOOL-MISSING."""
        from reprobuild.engine.remote import Elsewhere

        executor = self._remote.executor(url, jobs=jobs, fallback=fallback)
        self._run.closers.append(executor.close)
        return Elsewhere(
            executor, self._run.reporter, self._run.store.logs, self._run.cancel, fallback=fallback
        )

    @cached_property
    def cluster(self) -> Cluster:
        """The trial cluster of this user."""
        from reprobuild.adapters.remote.cluster import Cluster

        return Cluster(self._run.settings.state_dir / "cluster")

    def cluster_document(self) -> dict[str, object]:
        """What runs of it, and at which addresses."""
        from reprobuild.adapters.remote.cluster import cache_url, url

        members = self.cluster.members()
        rows = [{"alive": m.alive(), "host": m.host, "name": m.name, "pid": m.pid} for m in members]
        return {
            "cache": cache_url(members) if members else None,
            "members": rows,
            "url": url(members) if members else None,
        }
