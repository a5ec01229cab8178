"""Taking user names and passwords out of addresses that are shown.

The one place that knows what a credential in an address looks like; what else is secret in a URL
(its query) is the business of `adapters.fetch.redact`.
"""

from __future__ import annotations

import re

# Up to the last @ before a slash; and, where a password has a slash in it, up to the last @ of a
# word that begins with `user:` and no port.
_USERINFO = re.compile(
    r"(\w[\w+.-]{0,30}://)(?:[^\s/]*@|[^\s/@:\[]*:(?![0-9]*(?:[/?#\s]|\Z))\S*@(?!sha(?:256|512):))"
)
_DIGEST = re.compile(r"@sha(?:256|512):")


def redact(text: str) -> str:
    """An address, or a text with addresses in it, without what stands before each host."""
    return _USERINFO.sub(r"\1", text)


def userinfo(url: str) -> str:
    """What stands before the host of an address with a scheme, without its @; else ""."""
    found = _USERINFO.match(url)
    return found[0][len(found[1]) : -1] if found else ""


def redact_address(text: str) -> str:
    """As `redact`, for a text that was to be one address: it may have a password and no scheme."""
    bare = redact(text)
    if "://" in bare:
        return bare
    user, at, rest = bare.rpartition("@")
    return rest if at and ":" in user else bare


def redact_reference(text: str) -> str:
    """An image reference, with a scheme or without: an @ in it separates a digest, or credentials.

    References to local files and to a daemon's images are left as they are.
    """
    local = ("oci:", "oci-archive:", "docker-archive:", "docker-daemon:")
    if text.startswith(local) and not text.startswith("oci://"):
        return text
    scheme = re.match(r"\w[\w+.-]*://|", text)
    assert scheme is not None
    rest = text[scheme.end() :]
    digest = list(_DIGEST.finditer(rest))
    head, tail = (rest[: digest[-1].start()], rest[digest[-1].start() :]) if digest else (rest, "")
    return scheme[0] + head.rpartition("@")[2] + tail


def redact_inner(text: str, address: str) -> str:
    """What a library says about `address`: nothing where that holds a password.

    Libraries quote the address whole, or the piece of the password that they took for a port.
    """
    host = redact(address)
    if host != address and ":" in address.partition("://")[2].rpartition("@")[0]:
        return "its address holds a password, which has no place there"
    return redact(text)
