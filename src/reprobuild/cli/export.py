"""export: the closure of installables as one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import complete_outputs, in_flake
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.bundle.signing import Signer
    from reprobuild.core.digest import Digest
    from reprobuild.core.graph import Graph
    from reprobuild.engine.transfer import Held, Shipment


@click.command()
@click.argument("installables", nargs=-1, shell_complete=complete_outputs)
@click.option("-o", "--output", required=True, metavar="FILE", help="The bundle's file.")
@click.option("--sources", is_flag=True, help="All that a rebuild needs, and the tool.")
@click.option("--have", metavar="INVENTORY", help="Leave out what this inventory says is there.")
@click.option(
    "--tool/--no-tool",
    "tool",
    default=None,
    help="With the tool itself, or without (default: with --sources, unless --have).",
)
@click.option(
    "--tool-wheels",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Wheels of the dependencies for other versions of Python.",
)
@click.option("--key", default="default", metavar="NAME", help="The key to sign with.")
@click.option("--no-sign", is_flag=True, help="Do not sign.")
@click.option("--prove", is_flag=True, help="Rebuild it from itself alone, and certify that.")
@click.option(
    "--isolation",
    type=click.Choice(["full", "host-toolchain", "none"]),
    help="The grade to prove with (default: what the release requires).",
)
@click.option("--dry-run", is_flag=True, help="Say the size, write nothing.")
@click.pass_obj
def export(app: App, /, installables: tuple[str, ...], **options: Any) -> None:
    """Write what installables need into one file."""
    app, names = in_flake(app, installables)
    if options["tool"] and not options["sources"]:
        raise ReprobuildError("E-USAGE", "--tool goes with --sources")
    # Who asks for a difference has imported before, and so has the tool.
    with_tool = options["sources"] and not options["have"]
    options["tool"] = with_tool if options["tool"] is None else options["tool"]
    if options["tool_wheels"] and not options["tool"]:
        raise ReprobuildError("E-USAGE", "--tool-wheels goes with --sources and the tool")
    if options["prove"] and (not options["sources"] or options["have"]):
        raise ReprobuildError("E-USAGE", "--prove goes with --sources and a whole bundle")
    app.check_file(Path(options["output"]), "-o")
    with app.store.lease():
        shipment = _plan(app, names, options)
        size = {"content_bytes": shipment.size, "objects": len(shipment.entries)}
        if options["have"] is not None:
            size |= {"full_bytes": shipment.full_size, "full_objects": shipment.full_objects}
        if options["dry_run"]:
            document: dict[str, Any] = {
                **size,
                "bundle_digest": None,
                "bytes": None,
                "with_tool": options["tool"],
            }
        else:
            _say(app, shipment, options)
            document = {**size, **_write(app, shipment, options)}
    if options["prove"] and not options["dry_run"]:
        document["proof"] = _prove(app, names, shipment, options, document["bundle_digest"])
    document["requires"] = [str(d) for d in shipment.manifest.requires.closures] + [
        str(d) for d in shipment.manifest.requires.trees
    ]
    app.quiet()
    _print(app, options["output"], document)


def _plan(app: App, names: tuple[str, ...], options: dict[str, Any]) -> Shipment:
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.core.bundle.project import project_paths
    from reprobuild.engine.transfer import Exporter

    graph, targets = evaluate(app, names)
    located = {name: place for target in targets for name, place in target.located.items()}
    git: dict[str, Digest] = {}
    if options["sources"]:
        drvs = [place.drv for place in located.values()]
        _fetch(app, graph, drvs)
        git = _git(app, graph, drvs)
    project = app.bundles.capture_project(app.flake_dir, project_paths(app.project))
    return Exporter(app.store).plan(
        graph,
        located,
        sources=options["sources"],
        project=project,
        git=git,
        held=_held(app, options["have"]),
    )


def _fetch(app: App, graph: Graph, drvs: list[Any]) -> None:
    """Brings in fetched inputs that this store never needed, since results stood for them."""
    from reprobuild.core.derivation import Isolation
    from reprobuild.engine.realize import Wishes
    from reprobuild.engine.scheduler import Limits

    fixed = sorted(
        d
        for d in graph.closure(drvs)
        if (f := graph.nodes[d].fixed) is not None and f.kind != "git-tree"
    )
    wish = Wishes(Isolation.FULL, Limits(jobs=4, cores=4, memory=2**32))
    app.building.realizer(Isolation.FULL).realize(graph, fixed, wish)


def _git(app: App, graph: Graph, drvs: list[Any]) -> dict[str, Digest]:
    """The git objects that the integrations read."""
    wanted = [
        (node.fixed, node.origin)
        for drv in sorted(graph.closure(drvs))
        if (node := graph.nodes[drv]).fixed is not None and node.origin.get("kind") == "git"
    ]
    return app.bundles.pack_sources(app.sources.git_sources, wanted) if wanted else {}


def _held(app: App, inventory: str | None) -> Held | None:
    from reprobuild.cli.files import read_document
    from reprobuild.core.bundle.inventory import decode_inventory
    from reprobuild.engine.inventory import what_is_held

    if inventory is None:
        return None
    data = read_document(Path(inventory), "E-USAGE")
    found = decode_inventory(_raw(data))
    app.bundles.check_inventory(found, app.bundles.signed_by)
    return what_is_held(app.store, found.closures, found.trees)


def _raw(data: bytes) -> bytes:
    """An inventory's bytes, from the file or from the base64 text that a scanner gives."""
    import base64
    import binascii

    from reprobuild.core.bundle.inventory import MAGIC

    if data.startswith(MAGIC):
        return data
    try:
        return base64.b64decode(data.strip(), validate=True)
    except binascii.Error:
        return data


