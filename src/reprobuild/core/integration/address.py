"""Addresses of git repositories that may be handed to git, judged by their text alone."""

from __future__ import annotations

import re

from reprobuild.core.redact import redact, redact_address, userinfo
from reprobuild.errors import ReprobuildError

_URL = re.compile(r"(?:https?|ssh|git|file)://[^\x00-\x20\x7f\\]+\Z")
_SCP = re.compile(
    r"[A-Za-z0-9._][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\x00-\x20\x7f:-][^\x00-\x20\x7f]*\Z"
)
_PATH = re.compile(r"[/.A-Za-z0-9_][^\x00-\x1f\x7f]*\Z")
_HOST = re.compile(r"[a-z]+://(?:[^/@]*@)?([^/]*)")


def check_url(url: str) -> str:
    """`url` itself where git may be told it; raises E-GIT-URL.

    Remote helpers (`ext::…`), options (`--upload-pack=…`), control characters and hosts that
    start with a dash are refused.
    """
    first = url.split("/", 1)[0]
    plain = "://" not in url and ":" not in first and _PATH.match(url)
    ok = len(url) <= 2000 and "::" not in first and (_URL.match(url) or _SCP.match(url) or plain)
    host = _HOST.match(url)
    if not ok or (host and host.group(1).startswith("-")):
        shown = redact_address(url)[:120]
        raise ReprobuildError("E-GIT-URL", f"{shown!r} is no repository address", got=shown)
    return url


WITHOUT_SECRETS = (
    "leave it out: git's own configuration answers for the host, by a credential helper, a "
    ".netrc file or an ssh key; or a mirror in the user's configuration ([mirrors]) does"
)
"""Where the credentials of a repository belong instead of its address."""


def secret_in(url: str) -> str:
    """What an address holds that must not be published: "a password", "a user name"; else "".

    The user of an ssh address names no person and is no secret; a password there is one.
    """
    user = userinfo(url)
    if ":" in user or "%3a" in user.lower():
        return "a password"
    return "" if not user or url.startswith("ssh://") else "a user name or token"


def check_stated(url: str) -> str:
    """As `check_url`, for an address that a file or an option states and that is published with
    what is made from it: one with credentials is refused, too."""
    secret = secret_in(check_url(url))
    if secret:
        shown = redact(url)[:120]
        raise ReprobuildError(
            "E-GIT-URL",
            f"the address of {shown} holds {secret}, which would be published with all that is "
            "made from it",
            hint=WITHOUT_SECRETS,
            got=shown,
        )
    return url


def is_remote(url: str) -> bool:
    """Whether reaching the address takes a network."""
    return not url.startswith("file://") and ("://" in url or bool(_SCP.match(url)))


def repository_name(url: str) -> str:
    """The last part of an address without `.git`: `b12x`."""
    return url.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git")
