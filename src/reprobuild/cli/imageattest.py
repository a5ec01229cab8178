"""Attestations of an image, for the commands: made, found, held against keys and policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprobuild.core.attachment import CYCLONEDX, DSSE, EVIDENCE, ROTATION, SPDX, Attachment
from reprobuild.core.publickey import key_id
from reprobuild.core.rotation import parse, render
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.cli.imagesides import Side
    from reprobuild.core.flake import Policy
    from reprobuild.core.image import ImageFacts
    from reprobuild.core.provenance import Claim, Observed

ENDINGS = {
    "spdx.json": SPDX,
    "cdx.json": CYCLONEDX,
    "dsse.json": DSSE,
    "evidence.json": EVIDENCE,
    "rotated.json": ROTATION,
}


def made(app: App, image: Side, facts: ImageFacts, key: str) -> list[Attachment]:
    """Provenance signed with the user's key of that name, and SBOMs; where the key came after
    earlier ones, their word for it.

    Raises E-KEY, E-IMAGE-VERIFY, E-TOOL-MISSING (the extra `sbom` is not installed).
    """
    from reprobuild.engine.attest import make

    signer = app.keyring.signer(key)
    statement = app.images.statement(image.path, reference=image.reference)
    ids = {k.key: k.id for k in app.keyring.known()}
    out = make(facts, statement, _observed(app, image), signer, ids[signer.key], app.sboms)
    rotations = app.keyring.rotations(signer.key)
    if rotations:
        out.append(Attachment("key.rotated.json", ROTATION, render(rotations)))
    return out


def _observed(app: App, image: Side) -> Observed:
    """The weakest isolation among the records behind an image of this project.

    The image's own record says it: it is as weak as what it was made of, whatever was chosen for
    one of its components since.
    """
    from reprobuild import __version__
    from reprobuild.core.provenance import Observed

    versions = {"reprobuild": __version__}
    if not image.output:
        return Observed(versions=versions)
    from reprobuild.cli.evaluation import evaluate

    graph, (target,) = evaluate(app, (image.output,))
    closure = graph.closure([place.drv for place in target.located.values()])
    records = sum(app.store.realized(drv) is not None for drv in closure)
    return Observed(image.isolation, records, versions)


def read_files(paths: Sequence[Path]) -> list[Attachment]:
    """Attestation files, of the kind that their names end in; raises E-KEY for another."""
    from reprobuild.cli.files import read_document

    out = []
    for path in paths:
        kinds = [kind for ending, kind in ENDINGS.items() if path.name.endswith(ending)]
        if not kinds:
            raise ReprobuildError(
                "E-KEY",
                f"{path} is no attestation by its name",
                hint=f"names end in {', '.join(ENDINGS)}",
                file=str(path),
            )
        out.append(Attachment(path.name, kinds[0], read_document(path, "E-KEY", limit=2**28)))
    return out


def write_files(app: App, attachments: Sequence[Attachment], stem: Path) -> list[Path]:
    """Each as STEM.NAME, whole or not at all."""
    out = []
    for attachment in attachments:
        path = stem.with_name(f"{stem.name}.{attachment.name}")
        app.images.write(path, attachment.data)
        out.append(path)
    return out


def beside(image: Side) -> list[Path]:
    """The attestation files that lie beside an image file or layout, by its name."""
    path = image.path
    found = [p for end in ("dsse", "rotated") for p in path.parent.glob(f"{path.name}.*{end}.json")]
    return sorted(p for p in found if p.is_file())


def policy_of(app: App, image: Side) -> Policy | None:
    """The policy of the project that the call is made in; None where there is none."""
    try:
        return app.project.flake.policy
    except ReprobuildError as error:
        if error.code != "E-NO-FLAKE" or image.output:
            raise
        return None


def checked(
    app: App,
    image: Side,
    facts: ImageFacts,
    attachments: Sequence[Attachment],
    keys: Sequence[Path] = (),
) -> list[Claim]:
    """The claims of attestations that `keys` (public key files) signed; without such, that the
    user's own and trusted keys signed. So did a key that one of these vouches for in an attachment.
    Raises E-SIGNATURE, E-KEY; E-POLICY for provenance of a build with less isolation than the
    image's label says."""
    from reprobuild.engine.attest import check

    if keys:
        believed = [app.keyring.read(path) for path in keys]
    else:
        believed = [(k.id, k.key) for k in app.keyring.known() if not k.revoked]
    followed = [(key_id(new), new) for new in _followed(app, believed, attachments)]
    claims = check(attachments, facts, [*believed, *followed], app.keyring.signed_by)
    from reprobuild.core.policy import check_observed

    release = app.images.statement(image.path, reference=image.reference)["release"]
    check_observed(str(release["isolation"]), claims, str(release["output"]))
    return claims


def _followed(
    app: App, believed: Sequence[tuple[str, bytes]], attachments: Sequence[Attachment]
) -> Mapping[bytes, bytes]:
    """The keys that believed ones vouch for, in the attachments or here, with whose word it is."""
    rotations = [r for a in attachments if a.media_type == ROTATION for r in parse(a.data)]
    for own in app.keyring.known():
        rotations += app.keyring.rotations(own.key) if own.own else []
    return app.keyring.vouched(rotations, [key for _, key in believed])


def hold_to_policy(
    app: App, image: Side, facts: ImageFacts, attachments: Sequence[Attachment]
) -> None:
    """Raises E-POLICY when the image does not keep to the project's policy, or was built with less
    isolation than its own label says."""
    from reprobuild.core.policy import check_claims, check_required, check_statement

    policy = policy_of(app, image)
    if policy is None and not image.isolation:
        return
    statement = app.images.statement(image.path, reference=image.reference)
    if image.isolation:
        required = str(statement["release"]["isolation"])
        check_required(required, image.isolation, "what is on record", image.output)
    if policy is None:
        return
    check_statement(policy, statement)
    if not (policy.signers or policy.gates):
        return
    from reprobuild.engine.attest import check

    believed = [(k.id, k.key) for k in app.keyring.known() if not k.revoked]
    followed = [(key_id(new), new) for new in _followed(app, believed, attachments)]
    signed_by = app.keyring.signed_by
    claims = check(attachments, facts, [*believed, *followed], signed_by, provenance_needed=False)
    # A signer of the policy may have gone on to another key.
    stated = [(name, key) for name, key in believed if name in policy.signers]
    heirs = tuple(key_id(new) for new in _followed(app, stated, attachments))
    check_claims(policy.model_copy(update={"signers": (*policy.signers, *heirs)}), claims)


def hold_to_isolation(app: App, outputs: Sequence[str], grade: str) -> None:
    """Before anything of these images is built: raises E-POLICY for a release that requires less
    than the policy, and for a call that builds it with less than either wants."""
    policy = app.project.flake.policy
    from reprobuild.core.policy import check_isolation, check_required

    for name in outputs:
        release = app.project.flake.outputs[name].release
        if release is None:
            continue
        check_required(release.isolation.value, grade, f"this build of {name}", name)
        if policy is not None:
            check_isolation(policy, release.isolation.value, f"the release of {name}")
            check_isolation(policy, grade, f"this build of {name}")


def hold_realized(app: App, layout: Path) -> None:
    """Raises E-POLICY for what the statement inside a realized image shows."""
    policy = app.project.flake.policy
    if policy is not None:
        from reprobuild.core.policy import check_statement

        check_statement(policy, app.images.statement(layout))


def summary(claims: Sequence[Claim]) -> list[Mapping[str, Any]]:
    """Claims for a JSON document."""
    return [{"predicate_type": c.predicate_type, "signer": c.signer} for c in claims]
