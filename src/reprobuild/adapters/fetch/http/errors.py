"""Why a transfer failed, in words that hold no URL, header or password: fit to be shown."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import requests
import urllib3

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_TIMEOUTS = (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
_UNUSABLE = (
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidHeader,
    urllib3.exceptions.LocationParseError,
)
_PROXY = (urllib3.exceptions.ProxyError, requests.exceptions.ProxyError)


class TransferError(Exception):
    """Why one attempt at one place failed.

    `transient` invites another attempt at the same place; `missing` says that the place answered
    and does not have it; `offline` that the network would have been needed; `pause` is how many
    seconds the server asked to wait.
    """

    def __init__(
        self,
        reason: str,
        *,
        transient: bool = False,
        missing: bool = False,
        offline: bool = False,
        status: int = 0,
        challenge: str = "",
        pause: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.transient = transient
        self.missing = missing
        self.offline = offline
        self.status = status
        self.challenge = challenge
        self.pause = pause


def too_late(seconds: float) -> TransferError:
    """What ends a small answer that takes longer as a whole."""
    return TransferError(f"took more than {max(seconds, 0):g} s for one answer")


def status_error(response: requests.Response) -> TransferError:
    """What an answer other than the wanted one means."""
    code = response.status_code
    pause = 0.0
    with suppress(ValueError):
        pause = float(response.headers.get("Retry-After", "0"))
    return TransferError(
        f"HTTP status {code}" + (f" {_plain(response.reason)}" if response.reason else ""),
        transient=code in _TRANSIENT,
        missing=code in (404, 410),
        status=code,
        challenge=response.headers.get("WWW-Authenticate", ""),
        pause=pause if 0 <= pause < 1e9 else 0.0,
    )


def _plain(text: str) -> str:
    return "".join(c for c in text[:60] if c.isprintable())


def explain(error: BaseException) -> TransferError:
    """A library's error in words that hold no URL, header or secret."""
    if isinstance(error, TransferError):
        return error
    chain = list(_causes(error))
    if any(isinstance(e, requests.exceptions.TooManyRedirects) for e in chain):
        return TransferError("too many redirects")
    for cause in chain:
        if isinstance(cause, (urllib3.exceptions.SSLError, requests.exceptions.SSLError)):
            certificate = [e for e in chain if hasattr(e, "verify_message")]
            detail = f": {certificate[0].verify_message}" if certificate else ""
            return TransferError(f"the server's certificate is not accepted{detail}")
    if any(isinstance(e, _PROXY) for e in chain):
        return TransferError("the proxy cannot be reached or refuses", transient=True)
    if any(isinstance(e, socket.gaierror) for e in chain):
        return TransferError("the host's name cannot be resolved", transient=True)
    for cause in chain:  # before the timeouts: urllib3 calls a refused connection one, too
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return TransferError(f"the connection failed: {cause.strerror}", transient=True)
    if any(isinstance(e, _TIMEOUTS) for e in chain):
        return TransferError("no answer in time", transient=True)
    if any(isinstance(e, _UNUSABLE) for e in chain):
        return TransferError("the address cannot be used")
    return TransferError("the connection was cut", transient=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        item = waiting.pop(0)
        if not isinstance(item, BaseException) or id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        waiting += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]
