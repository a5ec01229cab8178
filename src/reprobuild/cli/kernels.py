"""kernels: what device code is in a component, read from the files themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.cubin.kernel import Kernel
    from reprobuild.core.cubin.module import Module

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

    app, (text,) = in_flake(app, (installable,))
    modules = {p: m for p, m in _modules(app, text).items() if fnmatchcase(p, module)}
    readable = app.kernels.demangle(k.name for m in modules.values() for k in m.kernels)
    documents = {path: _document(found, readable, name) for path, found in sorted(modules.items())}
    if app.json:
        click.echo(json.dumps({"modules": documents}, indent=2))
        return
    for path, document in documents.items():
        _print(path, document)
    if not documents:
        click.echo("no device code")


def _modules(app: App, text: str) -> dict[str, Module]:
    """`COMPONENT/PATH` → module, of every component that the installable has."""
    from reprobuild.cli.evaluation import evaluate

    graph, (target,) = evaluate(app, (text,))
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
    click.echo(f"{path}  {archs}  {ptx}  {len(rows)} kernels{linked}")
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
