"""SLSA provenance v1 of an image, as an in-toto statement v1; and what attestations must say.

Formats: in-toto attestation framework 1.0 (statement), slsa.dev/provenance/v1. Everything in it
follows from the image's own statement, but for what `Observed` holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from reprobuild.core.dsse import IN_TOTO, Envelope
from reprobuild.core.encoding import Value, encode
from reprobuild.core.image import ImageFacts
from reprobuild.errors import ReprobuildError

STATEMENT = "https://in-toto.io/Statement/v1"
SLSA = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:reprobuild:image:v0"
BUILDER = "urn:reprobuild:builder"
GATES = "urn:reprobuild:gates:v0"


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen while building and no digest speaks of: the weakest isolation that held, and
    how many of the records were looked at."""

    isolation: str = ""
    records: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)


def subjects(facts: ImageFacts) -> list[Value]:
    """The image by its manifest (where it has one) and by its config: a daemon keeps only that."""
    name = facts.reference.rpartition("@")[0] or facts.reference
    out: list[Value] = []
    if facts.manifest_known:
        out.append({"digest": {"sha256": facts.manifest_digest.hex}, "name": name})
    out.append({"digest": {"sha256": facts.config_digest.hex}, "name": f"{name}#config"})
    return out


def provenance(facts: ImageFacts, statement: Mapping[str, Any], observed: Observed) -> bytes:
    """The in-toto statement, canonical JSON."""
    release = statement["release"]
    components: dict[str, Value] = {
        row["name"]: {"drv": row["drv"], "tree": row["tree"]} for row in statement["components"]
    }
    internal: dict[str, Value] = {"isolation_required": release["isolation"]}
    if observed.isolation:
        internal["isolation_observed"] = observed.isolation
        internal["records"] = observed.records
    return encode(
        {
            "_type": STATEMENT,
            "predicate": {
                "buildDefinition": {
                    "buildType": BUILD_TYPE,
                    "externalParameters": {
                        "components": components,
                        "output": release["output"],
                        "reference": release["reference"],
                    },
                    "internalParameters": internal,
                    "resolvedDependencies": list(_dependencies(statement)),
                },
                "runDetails": {
                    "builder": {"id": BUILDER, "version": dict(observed.versions)},
                    "metadata": {"invocationId": str(facts.config_digest)},
                },
            },
            "predicateType": SLSA,
            "subject": subjects(facts),
        }
    )


def _dependencies(statement: Mapping[str, Any]) -> Iterable[Value]:
    base = statement.get("base")
    if isinstance(base, Mapping):
        digest = str(base["manifest_digest"]).removeprefix("sha256:")
        yield {"digest": {"sha256": digest}, "name": "base"}
    for row in statement["components"]:
        source = row.get("source")
        if source:
            uri = f"git+{source['repository']}@{source['ref']}"
            yield {"digest": {"gitCommit": source["base"]}, "name": row["name"], "uri": uri}
            yield {
                "digest": {"gitTree": source["integration_tree"]},
                "name": f"{row['name']}: integrated",
            }
            for head in source["heads"]:
                yield {
                    "annotations": {"disposition": head["disposition"], "title": head["title"]},
                    "digest": {"gitCommit": head["head"]},
                    "name": f"{row['name']}: pull request {head['number']}",
                    "uri": f"git+{source['repository']}@refs/pull/{head['number']}/head",
                }
        for origin in row.get("origins", ()):
            for pin in origin["pins"]:
                if pin["sha256"]:
                    yield {
                        "digest": {"sha256": pin["sha256"]},
                        "name": f"{row['name']}: {pin['filename'] or pin['name']}",
                    }


@dataclass(frozen=True, slots=True)
class Claim:
    """An attestation that was opened: of which kind, by whom, and what it says."""

    predicate_type: str
    signer: str
    predicate: Mapping[str, Any]


def claim(envelope: Envelope, facts: ImageFacts, signer: str) -> Claim:
    """What a signed envelope says of this image; raises E-SIGNATURE when it is of another one."""
    try:
        if envelope.payload_type != IN_TOTO:
            raise ValueError(f"the payload is {envelope.payload_type!r:.80}")
        document = json.loads(envelope.payload)
        if document["_type"] != STATEMENT:
            raise ValueError("the payload is no in-toto statement")
        named = {str((s.get("digest") or {}).get("sha256")) for s in document["subject"]}
        predicate_type, predicate = str(document["predicateType"]), document["predicate"]
        if not isinstance(predicate, dict):
            raise ValueError("it has no predicate")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ReprobuildError("E-SIGNATURE", f"an attestation is off: {error}") from error
    own = {facts.config_digest.hex} | (
        {facts.manifest_digest.hex} if facts.manifest_known else set()
    )
    if not own & named:
        raise ReprobuildError(
            "E-SIGNATURE",
            "an attestation is of another image",
            expected=str(facts.config_digest),
            got=sorted(named)[:5],
        )
    return Claim(predicate_type, signer, cast("Mapping[str, Any]", predicate))


def passed_gates(claims: Sequence[Claim]) -> set[str]:
    """The gates that signed claims say were passed."""
    out: set[str] = set()
    for one in claims:
        if one.predicate_type != GATES:
            continue
        rows = one.predicate.get("gates", ())
        out |= {
            str(row["name"])
            for row in rows
            if isinstance(row, Mapping) and row.get("passed") is True and "name" in row
        }
    return out


def gates_statement(facts: ImageFacts, gates: Mapping[str, bool]) -> bytes:
    """An in-toto statement that says which gates an image passed."""
    rows: list[Value] = [{"name": name, "passed": ok} for name, ok in sorted(gates.items())]
    return encode(
        {
            "_type": STATEMENT,
            "predicate": {"gates": rows},
            "predicateType": GATES,
            "subject": subjects(facts),
        }
    )
