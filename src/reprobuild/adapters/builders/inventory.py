"""Packages in a component's tree, as their own metadata states them, and those that are pinned.

Read are `*.dist-info/METADATA` (Core metadata 2.x) and `var/lib/dpkg/status.d/*` (Debian control
paragraphs), with Debian's machine-readable `copyright` files for licences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from email.parser import HeaderParser

from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.licences import licence_of
from reprobuild.core.tree import Directory, File
from reprobuild.ports import ContentStore

MAX_METADATA = 4 * 2**20
_STATUS = ("var", "lib", "dpkg", "status.d")
_LICENCE_LINE = re.compile(r"^License: *(\S.*)$", re.MULTILINE)
_CLASSIFIER = "License :: "


def packages(
    content: ContentStore, tree: Digest, pins: Sequence[Mapping[str, Value]]
) -> list[Value]:
    """Rows of `type` (pypi, deb, generic), `name`, `version`, `licence`, sorted, each once."""
    found: dict[tuple[str, str], dict[str, Value]] = {}
    for row in (*_python(content, tree), *_debian(content, tree), *_pinned(pins)):
        key = (str(row["type"]), _normal(str(row["name"])))
        found.setdefault(key, row)
    return [found[key] for key in sorted(found)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _row(kind: str, name: str, version: str, licence: str) -> dict[str, Value]:
    stated = " ".join(licence.split())[:300]
    return {
        "licence": licence_of(name, stated),
        "name": name,
        "type": kind,
        "version": version,
    }


def _pinned(pins: Sequence[Mapping[str, Value]]) -> Iterator[dict[str, Value]]:
    kinds = {"wheel": "pypi", "sdist": "pypi", "deb": "deb"}
    for pin in pins:
        name = str(pin.get("name") or pin.get("filename") or "")
        if name:
            yield _row(kinds.get(str(pin.get("kind")), "generic"), name, str(pin["version"]), "")


def _read(content: ContentStore, file: File) -> str:
    if file.size > MAX_METADATA:
        return ""
    with content.open_blob(file.digest) as source:
        return source.read().decode("utf-8", "replace")


def _python(content: ContentStore, tree: Digest) -> Iterator[dict[str, Value]]:
    for name, entry in content.tree(tree):
        if not isinstance(entry, Directory):
            continue
        if name.endswith(b".dist-info"):
            metadata = content.tree(entry.digest).get(b"METADATA")
            if isinstance(metadata, File):
                message = HeaderParser().parsestr(_read(content, metadata))
                if message.get("Name"):
                    yield _row("pypi", message["Name"], message.get("Version", ""), _said(message))
            continue
        yield from _python(content, entry.digest)


def _said(message: Message) -> str:
    expression = message.get("License-Expression") or message.get("License") or ""
    if expression and "\n" not in expression.strip() and expression.upper() != "UNKNOWN":
        return str(expression)
    classifiers = [str(c) for c in message.get_all("Classifier") or ()]
    named = [c.rpartition(" :: ")[2] for c in classifiers if c.startswith(_CLASSIFIER)]
    return " AND ".join(sorted(set(named))) or str(expression).strip().partition("\n")[0]


def _debian(content: ContentStore, tree: Digest) -> Iterator[dict[str, Value]]:
    status = _directory(content, tree, _STATUS)
    for _, entry in content.tree(status) if status is not None else ():
        if isinstance(entry, File):
            message = HeaderParser().parsestr(_read(content, entry))
            name = message.get("Package", "")
            if name:
                licence = _copyright(content, tree, name)
                yield _row("deb", name, message.get("Version", ""), licence)


def _copyright(content: ContentStore, tree: Digest, package: str) -> str:
    place = _directory(content, tree, ("usr", "share", "doc", package))
    entry = content.tree(place).get(b"copyright") if place is not None else None
    if not isinstance(entry, File):
        return ""
    named = _LICENCE_LINE.findall(_read(content, entry))
    return " AND ".join(sorted({n.strip() for n in named})[:12])


def _directory(content: ContentStore, tree: Digest, parts: Sequence[str]) -> Digest | None:
    for part in parts:
        entry = content.tree(tree).get(part.encode())
        if not isinstance(entry, Directory):
            return None
        tree = entry.digest
    return tree
