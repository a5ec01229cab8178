"""`[mirrors]`: other places from which the same content may be had.

Rewriting is on prefixes of URLs and purely textual; what comes from a mirror is verified like
anything else, so a mirror is never trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from reprobuild.errors import ReprobuildError

_LOCATION_KEYS = ("debian", "debian-keyring", "wheels")


@dataclass(frozen=True, slots=True)
class Mirrors:
    """The parsed table.

    `rules` are (prefix, replacements), longest prefix first; `debian` are archive roots tried
    before the host's own, `debian_keyrings` files of keys that may sign them (none: the host's);
    `wheels` are directories or pages of wheels and sdists, searched before the index. Roots,
    directories and pages are URLs (`file:///…` for a plain path); keyrings are paths.
    """

    rules: tuple[tuple[str, tuple[str, ...]], ...] = ()
    debian: tuple[str, ...] = ()
    debian_keyrings: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()

    def candidates(self, url: str) -> tuple[str, ...]:
        """Where to try for `url`, in order: the replacements, longest prefix first, then itself.

        A URL whose path climbs (`..`) is never rewritten: it could leave the mirror's directory.
        """
        found: list[str] = []
        if not _climbs(url):
            for prefix, replacements in self.rules:
                if _has_prefix(url, prefix):
                    rest = url[len(prefix) :].lstrip("/")
                    found += [f"{new.rstrip('/')}/{rest}" if rest else new for new in replacements]
        found.append(url)
        return tuple(dict.fromkeys(found))


NO_MIRRORS = Mirrors()


def parse_mirrors(table: Mapping[str, object]) -> Mirrors:
    """The `[mirrors]` table of the user's configuration, as read from TOML.

    Each key is a URL prefix (`"https://github.com/"`) with one replacement or a list of them,
    tried in order before the origin itself. A replacement is a URL or an absolute path. The keys
    `debian` (archive roots), `debian-keyring` (key files) and `wheels` (directories or pages) stand
    for what has no URL of its own. Raises E-CONFIG.
    """
    rules: list[tuple[str, tuple[str, ...]]] = []
    special: dict[str, tuple[str, ...]] = {}
    for key, value in table.items():
        texts = _texts(key, value)
        if key == "debian-keyring":
            special[key] = tuple(_absolute(key, text) for text in texts)
        elif key in _LOCATION_KEYS:
            special[key] = tuple(as_url(key, text) for text in texts)
        elif "://" in key:
            rules.append((key, tuple(as_url(key, text) for text in texts)))
        else:
            raise ReprobuildError(
                "E-CONFIG",
                f"[mirrors] has the key {key[:100]!r}, which is no URL prefix",
                key=f"mirrors.{key[:100]}",
                expected="a URL prefix like https://host/, or " + ", ".join(_LOCATION_KEYS),
            )
    rules.sort(key=lambda rule: (-len(rule[0]), rule[0]))
    return Mirrors(
        rules=tuple(rules),
        debian=special.get("debian", ()),
        debian_keyrings=special.get("debian-keyring", ()),
        wheels=special.get("wheels", ()),
    )


def as_url(key: str, text: str) -> str:
    """`text` where it is a URL, `file://…` for an absolute path; raises E-CONFIG otherwise."""
    if "://" in text:
        return text
    return PurePosixPath(_absolute(key, text)).as_uri()


def _absolute(key: str, text: str) -> str:
    if not text.startswith("/"):
        raise ReprobuildError(
            "E-CONFIG",
            f"[mirrors] {key[:100]!r} names {text[:200]!r}, which is no URL and no absolute path",
            key=f"mirrors.{key[:100]}",
            expected="a URL or an absolute path",
        )
    return text


def _texts(key: str, value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if isinstance(items, (list, tuple)) and items and all(isinstance(i, str) and i for i in items):
        return tuple(str(item) for item in items)
    raise ReprobuildError(
        "E-CONFIG",
        f"[mirrors] {key[:100]!r} is neither a text nor a list of texts",
        key=f"mirrors.{key[:100]}",
        expected="a replacement, or a list of replacements",
    )


def _has_prefix(url: str, prefix: str) -> bool:
    """A prefix ends at a path boundary, so https://host never stands for https://host.evil."""
    if not url.startswith(prefix):
        return False
    return prefix.endswith("/") or url[len(prefix) : len(prefix) + 1] in ("", "/")


def _climbs(url: str) -> bool:
    try:
        return ".." in unquote(urlsplit(url).path).split("/")
    except ValueError:
        return True  # no URL at all: whoever opens it will say so
