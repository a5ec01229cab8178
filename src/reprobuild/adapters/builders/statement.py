"""statement: the document inside an image that says what the image is, and its programs.

The document's literal part is the recipe's; what is only known once the components exist comes
from the inputs, so it is part of the action as well. Inputs: `tree-NAME`, the trees of the
components of those names; `layer-NAME[.SPLIT]` and `placed-NAME[.SPLIT]`, the outputs of their
layer steps; `origin-NAME-N`, the trees that the component's files come from; `source-NAME`, its
source as a git tree; `base-0`, the image underneath. Parameters: `document` (the statement without
any of that), `origins` ({component: [core/kinds/origins.py]}), `program` and `verifier` (the texts
of contract.py and verify.py).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any, cast

from reprobuild.adapters.builders.assembly import show, subtree
from reprobuild.adapters.builders.attribution import (
    Account,
    Origins,
    OriginTree,
    account,
    tracked_files,
)
from reprobuild.adapters.builders.inventory import packages
from reprobuild.adapters.builders.params import Params
from reprobuild.adapters.oci.storelayout import load_image, read_file
from reprobuild.core import filelist
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value, decode, encode
from reprobuild.core.tracked import tree_oid
from reprobuild.core.tree import File
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

PLACE = b"usr/share/reprobuild"
CHUNK = 2**20


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """A tree with `statement.json`, the programs and the lists below usr/share/reprobuild.

    Raises E-PARAMS for a component without its tree, and for a CUDA library that is stated and not
    in the component's tree; E-ATTRIBUTION for files that nothing accounts for.
    """
    read = Params("statement", params, ("document", "origins", "program", "verifier"))
    given = read.values.get("document")
    components = given.get("components") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(components, (list, tuple)):
        raise ReprobuildError("E-PARAMS", "statement needs a `document` with `components`")
    stated = read.values.get("origins")
    origins = stated if isinstance(stated, Mapping) else {}
    files: dict[bytes, bytes] = {b"contract.py": read.text("program").encode()}
    if read.has("verifier"):
        files[b"verify.py"] = read.text("verifier").encode()
    rows: list[Value] = []
    for row in components:
        rows.append(_Component(row, inputs, content, origins, files).complete())
    document: dict[str, Value] = {**given, "components": rows}
    if "base-0" in inputs:
        base = load_image(content, inputs["base-0"]).facts
        document["base"] = {
            "diff_ids": [str(layer.diff_id) for layer in base.layers],
            "manifest_digest": str(base.manifest_digest),
        }
    files[b"statement.json"] = encode(document) + b"\n"
    builder = TreeBuilder()
    for name, data in files.items():
        entry = content.add_blob(io.BytesIO(data), size=len(data))
        builder.add(PLACE + b"/" + name, entry)
    root, nodes = builder.build()
    content.add_trees(nodes)
    return {"out": root}


class _Component:
    """One row of the statement; the lists of its files are put into `files`."""

    def __init__(
        self,
        row: Value,
        inputs: Mapping[str, Digest],
        content: ContentStore,
        origins: Mapping[str, Value],
        files: dict[bytes, bytes],
    ) -> None:
        self.name = str(row.get("name")) if isinstance(row, Mapping) else ""
        tree = inputs.get(f"tree-{self.name}")
        if not isinstance(row, Mapping) or tree is None:
            raise ReprobuildError(
                "E-PARAMS", f"statement has no tree of the component {self.name!r:.80}"
            )
        self.row, self.tree = row, tree
        self.inputs, self.content, self.files = inputs, content, files
        self.origins = cast("list[Mapping[str, Any]]", origins.get(self.name, []))

    def complete(self) -> dict[str, Value]:
        out: dict[str, Value] = {**self.row, "tree": str(self.tree)}
        modules = self.row.get("cuda", [])
        if isinstance(modules, Sequence) and not isinstance(modules, str):
            out["cuda"] = [_hashed(m, self.tree, self.content, self.name) for m in modules]
        out["packages"] = packages(
            self.content, self.tree, [pin for o in self.origins for pin in o["pins"]]
        )
        layers = self._layers()
        out["layers"] = [
            {"diff_id": diff_id, "name": name, "placed": str(placed)}
            for name, (diff_id, placed, _) in layers.items()
        ]
        tracked: dict[bytes, Digest] = {}
        source = self._source()
        if source is not None:
            files, tracked, whole, oid = source
            self.files[f"sources/{self.name}".encode()] = b"".join(f.line() for f in files)
            out["tracked"] = {"files": len(files), "git_tree": oid if whole else ""}
        if not self.origins:
            for name, (_, _, listed) in layers.items():
                self._list(name, listed)
            return out
        done = self._account(layers, tracked)
        for name, rows in done.lists.items():
            self._list(name, rows)
        out["origins"] = [
            {key: origin[key] for key in ("drv", "kind", "name", "pins")} for origin in self.origins
        ]
        out["attribution"] = dict(done.counts)
        if source is not None:
            out["tracked"] = {
                **cast("dict[str, Value]", out["tracked"]),
                "changed": ["/" + show(path) for path in done.changed],
                "equal": done.equal,
                "installed": done.installed,
            }
        return out

    def _list(self, name: str, rows: list[filelist.Listed]) -> None:
        self.files[f"files/{name}".encode()] = b"".join(row.line() for row in rows)

    def _layers(self) -> dict[str, tuple[str, Digest, list[filelist.Listed]]]:
        """diffID, placed tree and list of each layer of the component, in the image's order."""
        out: dict[str, tuple[str, Digest, list[filelist.Listed]]] = {}
        for key, tree in self.inputs.items():
            name = key.removeprefix("layer-")
            if key == name or name.partition(".")[0] != self.name:
                continue
            document = cast(
                "Mapping[str, Any]", decode(read_file(self.content, tree, "layer.json"))
            )
            listed = self.content.tree(tree).get(b"files")
            placed = self.inputs.get(f"placed-{name}")
            if not isinstance(listed, File) or placed is None:
                raise ReprobuildError("E-PARAMS", f"statement lacks the list of the layer {name}")
            with self.content.open_blob(listed.digest) as source:
                rows = list(filelist.parse(source.read()))
            out[name] = (str(Sha256.parse(str(document["diff_id"]))), placed, rows)
        return out

    def _source(self) -> tuple[list[Any], dict[bytes, Digest], bool, str] | None:
        tree = self.inputs.get(f"source-{self.name}")
        said = self.row.get("source")
        if tree is None or not isinstance(said, Mapping):
            return None
        expected = str(said.get("integration_tree", ""))
        sha256 = len(expected) == 64
        files, contents, whole = tracked_files(self.content, tree, sha256=sha256)
        oid = tree_oid(files, sha256=sha256)
        if whole and expected and oid != expected:
            raise ReprobuildError(
                "E-ATTRIBUTION",
                f"the source of {self.name} makes up the git tree {oid}, not {expected}",
                hint="the store's copy is not what git names; run `reprobuild store verify`",
                component=self.name,
            )
        return files, contents, whole, oid

    def _account(
        self,
        layers: Mapping[str, tuple[str, Digest, list[filelist.Listed]]],
        tracked: Mapping[bytes, Digest],
    ) -> Account:
        trees = [
            OriginTree(
                str(origin["kind"]),
                self.inputs.get(f"origin-{self.name}-{index}"),
                frozenset(origin["texts"]),
                frozenset(origin["links"]),
            )
            for index, origin in enumerate(self.origins)
        ]
        modified = self.row.get("modified")
        return account(
            self.name,
            self.content,
            {name: (placed, listed) for name, (_, placed, listed) in layers.items()},
            Origins(self.content, trees),
            tracked,
            cast("Mapping[str, str]", modified) if isinstance(modified, Mapping) else {},
        )


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