def _say(app: App, shipment: Shipment, options: dict[str, Any]) -> None:
    """The size comes first."""
    if app.settings.quiet:
        return
    whole = f" of {shipment.full_size / 2**20:.1f}" if options["have"] else ""
    text = f"{len(shipment.entries)} objects, {shipment.size / 2**20:.1f}{whole} MiB of content"
    if options["tool"]:
        text += ", and the tool"
    elif options["sources"] and options["have"]:
        text += "; without the tool, which the other side has (--tool carries it)"
    click.echo(text, err=True)


def _write(app: App, shipment: Shipment, options: dict[str, Any]) -> dict[str, Any]:
    from reprobuild.core.bundle.signing import BUNDLE, sign
    from reprobuild.core.encoding import encode
    from reprobuild.engine.inventory import memo_root

    signer = None if options["no_sign"] else _signer(app, options["key"])
    tool = (b"", "")
    if options["tool"]:
        tool = app.bundles.toolkit([Path(d) for d in options["tool_wheels"]])
    app.store.barrier()
    closure = shipment.manifest.keep.content
    app.store.set_root(
        memo_root(closure),
        encode(
            {
                "closure": closure.document(),
                "keep": {"drvs": [], "records": [], "trees": []},
            }
        ),
    )
    written = app.bundles.write(
        Path(options["output"]),
        shipment.manifest,
        shipment.entries,
        shipment.open,
        tool=tool,
        sign=lambda digest: sign(
            signer, BUNDLE, digest, app.bundles.stamp(digest) if signer is not None else None
        ),
    )
    return {
        "bundle_digest": str(written.digest),
        "bytes": written.size,
        "closure": str(closure.digest),
        "resumed_pieces": written.resumed,
        "signed_by": signer.key.hex() if signer is not None else None,
        "tool": tool[1],
    }


def _prove(
    app: App, names: tuple[str, ...], shipment: Shipment, options: dict[str, Any], digest: str
) -> dict[str, Any]:
    """Rebuilds the bundle from itself alone; puts the certificate into it."""
    from reprobuild.core.bundle.proof import Proof
    from reprobuild.core.bundle.signing import PROOF, parse_signatures, sign
    from reprobuild.core.digest import Digest
    from reprobuild.engine.transfer import Exporter

    path = Path(options["output"])
    certificate = app.bundles.prove(path, Digest.parse(digest), names, options["isolation"])
    certificate |= Exporter(app.store).share_needed(shipment)
    proof = Proof(certificate)
    signer = None if options["no_sign"] else _signer(app, options["key"])
    proof = Proof(certificate, parse_signatures(sign(signer, PROOF, proof.digest)))
    app.bundles.add_proof(path, proof.document())
    compared: Any = certificate["compared"]
    if compared["different"]:
        raise ReprobuildError(
            "E-NOT-REPRODUCIBLE",
            f"{len(compared['different'])} outputs came out differently in the rebuild; "
            "the bundle says so",
            different=[f"{n}: {t}" for n, t in compared["different"].items()],
        )
    return certificate


def _signer(app: App, name: str) -> Signer | None:
    """The key of that name; nobody has to have a default one."""
    if name == "default" and not app.keyring.has(name):
        click.echo("not signed: there is no key (`reprobuild key generate` makes one)", err=True)
        return None
    return app.keyring.signer(name)


def _print(app: App, path: str, document: dict[str, Any]) -> None:
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    if document["bytes"] is None:
        size = document["content_bytes"] / 2**20
        more = ", and the tool" if document["with_tool"] else ""
        click.echo(f"{document['objects']} objects, {size:.1f} MiB of content{more}")
        return
    click.echo(f"{path}  {document['bundle_digest']}")
    if "proof" in document:
        equal = document["proof"]["compared"]["equal"]
        click.echo(f"  proved: rebuilt from itself alone, {equal} outputs equal")
    click.echo(f"  {document['objects']} objects, {document['bytes'] / 2**20:.1f} MiB")
    for name in document["requires"]:
        click.echo(f"  needs {name}")
