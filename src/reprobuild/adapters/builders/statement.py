"""statement: the document inside an image that says what the image is, and its program.

The document's literal part is the recipe's; what is only known once the components exist – the
digest of each component's tree – comes from the inputs, so it is part of the action as well.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, cast

from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.ports import ContentStore

PLACE = b"usr/share/reprobuild"


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """A tree with `statement.json` and `contract.py` below usr/share/reprobuild.

    Params: `document` (the statement without trees) and `program` (contract.py's text). Inputs
    `tree-NAME` are the trees of the components of those names.
    """
    given = cast("dict[str, Any]", params)
    document = dict(given["document"])
    document["components"] = [
        {**row, "tree": str(inputs[f"tree-{row['name']}"])} for row in document["components"]
    ]
    builder = TreeBuilder()
    for name, data in (
        (b"statement.json", encode(document) + b"\n"),
        (b"contract.py", given["program"].encode()),
    ):
        builder.add(PLACE + b"/" + name, content.add_blob(io.BytesIO(data), size=len(data)))
    root, nodes = builder.build()
    content.add_trees(nodes)
    return {"out": root}
