"""Evidence that a gate was run: what it showed, bound to an image, the hardware and the time.

Evidence is a JSON document in canonical form, so that a signature over it can be checked anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprobuild.core.encoding import Value, encode
from reprobuild.errors import ReprobuildError

FORMAT = 0
DOMAIN = b"reprobuild/evidence/v0\n"
CODE = "E-EVIDENCE"
MAX_BYTES = 1 << 20
_FIELDS = {
    "output": str,
    "gate": str,
    "kind": str,
    "reference": str,
    "image": str,
    "drv": str,
    "passed": bool,
    "detail": str,
    "hardware": str,
    "time": str,
    "tool": str,
}
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z\Z")
_TREE = re.compile(r"blake3:[0-9a-f]{64}\Z")
_HEX = re.compile(r"[0-9a-f]+\Z")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One gate's evidence.

    `image` is the config digest of the image that was looked at, `drv` the drv digest of what was
    evaluated; one of them is there. `key` and `signature` are hex, and empty where it is unsigned.
    `modules` are the trees that a kernel check ran, by `OUTPUT.COMPONENT.CHECK`: what their records
    are found by.
    """

    output: str
    gate: str
    kind: str
    reference: str
    image: str
    drv: str
    passed: bool
    detail: str
    hardware: str
    time: str
    tool: str
    key: str = ""
    signature: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)

    def message(self) -> bytes:
        """What is signed."""
        return DOMAIN + encode(self._document())

    def _document(self) -> dict[str, Value]:
        document: dict[str, Value] = {name: getattr(self, name) for name in _FIELDS}
        if self.modules:
            document["modules"] = dict(self.modules)
        return {"format": FORMAT, **document}

    def text(self) -> str:
        """The file's text."""
        document: dict[str, Any] = self._document()
        if self.signature:
            document |= {"key": self.key, "signature": self.signature}
        return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def parse_evidence(data: bytes, file: str) -> Evidence:
    """From a file's bytes; raises E-EVIDENCE. Signatures are not checked here."""
    if len(data) > MAX_BYTES:
        raise _wrong(file, f"is longer than {MAX_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _wrong(file, "is no JSON document") from error
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise _wrong(file, f"is no evidence of format {FORMAT}")
    unknown = set(document) - set(_FIELDS) - {"format", "key", "signature", "modules"}
    if unknown:
        raise _wrong(file, f"has the key {sorted(unknown)[0][:80]!r}, which evidence has not")
    for name, kind in _FIELDS.items():
        if type(document.get(name)) is not kind:
            raise _wrong(file, f"lacks {name!r}, or it is of the wrong kind")
    for name in ("key", "signature"):
        text = document.get(name, "")
        if not isinstance(text, str) or (text and not _HEX.match(text)):
            raise _wrong(file, f"has a {name!r} that is not in hex digits")
    modules = document.get("modules", {})
    if not isinstance(modules, dict) or not all(
        isinstance(tree, str) and _TREE.match(tree) for tree in modules.values()
    ):
        raise _wrong(file, "has `modules` that are no table of trees by name")
    if not _TIME.match(document["time"]):
        raise _wrong(file, f"has the time {document['time'][:40]!r}; expected YYYY-MM-DDTHH:MM:SSZ")
    if not (document["image"] or document["drv"]):
        raise _wrong(file, "is bound to no image")
    return Evidence(
        **{name: document[name] for name in _FIELDS},
        key=document.get("key", ""),
        signature=document.get("signature", ""),
        modules=modules,
    )


def _wrong(file: str, what: str) -> ReprobuildError:
    return ReprobuildError(CODE, f"{file} {what}", file=file)
