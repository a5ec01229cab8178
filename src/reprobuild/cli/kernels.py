"""kernels: what device code is in a component, read from the files themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.core.wording import plural
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.cli.evaluation import Target
    from reprobuild.core.cubin.kernel import Kernel
    from reprobuild.core.cubin.module import Module
    from reprobuild.core.graph import Graph
    from reprobuild.engine.evaluate import Evaluation

_COLUMNS = ("registers", "stack", "spills", "shared", "code", "")


@click.command()
@installable_argument
@click.option("--module", metavar="PATTERN", default="*", help="Only modules whose path matches.")
@click.option("--name", metavar="PATTERN", default="*", help="Only kernels whose name matches.")
@click.pass_obj
def kernels(app: App, /, installable: str, module: str, name: str) -> None:
    """Kernels, architectures, PTX, registers and sizes of each module of INSTALLABLE.

    Read from the files that were built; needs no GPU and no CUDA tool. PATTERN is matched as a
    whole, with `*` and `?`; kernels by their demangled name.
    """
    from fnmatch import fnmatchcase

    from reprobuild.cli.evaluation import evaluate

    app, (text,) = in_flake(app, (installable,))
    graph, (target,) = evaluate(app, (text,))
    found = _modules(app, graph, target)
    modules = {p: m for p, m in found.items() if fnmatchcase(p, module)}
    ran = _ran(app, target.evaluation)
    readable = app.kernels.demangle(k.name for m in modules.values() for k in m.kernels)
    documents = {path: _document(found, readable, name) for path, found in sorted(modules.items())}
    if app.json:
        click.echo(json.dumps({"checks": ran, "modules": documents}, indent=2))
        return
    for path, document in documents.items():
        _print(path, document)
    if not documents:
        click.echo("no device code")
    for check, row in ran.items():
        state = "passed" if row["passed"] else "failed"
        click.echo(f"check {check}  {state} on {row['hardware']}, {row['time']}")


def _ran(app: App, evaluation: Evaluation) -> dict[str, dict[str, Any]]:
    """What kernel checks showed of the very trees that are here, by `COMPONENT.CHECK`."""
    by_tree = {
        tree: evidence
        for output in app.project.flake.outputs
        for evidence in app.qualification.of(output).values()
        for tree in evidence.modules.values()
    }
    rows: dict[str, dict[str, Any]] = {}
    for component in evaluation.components if by_tree else ():
        for name, checked in evaluation.checks(component).items():
            record = app.store.realized(checked.module.drv)
            tree = str(record.outputs[checked.module.output]) if record else ""
            if tree in by_tree:
                found = by_tree[tree]
                rows[f"{component}.{name}"] = {
                    "passed": found.passed,
                    "hardware": found.hardware,
                    "time": found.time,
                    "detail": found.detail,
                    "signed": bool(found.signature),
                    "tree": tree,
                }
    return rows


def _modules(app: App, graph: Graph, target: Target) -> dict[str, Module]:
    """`COMPONENT/PATH` → module, of every component that the installable has."""
    wanted = target.installable
    components = dict(target.evaluation.components)
    if wanted.component is not None:
        # A component, or one step of it.
        components = {wanted.component: next(iter(target.located.values()))}
    found: dict[str, Module] = {}
    for component, located in components.items():
        record = app.store.realized(located.drv)
        if record is None:
            what = f"{wanted.output}.{component}" if wanted.component is None else str(wanted)
            raise ReprobuildError(
                "E-NOT-REALIZED",
                f"{what} has not been made here yet",
                derivation=graph.nodes[located.drv].name,
                hint=f"run `reprobuild realize {what}` first",
            )
        table = app.kernels.table(record.outputs[located.output])
        inner = f"{located.path}/" if located.path else ""
        found.update(
            (f"{component}/{path.removeprefix(inner)}", module)
            for path, module in table.items()
            if path == located.path or path.startswith(inner)
        )
    return found


def _document(module: Module, readable: Mapping[str, str], pattern: str) -> dict[str, Any]:
    from fnmatch import fnmatchcase

    rows = [_kernel(k, readable[k.name]) for k in module.kernels]
    return {
        "archs": list(module.archs),
        "kernels": [row for row in rows if fnmatchcase(row["demangled"], pattern)],
        "ptx": list(module.ptx),
        "relocatable": module.relocatable,
    }


def _kernel(kernel: Kernel, demangled: str) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "demangled": demangled,
        "arch": kernel.arch,
        "registers": kernel.registers,
        "stack": kernel.stack,
        "spills": {"loads": kernel.local_loads, "stores": kernel.local_stores},
        "shared": kernel.shared,
        "constant": kernel.constant,
        "barriers": kernel.barriers,
        "code_size": kernel.code_size,
        "code": str(kernel.code),
        "max_threads": list(kernel.max_threads) or None,
        "required_threads": list(kernel.required_threads) or None,
        "copies": kernel.copies,
    }


def _print(path: str, document: dict[str, Any]) -> None:
    rows = document["kernels"]
    archs = " ".join(document["archs"]) or "no machine code"
    ptx = "PTX for " + " ".join(document["ptx"]) if document["ptx"] else "no PTX"
    linked = "  not device-linked" if document["relocatable"] else ""
    click.echo(f"{path}  {archs}  {ptx}  {plural(len(rows), 'kernel')}{linked}")
    several = len(document["archs"]) > 1
    table = [_COLUMNS]
    for row in rows:
        spills = row["spills"]["loads"] + row["spills"]["stores"]
        label = row["demangled"] + (f"  [{row['arch']}]" if several else "")
        label += f"  ×{row['copies']}" if row["copies"] > 1 else ""
        figures = (row["registers"], row["stack"], spills, row["shared"], row["code_size"])
        table.append((*map(str, figures), label))
    widths = [max(len(line[n]) for line in table) for n in range(5)]
    for line in table if rows else ():
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=False)]
        click.echo(("  " + "  ".join(cells) + "  " + line[5]).rstrip())
