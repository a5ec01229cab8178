"""Which digest function is spoken with the servers of an address: one for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from reprobuild.adapters.remote.download import Downloader
from reprobuild.adapters.remote.naming import Namer, Namers
from reprobuild.adapters.remote.nodes import TELL, Nodes, Transfers
from reprobuild.adapters.remote.server import FIRST, Abilities, Server, Trouble
from reprobuild.adapters.remote.upload import Uploader
from reprobuild.core.remote.function import PREFERRED, Function, common
from reprobuild.errors import ReprobuildError

GRACE = 3.0
"""Seconds that servers have to answer, when others did: one of many may be cut off."""


def ask(
    servers: Sequence[Server], cancel: threading.Event, note: Callable[[str], None]
) -> dict[str, Abilities | Trouble]:
    """What each can do, or what it met with; all are asked at a time.

    Waits for the first that answers, and a little for the others; `note` hears of it when that
    takes long. Raises E-REMOTE-ACCESS for credentials of ours, E-INTERRUPTED.
    """
    pool = ThreadPoolExecutor(len(servers), "remote-ask")
    asked: dict[Future[Abilities], Server] = {
        pool.submit(server.abilities): server for server in servers
    }
    found: dict[str, Abilities | Trouble] = {
        s.host: Trouble(s.host, "DEADLINE_EXCEEDED", "it did not say what it can do")
        for s in servers
    }
    begun = time.monotonic()
    answered = told = False
    open_ = set(asked)
    try:
        while open_ and not (answered and time.monotonic() - begun > GRACE):
            if cancel.is_set():
                raise ReprobuildError("E-INTERRUPTED", "stopped")
            done, open_ = wait(open_, 0.2, FIRST_COMPLETED)
            if not (answered or told) and open_ and time.monotonic() - begun > TELL:
                told = True
                silent = ", ".join(sorted(asked[future].host for future in open_))
                note(f"{silent}: no answer yet; waited for up to {round(FIRST)} s")
            for future in done:
                try:
                    found[asked[future].host] = future.result()
                    answered = True
                except Trouble as trouble:
                    found[asked[future].host] = trouble
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return found


def choose(offered: Mapping[str, frozenset[Function]]) -> Function:
    """The function for the servers that answered, by name; raises E-REMOTE where there is none."""
    chosen = common(offered)
    if chosen is not None:
        return chosen
    none = sorted(host for host, functions in offered.items() if not functions)
    words = " nor ".join(f.name for f in PREFERRED)
    if none:
        raise ReprobuildError(
            "E-REMOTE",
            f"{', '.join(none)}: neither {words} is among the digest functions",
            node=", ".join(none),
            hint="use servers, or an instance of them, whose digest function is one of these",
        )
    rows = "; ".join(
        f"{host}: {', '.join(sorted(f.name for f in functions))}"
        for host, functions in sorted(offered.items())
    )
    raise ReprobuildError(
        "E-REMOTE",
        f"the servers have no digest function in common ({rows})",
        node=", ".join(sorted(offered)),
        hint="name servers of one content store only, or let all of them offer one function",
    )


class Agreement:
    """The digest function of a run, found when it is first needed. Safe for many threads.

    `patience`: seconds to wait for a server when none answers; `note` hears of it.
    """

    def __init__(
        self, nodes: Nodes, namers: Namers, patience: float, note: Callable[[str], None]
    ) -> None:
        self._nodes, self._namers, self._patience, self._note = nodes, namers, patience, note
        self._lock = threading.Lock()
        self._namer: Namer | None = None

    def namer(self, cancel: threading.Event) -> Namer:
        """By whose digests content is named: that of the servers that answer first. All nodes have
        their transfers then.

        Raises E-REMOTE where they have none in common, E-REMOTE-ACCESS, E-REMOTE-LOST. Who has
        waited in vain once does not wait for as long again.
        """
        with self._lock:
            while self._namer is None:
                self._give_up()
                found = ask([node.server for node in self._nodes.nodes], cancel, self._note)
                there = {h: a for h, a in found.items() if not isinstance(a, Trouble)}
                if there:
                    able = {h: a.runs for h, a in there.items() if a.executes}
                    offered = able or {h: a.runs for h, a in there.items()}
                    self._join(self._namers.of(choose(offered)), cancel)
                    break
                for trouble in found.values():
                    if isinstance(trouble, Trouble) and not trouble.gone:
                        raise trouble.error()
                self._wait(found, cancel)
            assert self._namer is not None
            return self._namer

    def _join(self, namer: Namer, cancel: threading.Event) -> None:
        for node in self._nodes.nodes:
            up = Uploader(node.server, namer, cancel)
            node.transfers = Transfers(up, Downloader(node.server, namer, cancel))
        self._namer = namer

    def _wait(self, found: Mapping[str, Abilities | Trouble], cancel: threading.Event) -> None:
        """No server answered: waits until one may be asked again, E-REMOTE-LOST in the end."""
        for node in self._nodes.nodes:
            trouble = found[node.name]
            assert isinstance(trouble, Trouble)
            self._nodes.lost(node, trouble.details or trouble.code)
        self._give_up()
        limit = time.monotonic() + max(0.05, self._nodes.soonest() or 0.0)
        while not cancel.is_set() and (left := limit - time.monotonic()) > 0:
            if self._nodes.tells():
                rest = self._patience - self._nodes.quiet()
                self._note(waiting(self._nodes.troubles(), rest))
            cancel.wait(min(left, 0.5))

    def _give_up(self) -> None:
        """E-REMOTE-LOST where patience ends before a server may be asked again.

        Also before they are asked: where all are cut off, a question takes long, and every job that
        waits for its turn would put it anew.
        """
        soon = self._nodes.soonest() or 0.0
        if soon and self._nodes.quiet() + soon > self._patience:
            raise lost(self._nodes)


def waiting(troubles: str, seconds: float) -> str:
    """For people, where nobody is of use for now."""
    return f"no server is of use yet ({troubles}); waited for up to {max(1, round(seconds))} s"


def lost(nodes: Nodes) -> ReprobuildError:
    """E-REMOTE-LOST, where nobody is of use, or nobody for one action."""
    return ReprobuildError(
        "E-REMOTE-LOST", f"no server answers: {nodes.troubles()}", node=nodes.names()
    )
