"""Remote execution and shared caches, put together from addresses and configuration."""

from __future__ import annotations

import threading

from reprobuild.adapters.remote.access import parse_access
from reprobuild.adapters.remote.address import Address, parse_address
from reprobuild.adapters.remote.cache import ActionCache
from reprobuild.adapters.remote.executor import ReapiExecutor
from reprobuild.adapters.remote.naming import Memo, Namers
from reprobuild.adapters.remote.nodes import START, Node, Nodes
from reprobuild.adapters.remote.server import Server
from reprobuild.adapters.remote.stubs import require
from reprobuild.ports import ContentStore, Reporter

MOST = 64
"""Actions under way on one address, where nothing else is said."""

PATIENCE = {True: 10.0, False: 180.0}
"""Seconds to wait for a server when none answers, by whether builds may be made here."""


class Remote:
    """`config` is the `[remote]` table of the user's configuration. Close `closers` at the end."""

    def __init__(
        self,
        content: ContentStore,
        memo: Memo,
        config: object,
        reporter: Reporter,
        cancel: threading.Event,
    ) -> None:
        self._config = config
        self._namers = Namers(content, memo)
        self._reporter, self._cancel = reporter, cancel

    def _servers(self, address: Address) -> list[Server]:
        require()
        return [
            Server(host, address.instance, parse_access(self._config, host), secure=address.secure)
            for host in address.hosts
        ]

    def executor(self, url: str, *, jobs: int = 0, fallback: bool = True) -> ReapiExecutor:
        """What runs builds on the servers of an address.

        `jobs` actions at once on each at most; without a number as many as it turns out to take.
        Raises E-USAGE, E-CONFIG, and E-TOOL-MISSING without the extra.
        """
        nodes = []
        for server in self._servers(parse_address(url)):
            wish = jobs or server.access.jobs
            nodes.append(Node(server, most=wish or MOST, fixed=bool(wish), window=wish or START))
        return ReapiExecutor(
            Nodes(nodes), self._namers, self._reporter, patience=PATIENCE[fallback]
        )

    def cache(self, url: str) -> ActionCache:
        """The action cache and content of the servers of an address; raises as `executor` does."""
        return ActionCache(
            self._servers(parse_address(url)),
            self._namers,
            self._cancel,
            lambda text: self._reporter.emit("note", text=text),
        )
