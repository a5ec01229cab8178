"""What a realize left behind: the root that keeps it, and the memo that makes the next one free.

Two roots are written for each installable of a flake directory: `NAME@DIR` keeps everything that
went into it, and `NAME@DIR=result` remembers the answer under a fingerprint of all that decided
it (engine/fingerprint.py). Reading the second needs no model, no graph and no library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.record import Record
from reprobuild.engine.fingerprint import fingerprint
from reprobuild.ports import Catalog, ContentStore


def root_name(installable: str, directory: Path) -> str:
    """The root of an installable of the flake at `directory`."""
    return f"{installable}@{Digest.of(str(directory).encode()).short}"


def keep_document(chosen: Mapping[Digest, Record], extra: Mapping[str, Value]) -> bytes:
    """The root document that keeps every tree, derivation and record that was chosen."""
    trees = sorted({t.hex for record in chosen.values() for t in record.outputs.values()})
    records = sorted({f"{r.action.hex}/{r.digest.hex}" for r in chosen.values()})
    drvs = sorted(d.hex for d in chosen)
    return encode({**extra, "keep": {"drvs": drvs, "records": records, "trees": trees}})


@dataclass(frozen=True, slots=True)
class Answer:
    """A remembered answer: the JSON document of a realize, as it was printed."""

    document: Mapping[str, Any]
    isolation: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Remembers answers of one flake directory."""

    catalog: Catalog
    content: ContentStore
    directory: Path

    def recall(self, installables: Sequence[str], wishes: Value) -> Answer | None:
        """The answer to exactly this question, if nothing that decides it has changed and all
        that it names is still here."""
        name = self._name(installables)
        data = self.catalog.root(name)
        if data is None:
            return None
        document = json.loads(data)
        key = fingerprint(self.directory, document["watched"], wishes)
        if document["fingerprint"] != key.hex:
            return None
        answer = document["answer"]
        for entry in answer["outputs"].values():
            if not self.content.contains(Digest.parse(entry["tree"])):
                return None
        return Answer(answer, document["isolation"])

    def remember(
        self,
        installables: Sequence[str],
        wishes: Value,
        watched: Iterable[str],
        answer: Mapping[str, Value],
        key: Digest,
        isolation: str,
    ) -> None:
        """Notes the answer. `key` was taken before anything was read, so that a file that
        changed meanwhile makes the memo miss."""
        document: dict[str, Value] = {
            "answer": answer,
            "fingerprint": key.hex,
            "isolation": isolation,
            "keep": {"drvs": [], "records": [], "trees": []},
            "watched": sorted(set(watched)),
        }
        self.catalog.set_root(self._name(installables), encode(document))

    def _name(self, installables: Sequence[str]) -> str:
        return root_name("+".join(installables) or "default", self.directory) + "=result"
