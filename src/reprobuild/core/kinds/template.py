"""template: files rendered with Jinja in the sandbox, or copied, into one tree.

Jinja itself is an input like any other, so that its version is part of the recipe.
"""

from __future__ import annotations

import json

from reprobuild.core.component import TemplateStep
from reprobuild.core.derivation import SANDBOX, Derivation
from reprobuild.core.kinds.context import Located, StepContext, hints
from reprobuild.core.sandboxenv import base_environment

_PROGRAM = """\
import ast, json, pathlib, sys
import jinja2

source = pathlib.Path("/inputs/source")

def text_of(name):
    # A path, or path#NAME: a text that a Python file gives that name to.
    path, _, constant = name.partition("#")
    text = (source / path).read_bytes().decode()
    if not constant:
        return text
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            if any(getattr(target, "id", "") == constant for target in node.targets):
                return node.value.value
    sys.exit(f"{path} gives no text the name {constant}")

for name, rule in sorted(json.loads(sys.argv[1]).items()):
    to = pathlib.Path("/out/out") / name
    to.parent.mkdir(parents=True, exist_ok=True)
    if "copy" in rule:
        to.write_bytes((source / rule["copy"]).read_bytes())
        continue
    values = dict(rule["values"])
    values.update((key, text_of(place)) for key, place in rule["texts"].items())
    template = jinja2.Template(text_of(rule["template"]), undefined=jinja2.StrictUndefined)
    to.write_bytes(template.render(**values).encode())
"""


def template(spec: TemplateStep, context: StepContext) -> Located:
    """One derivation that makes all files."""
    rules = {
        name: {"copy": rule.copy_of}
        if rule.copy_of is not None
        else {
            "template": rule.template,
            "texts": {**spec.texts, **rule.texts},
            "values": {**spec.values, **rule.values},
        }
        for name, rule in spec.files.items()
    }
    return context.add(
        Derivation(
            name=context.name,
            builder=SANDBOX,
            inputs=(
                context.toolchain_root(spec.toolchain, spec.root).input("root", "/"),
                context.resolve(spec.jinja).input("jinja", "/inputs/jinja"),
                context.resolve(spec.source).input("source", "/inputs/source"),
            ),
            argv=(
                "/usr/bin/python3",
                "-c",
                _PROGRAM,
                json.dumps(rules, sort_keys=True, separators=(",", ":")),
            ),
            env={
                **base_environment(),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONHASHSEED": "0",
                "PYTHONPATH": "/inputs/jinja",
            },
            hints=hints(spec.memory, spec.timeout),
        )
    )
