"""Provenance, envelopes and policy: what is signed, and what counts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.keys.keyring import Keyring, signed_by
from reprobuild.adapters.oci.delivery import Images
from reprobuild.core.attachment import DSSE, EVIDENCE, Attachment
from reprobuild.core.dsse import IN_TOTO, open_envelope, pae, seal
from reprobuild.core.evidence import Evidence
from reprobuild.core.flake import Policy
from reprobuild.core.image import ImageFacts
from reprobuild.core.licences import is_restricted, licence_of, restricted
from reprobuild.core.policy import check_claims, check_statement
from reprobuild.core.provenance import SLSA, Observed, gates_statement, passed_gates
from reprobuild.core.publickey import key_id
from reprobuild.engine.attest import check, make
from reprobuild.errors import ReprobuildError
from support.released import SOURCE, document, git_tree, released, row


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    ring = Keyring(tmp_path / "config")
    ring.generate()
    return ring


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    store = MemoryStore(tmp_path / "store")
    return store.materialise(released(store))


@pytest.fixture
def facts(layout: Path) -> ImageFacts:
    return Images().inspect(layout)


Attest = Callable[..., list[Attachment]]


@pytest.fixture
def attest(layout: Path, facts: ImageFacts, ring: Keyring) -> Attest:
    def attest(grade: str = "full") -> list[Attachment]:
        signer = ring.signer()
        statement = Images().statement(layout)
        observed = Observed(grade, 7, {"reprobuild": "0"})
        return make(facts, statement, observed, signer, key_id(signer.key), lambda _: [])

    return attest


def keys(ring: Keyring) -> list[tuple[str, bytes]]:
    return [(k.id, k.key) for k in ring.known()]


def test_the_encoding_that_is_signed() -> None:
    """The example of the DSSE specification."""
    text = pae("http://example.com/HelloWorld", b"hello world")
    assert text == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_provenance_says_what_went_in(attest: Attest, facts: ImageFacts) -> None:
    payload = json.loads(open_envelope(attest()[0].data).payload)
    assert payload["_type"] == "https://in-toto.io/Statement/v1"
    assert payload["predicateType"] == SLSA
    assert payload["subject"][0]["digest"]["sha256"] == facts.manifest_digest.hex
    build = payload["predicate"]["buildDefinition"]
    assert build["internalParameters"]["isolation_observed"] == "full"
    digests = [d["digest"] for d in build["resolvedDependencies"]]
    assert {"gitCommit": "b" * 40} in digests
    assert {"gitTree": git_tree(SOURCE)} in digests
    assert {"gitCommit": "a" * 40} in digests


def test_a_signature_is_checked(attest: Attest, facts: ImageFacts, ring: Keyring) -> None:
    (claim,) = check(attest(), facts, keys(ring), signed_by)
    assert (claim.predicate_type, claim.signer) == (SLSA, ring.known()[0].id)


def changed(attachment: Attachment, **change: Any) -> Attachment:
    document = {**json.loads(attachment.data), **change}
    return Attachment(attachment.name, attachment.media_type, json.dumps(document).encode())


def test_what_was_changed_does_not_count(attest: Attest, facts: ImageFacts, ring: Keyring) -> None:
    (good,) = attest()
    payload = json.loads(open_envelope(good.data).payload)
    payload["predicate"]["buildDefinition"]["internalParameters"] = {}
    other = base64.b64encode(json.dumps(payload).encode()).decode()
    for bad in (
        changed(good, payload=other),
        changed(good, payloadType="text/plain"),
        changed(good, signatures=[]),
        changed(good, signatures=[{"sig": base64.b64encode(bytes(64)).decode()}]),
    ):
        with pytest.raises(ReprobuildError) as error:
            check([bad], facts, keys(ring), signed_by)
        assert (error.value.code, error.value.exit_status) == ("E-SIGNATURE", 9)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"payload": 1}', b"[" * 100_000], ids=range(5)
)
def test_envelopes_that_are_none(data: bytes) -> None:
    with pytest.raises(ReprobuildError) as error:
        open_envelope(data)
    assert error.value.code == "E-SIGNATURE"


def test_an_attestation_of_another_image(attest: Attest, ring: Keyring, tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "other")
    said = document(row(version="2.0"))
    other = Images().inspect(store.materialise(released(store, stated=said)))
    with pytest.raises(ReprobuildError) as error:
        check(attest(), other, keys(ring), signed_by)
    assert error.value.code == "E-SIGNATURE"
    assert "of another image" in error.value.message


def test_a_key_that_is_not_believed(attest: Attest, facts: ImageFacts, tmp_path: Path) -> None:
    stranger = Keyring(tmp_path / "stranger")
    stranger.generate()
    with pytest.raises(ReprobuildError) as error:
        check(attest(), facts, keys(stranger), signed_by)
    assert error.value.code == "E-SIGNATURE"


# -- policy ---------------------------------------------------------------------------------------


def refused(call: Callable[[], None]) -> str:
    with pytest.raises(ReprobuildError) as error:
        call()
    assert (error.value.code, error.value.exit_status) == ("E-POLICY", 9)
    return error.value.message


def test_policy_of_isolation() -> None:
    policy = Policy(isolation="full")
    check_statement(policy, document(row(), isolation="full"))
    for grade in ("host-toolchain", "none", "unheard-of"):
        said = document(row(), isolation=grade)
        assert grade in refused(partial(check_statement, policy, said))


def test_policy_of_licences() -> None:
    policy = Policy(licences=("apache-2.0", "MIT", "BSD-?-Clause"))
    good = row(packages=[{"name": "a", "version": "1", "licence": "BSD-3-Clause"}])
    check_statement(policy, document(good))
    bad = row(packages=[{"name": "cudart", "version": "13", "licence": "LicenseRef-NVIDIA"}])
    assert "cudart 13" in refused(lambda: check_statement(policy, document(bad)))
    unknown = row(packages=[{"name": "x", "version": "1", "licence": ""}])
    assert "no licence stated" in refused(lambda: check_statement(policy, document(unknown)))


def test_policy_of_signers_and_gates(attest: Attest, facts: ImageFacts, ring: Keyring) -> None:
    own = ring.known()[0].id
    claims = check(attest(), facts, keys(ring), signed_by)
    check_claims(Policy(signers=(own,)), claims)
    assert "signers" in refused(lambda: check_claims(Policy(signers=("0" * 64,)), claims))
    assert "signers" in refused(lambda: check_claims(Policy(signers=(own,)), []))
    assert "gate smoke" in refused(lambda: check_claims(Policy(gates=("smoke",)), claims))
    for passed in (True, False):
        payload = gates_statement(facts, {"smoke": passed})
        data = seal(IN_TOTO, payload, own, ring.signer().sign)
        more = check([*attest(), Attachment("g", DSSE, data)], facts, keys(ring), signed_by)
        if passed:
            check_claims(Policy(gates=("smoke",), signers=(own,)), more)
        else:
            refused(partial(check_claims, Policy(gates=("smoke",)), more))


def test_evidence_of_qualify_counts(facts: ImageFacts, ring: Keyring) -> None:
    signer = ring.signer()
    for image, passed, counts in (
        (str(facts.config_digest), True, True),
        (str(facts.config_digest), False, False),
        ("sha256:" + "0" * 64, True, False),
    ):
        made = Evidence("demo", "smoke", "", "r", image, "", passed, "", "", "2026-01-01T00:00:00Z",
                        "t", signer.key.hex())  # fmt: skip
        signed = replace(made, signature=signer.sign(made.message()).hex())
        forged = replace(signed, gate="other")
        given = [Attachment("x", EVIDENCE, e.text().encode()) for e in (signed, forged)]
        claims = check(given, facts, keys(ring), signed_by, provenance_needed=False)
        assert passed_gates(claims) == ({"smoke"} if counts else set())


def test_policy_of_what_was_observed(attest: Attest, facts: ImageFacts, ring: Keyring) -> None:
    claims = check(attest("host-toolchain"), facts, keys(ring), signed_by)
    assert "what was built" in refused(lambda: check_claims(Policy(isolation="full"), claims))


# -- licences -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stated", "licence", "closed"),
    [
        ("nvidia-cuda-runtime", "", "LicenseRef-NVIDIA-Proprietary", True),
        ("nvidia-cublas", "NVIDIA Proprietary Software", "NVIDIA Proprietary Software", True),
        ("nvidia_nccl_cu13", "BSD-3-Clause", "BSD-3-Clause", False),
        ("libcudart13", "UNKNOWN", "LicenseRef-NVIDIA-Proprietary", True),
        ("model", "CC-BY-NC-4.0", "CC-BY-NC-4.0", True),
        ("torch", "BSD-3-Clause", "BSD-3-Clause", False),
        ("libcurl4", "", "", False),
        ("zlib1g", "Zlib", "Zlib", False),
    ],
)
def test_licences_that_forbid(name: str, stated: str, licence: str, closed: bool) -> None:
    assert licence_of(name, stated) == licence
    assert is_restricted(licence) is closed


def test_restricted_packages_are_named_by_licence() -> None:
    closed = "LicenseRef-NVIDIA-Proprietary"
    packages = [
        {"name": "nvidia-cuda-runtime", "version": "13", "licence": closed},
        {"name": "torch", "version": "2", "licence": "BSD-3-Clause"},
    ]
    rows = [{"name": "a", "licence": "", "packages": packages}]
    (found,) = restricted({"components": rows})
    assert (found.licence, found.names) == (
        "LicenseRef-NVIDIA-Proprietary",
        ("nvidia-cuda-runtime 13",),
    )
