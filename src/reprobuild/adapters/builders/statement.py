"""statement: the document inside an image that says what the image is, and its program.

The document's literal part is the recipe's; what is only known once the components exist – the
digest of each component's tree, the SHA-256 of its CUDA libraries – comes from the inputs, so it is
part of the action as well. Inputs `tree-NAME` are the trees of the components of those names.
Parameters: `document` (the statement without any of that) and `program` (contract.py's text).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence

from reprobuild.adapters.builders.assembly import subtree
from reprobuild.adapters.builders.params import Params
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.tree import File
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

PLACE = b"usr/share/reprobuild"
CHUNK = 2**20


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """A tree with `statement.json` and `contract.py` below usr/share/reprobuild.

    Raises E-PARAMS for a component without its tree, and for a CUDA library that is stated and not
    in the component's tree.
    """
    read = Params("statement", params, ("document", "program"))
    given = read.values.get("document")
    components = given.get("components") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(components, (list, tuple)):
        raise ReprobuildError("E-PARAMS", "statement needs a `document` with `components`")
    rows = [_complete(row, inputs, content) for row in components]
    builder = TreeBuilder()
    for name, data in (
        (b"statement.json", encode({**given, "components": rows}) + b"\n"),
        (b"contract.py", read.text("program").encode()),
    ):
        builder.add(PLACE + b"/" + name, content.add_blob(io.BytesIO(data), size=len(data)))
    root, nodes = builder.build()
    content.add_trees(nodes)
    return {"out": root}


def _complete(row: Value, inputs: Mapping[str, Digest], content: ContentStore) -> dict[str, Value]:
    name = row.get("name") if isinstance(row, Mapping) else None
    tree = inputs.get(f"tree-{name}")
    if not isinstance(row, Mapping) or tree is None:
        raise ReprobuildError("E-PARAMS", f"statement has no tree of the component {name!r:.80}")
    out: dict[str, Value] = {**row, "tree": str(tree)}
    modules = row.get("cuda", [])
    if isinstance(modules, Sequence) and not isinstance(modules, str):
        out["cuda"] = [_hashed(module, tree, content, str(name)) for module in modules]
    return out


def _hashed(module: Value, tree: Digest, content: ContentStore, name: str) -> Value:
    path = module.get("file") if isinstance(module, Mapping) else None
    if not isinstance(module, Mapping) or not isinstance(path, str):
        raise ReprobuildError("E-PARAMS", f"a CUDA library of {name} lacks its `file`")
    entry = subtree(content, tree, path.strip("/").encode())
    if not isinstance(entry, File):
        raise ReprobuildError("E-PARAMS", f"the CUDA library {path} of {name} is no file")
    digest = hashlib.sha256()
    with content.open_blob(entry.digest) as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
    return {**module, "sha256": digest.hexdigest()}
