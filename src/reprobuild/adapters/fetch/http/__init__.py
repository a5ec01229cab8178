"""Opening URLs. `requests` and `urllib3` live in this folder."""

from reprobuild.adapters.fetch.http.client import Http, Page, interrupted
from reprobuild.adapters.fetch.http.errors import TransferError, too_late
from reprobuild.adapters.fetch.http.session import Access, origin_of
from reprobuild.adapters.fetch.http.stream import CHUNK, Stream, file_path

__all__ = [
    "CHUNK",
    "Access",
    "Http",
    "Page",
    "Stream",
    "TransferError",
    "file_path",
    "interrupted",
    "origin_of",
    "too_late",
]
