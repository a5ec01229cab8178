"""Taking secrets out of what is shown."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit, urlunsplit

from reprobuild.core import redact as core


def redact(url: str) -> str:
    """`url` without user, password, fragment and the values of its query, fit for any message."""
    try:
        parts = urlsplit(core.redact(url))
        host = parts.netloc.rpartition("@")[2]
        keys = [key for key, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        return "(a URL that cannot be read)"
    query = "&".join(f"{key}=…" for key in keys)
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


def split_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    """`url` without its user and password, and those two, percent-decoded, where there are any."""
    from urllib.parse import unquote

    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, None
    userinfo, _, host = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    bare = urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))
    return bare, (unquote(user), unquote(password))
