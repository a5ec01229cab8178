"""Other machines: where builds may run, and where results are shared."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.adapters.keys.keyring import Keyring
    from reprobuild.adapters.remote.cluster import Cluster
    from reprobuild.adapters.remote.service import Remote
    from reprobuild.app.run import Run
    from reprobuild.core.bundle.signing import Trust
    from reprobuild.engine.remote import Elsewhere
    from reprobuild.engine.remote_cache import EntryCache


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

    def shared(self, url: str, keyring: Keyring, *, own: bool, key: str | None) -> EntryCache:
        """The results on the servers of an address.

        Those count that a key of `keyring` signed; with `own`, none but this user's own keys.
        What is made here is left there, signed with the key of that name, where one is given.
        Raises E-KEY.
        """
        from reprobuild.core.bundle.signing import only
        from reprobuild.engine.remote_cache import EntryCache

        trust: Trust = keyring
        if own:
            mine = [k.key for k in keyring.known() if k.own and not k.revoked]
            trust = only(mine, keyring.signed_by)
        signer = keyring.signer(key) if key is not None else None
        cache = self._remote.cache(url)
        self._run.closers.append(cache.close)
        return EntryCache(cache, self._run.store, trust, self._run.reporter, signer)

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
            "cache": cache_url(members) or None,
            "members": rows,
            "url": url(members) or None,
        }
