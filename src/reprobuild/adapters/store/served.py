"""What the processes of process.py do: read requests, do the work, answer.

Anything that goes wrong is answered by None, and whoever asked does it again and says why.
"""

from __future__ import annotations

import marshal
import os
import sys

from reprobuild.adapters.store.process import DIRECTORY_FD
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Serve = Callable[[Any], Any]


def _take(setup: Any) -> Serve:
    """Takes parts of a tree (parts.py): (bytes, entries, what the taker has to say)."""
    from reprobuild.adapters.store.parts import take_part
    from reprobuild.adapters.store.taker import Naming, Taker
    from reprobuild.adapters.store.taking import Frame, Taking

    taker: Taker
    if setup:
        from reprobuild.adapters.store.apart import KeepingApart

        taker = KeepingApart(setup)
    else:
        taker = Naming()
    start = os.fstat(DIRECTORY_FD)

    def serve(request: Any) -> Any:
        path, identity, names, limit = request
        taking = Taking("", taker, limit, alone=True)
        frame = Frame(b"", start, None)
        take_part(taking, frame, DIRECTORY_FD, path, identity, names)
        return taking.total, frame.entries, taker.handed()

    return serve


def _shard(_: Any) -> Serve:
    """Hashes all blobs of a shard (shards.py): what was found."""
    from reprobuild.adapters.store.shards import Found, check_shard

    def serve(shard: Any) -> Any:
        found = Found()
        check_shard(shard, found)
        return found.values()

    return serve


_WORKS = {"take": _take, "shard": _shard}


def main() -> None:
    """Serves standard input until it ends."""
    try:
        _serve()
    except KeyboardInterrupt:
        pass
    finally:
        sys.stderr.flush()
        os._exit(0)  # nothing is left to be tidied up, and whoever asked waits


def _serve() -> None:
    requests = open(0, "rb")  # noqa: SIM115 - until the end
    work, setup = _read(requests)
    serve = _WORKS[work](setup)
    while True:
        request = _read(requests)
        if request is None:
            return
        try:
            answer = serve(request)
        except (ReprobuildError, OSError):
            answer = None
        data = marshal.dumps(answer)
        rest = memoryview(len(data).to_bytes(4, "big") + data)
        while rest:
            rest = rest[os.write(1, rest) :]


def _read(requests: Any) -> Any:
    head = requests.read(4)
    return marshal.loads(requests.read(int.from_bytes(head, "big"))) if head else None  # noqa: S302
