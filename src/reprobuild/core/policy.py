"""What a project's `[policy]` says of an image, held against the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reprobuild.core.derivation import Isolation
from reprobuild.core.flake import Policy
from reprobuild.core.licences import not_allowed
from reprobuild.core.provenance import SLSA, Claim, passed_gates
from reprobuild.errors import ReprobuildError


def check_isolation(policy: Policy, grade: str, what: str) -> None:
    """Raises E-POLICY when `what` has a weaker grade than the policy allows."""
    known = grade in [g.value for g in Isolation]
    if not known or not Isolation(grade).satisfies(Isolation(policy.isolation)):
        raise ReprobuildError(
            "E-POLICY",
            f"{what} has the isolation {grade[:40]!r}; the policy wants {policy.isolation!r}",
            expected=policy.isolation,
            got=grade[:40],
        )


def check_required(required: str, grade: str, what: str, output: str) -> None:
    """Raises E-POLICY when `what` has a weaker grade than the release of `output` says that every
    build of it had: its label would not be true."""
    grades = [g.value for g in Isolation]
    if required not in grades:
        raise ReprobuildError(
            "E-POLICY", f"{output} requires {required[:40]!r}, which is no isolation grade"
        )
    if grade not in grades or not Isolation(grade).satisfies(Isolation(required)):
        raise ReprobuildError(
            "E-POLICY",
            f"{what} has the isolation {grade[:40]!r}; the release of {output} requires "
            f"{required!r}, and its label says so",
            hint=f"write `isolation` no higher under [outputs.{output}.release], or realize the "
            f"components alone (`reprobuild realize {output}.COMPONENT …`)",
            expected=required,
            got=grade[:40],
        )


def check_observed(required: str, claims: Sequence[Claim], output: str) -> None:
    """The same for what signed provenance says was seen while building."""
    for one in claims:
        observed = _observed(one) if one.predicate_type == SLSA else None
        if observed is not None:
            check_required(required, str(observed), f"what {one.signer[:40]} built", output)


def _observed(claim: Claim) -> object:
    """The weakest grade that provenance names; None where it names none."""
    build = claim.predicate.get("buildDefinition")
    internal = build.get("internalParameters") if isinstance(build, Mapping) else None
    return internal.get("isolation_observed") if isinstance(internal, Mapping) else None


def check_statement(policy: Policy, statement: Mapping[str, Any]) -> None:
    """Raises E-POLICY for what an image's own statement shows: isolation and licences."""
    check_isolation(policy, str(statement["release"]["isolation"]), "the release")
    found = not_allowed(statement, policy.licences)
    if found:
        raise ReprobuildError(
            "E-POLICY",
            f"the policy does not allow {found[0].licence}, under which is {found[0].names[0]}",
            licences=[f"{one.licence}: {', '.join(one.names[:10])}" for one in found],
        )


def check_claims(policy: Policy, claims: Sequence[Claim]) -> None:
    """Raises E-POLICY for what signed attestations must show: signers, gates, observed isolation.

    `claims` are those whose signatures held.
    """
    wanted = set(policy.signers)
    counted = [c for c in claims if not wanted or c.signer in wanted]
    proven = [c for c in counted if c.predicate_type == SLSA]
    if wanted and not proven:
        raise ReprobuildError(
            "E-POLICY",
            "no provenance of this image is signed by one of the policy's signers",
            hint="sign it: `reprobuild image push --attest`, with a key of the policy",
            signers=sorted(wanted),
        )
    for one in proven:
        observed = _observed(one)
        if observed is not None:
            check_isolation(policy, str(observed), "what was built")
    missing = sorted(set(policy.gates) - passed_gates(counted))
    if missing:
        raise ReprobuildError(
            "E-POLICY",
            f"the policy wants the gate {missing[0]} passed, and no signed evidence says so",
            hint="attach the evidence: `reprobuild image push --attach FILE`",
            gates=missing,
        )
