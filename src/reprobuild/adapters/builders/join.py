"""join: trees put together into one.

Parameters: `place`, a list of `{input, from, to, include, exclude, replace}` in order; `links`
(path to target), `files` (path to text) and `executables` (which of `files` are executable).
Directories merge; different content in one place is refused unless the later placement says
`replace`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

from reprobuild.adapters.builders.assembly import Assembly, subtree
from reprobuild.adapters.builders.globs import Selection
from reprobuild.adapters.builders.params import Params
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.tree import Directory, Symlink
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

KEYS = ("place", "links", "files", "executables")
PLACE_KEYS = ("input", "from", "to", "include", "exclude", "replace")


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """See the module text. Raises E-PARAMS, E-TREE, E-TREE-CONFLICT."""
    read = Params("join", params, KEYS)
    assembly = Assembly(content)
    for place in read.tables("place", PLACE_KEYS):
        _place(place, inputs, content, assembly)
    add_texts(read, content, assembly)
    return {"out": assembly.build()}


def _place(
    place: Params, inputs: Mapping[str, Digest], content: ContentStore, assembly: Assembly
) -> None:
    name = place.text("input")
    if name not in inputs:
        raise ReprobuildError(
            "E-PARAMS",
            f"{place.where} names the input `{name}`, which is not one of {', '.join(inputs)}",
            input=name,
        )
    source = place.text("from", "").encode()
    target = place.text("to", "").encode()
    replace = place.flag("replace")
    select = Selection.of(place.texts("include"), place.texts("exclude"))
    entry = subtree(content, inputs[name], source)
    if isinstance(entry, Directory):
        assembly.graft(target, entry.digest, name, select=select, replace=replace)
        return
    if not select.everything:
        raise ReprobuildError("E-PARAMS", f"{place.where} selects inside a single file")
    if not target or target.endswith(b"/"):
        target += source.rstrip(b"/").rpartition(b"/")[2]
    assembly.put(target, entry, name, replace=replace)


def add_texts(read: Params, content: ContentStore, assembly: Assembly) -> None:
    """Puts the `links` and `files` of a recipe over what is there."""
    executables = read.texts("executables") if read.has("executables") else []
    files = read.table("files")
    for path in executables:
        if path not in files:
            raise ReprobuildError("E-PARAMS", f"`{path}` is in `executables`, but not in `files`")
    for path, text in files.items():
        entry = content.add_blob(io.BytesIO(text.encode()), executable=path in executables)
        assembly.put(path.encode(), entry, "", replace=True)
    for path, target in read.table("links").items():
        assembly.put(path.encode(), Symlink(target.encode()), "", replace=True)
