"""qualify: gates of a release and their evidence."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.cli.releasing import documents
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.engine.documents import ReleaseDocuments
    from reprobuild.engine.qualify import Result


@click.command()
@installable_argument
@click.option("--gate", "chosen", multiple=True, metavar="NAME", help="Only this gate.")
@click.option("--key", metavar="NAME", help="Sign evidence with this key of yours.")
@click.option(
    "--import", "files", multiple=True, metavar="FILE", help="Take evidence from elsewhere: signed."
)
@click.option("--list", "listing", is_flag=True, help="Run nothing: show what is recorded.")
@click.pass_obj
def qualify(
    app: App, /, installable: str, chosen: tuple[str, ...], key: str | None,
    files: tuple[str, ...], listing: bool,
) -> None:  # fmt: skip
    """Run the gates that this machine can, record evidence, show the others as not run here."""
    app, (name,) = in_flake(app, (installable,))
    made = documents(app, name)
    gates = made.facts.declared.gates
    for gate in chosen:
        if gate not in gates:
            near = get_close_matches(gate, gates, 1)
            raise ReprobuildError(
                "E-USAGE",
                f"--gate: output {made.output} has no gate {gate!r}"
                + (f"; did you mean {near[0]!r}?" if near else ""),
                hint="its gates: " + (", ".join(gates) or "none"),
                got=gate,
            )
    if files:
        _import(app, made, files)
        return
    if listing:
        _show(app, made, [])
        return
    results, image = _run(
        app, made, {n: g for n, g in gates.items() if not chosen or n in chosen}, key
    )
    app.quiet()
    for result in results:
        if result.evidence is not None:
            app.qualification.keep(result.evidence)
    wrong = [r.evidence for r in results if r.evidence is not None and not r.evidence.passed]
    if not (wrong and app.json):
        _show(app, documents(app, name), results, image)
    if wrong:
        raise ReprobuildError(
            "E-GATE",
            f"{made.output}: the gate {wrong[0].gate} failed: {wrong[0].detail}",
            gates=[evidence.gate for evidence in wrong],
        )


def _import(app: App, made: ReleaseDocuments, files: tuple[str, ...]) -> None:
    from reprobuild.engine.qualify import accept

    gates = list(made.facts.declared.gates)
    taken = []
    for file in files:
        evidence = app.qualification.read(Path(file))
        taken.append(accept(evidence, made.output, gates, app.keyring))
    for evidence in taken:
        if evidence.reference != made.facts.reference:
            raise ReprobuildError(
                "E-EVIDENCE",
                f"the evidence of gate {evidence.gate} is of {evidence.reference}, and this "
                f"composition is {made.facts.reference}",
            )
    for evidence in taken:
        app.qualification.keep(evidence)
    _show(app, documents(app, made.output), [])


def _run(app: App, made: ReleaseDocuments, gates: Any, key: str | None) -> tuple[list[Result], str]:
    from reprobuild import __version__
    from reprobuild.cli.gates import Gates
    from reprobuild.engine.qualify import run_gates

    signer = app.keyring.signer(key) if key else None
    with app.store.lease():
        runners = Gates(app, made)
        tool = f"reprobuild {__version__}"
        bench = app.qualification.bench
        subject = runners.subject
        done = run_gates(gates, runners.by_kind(), subject, bench, tool, signer)
        return done, subject.image


def _show(app: App, made: ReleaseDocuments, results: list[Result], image: str = "") -> None:
    """Every gate: what is recorded of this composition, and why the others are not."""
    from reprobuild.engine.qualify import bound

    reasons = {r.gate: r.reason for r in results if r.evidence is None}
    recorded = bound(app.qualification.of(made.output), made.facts.reference, image)
    rows: dict[str, dict[str, Any]] = {}
    for name, gate in made.facts.declared.gates.items():
        found = recorded.get(name)
        rows[name] = {
            "title": gate.title or name,
            "state": "not-run" if found is None else "passed" if found.passed else "failed",
            "detail": found.detail if found else "",
            "hardware": found.hardware if found else "",
            "time": found.time if found else "",
            "image": found.image if found else "",
            "signed": bool(found and found.signature),
            "reason": reasons.get(name, "" if found else gate.needs),
        }
    if app.json:
        document = {"reference": made.facts.reference, "gates": rows}
        click.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    width = max(map(len, rows), default=0)
    for name, row in rows.items():
        said = row["detail"] or row["reason"]
        title = "" if row["title"] == name else row["title"]
        click.echo(f"  {row['state']:<8} {name:<{width}}  {title:<28} {said}".rstrip())
    if not rows:
        click.echo(f"{made.output} has no gates")
