"""unpack: archives into a tree.

Inputs are one-file trees; several are unpacked over each other in the order of their names
(`archive`, `archive-0`, `archive-1`…) and must not disagree. Parameters: `format` (auto, zip, tar),
`strip`, `include`, `exclude`, `prefix`, `limit` (bytes an archive may unpack to).
"""

from __future__ import annotations

from collections.abc import Mapping

from reprobuild.adapters.builders.archive import DEFAULT_LIMIT, Budget, Intake
from reprobuild.adapters.builders.assembly import Assembly, single_file
from reprobuild.adapters.builders.globs import Selection
from reprobuild.adapters.builders.params import Params, numbered
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.treebuilder import split_path
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

KEYS = ("format", "strip", "include", "exclude", "prefix", "limit")


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """See the module text. Raises E-PARAMS, E-ARCHIVE…, E-TREE-CONFLICT."""
    read = Params("unpack", params, KEYS)
    format_ = read.text("format", "auto", choices=("auto", "zip", "tar"))
    select = Selection.of(read.texts("include"), read.texts("exclude"))
    prefix = b"/".join(split_path(read.text("prefix", "").encode()))
    strip = read.integer("strip", 0, most=64)
    limit = read.integer("limit", DEFAULT_LIMIT, most=2**50)
    names = [name for name in ("archive",) if name in inputs] + numbered(inputs, "archive")
    if not names or len(names) != len(inputs):
        raise ReprobuildError(
            "E-PARAMS", "unpack takes the inputs `archive` or `archive-0`, `archive-1`…"
        )
    assembly = Assembly(content)
    if prefix:
        assembly.directory(prefix, "")
    for name in names:
        label, file = single_file(content, inputs[name], f"the input {name}")
        intake = Intake(
            content, assembly, label, Budget(label, file.size, limit), select, strip, prefix
        )
        with content.open_blob(file.digest) as source:
            magic = source.read(8)
        if format_ == "zip" or (format_ == "auto" and magic.startswith(b"PK")):
            from reprobuild.adapters.builders.zipread import read_zip

            read_zip(content.materialise_blob(file.digest, executable=file.executable), intake)
        else:
            from reprobuild.adapters.builders.tarread import read_tar

            digest = file.digest
            read_tar(lambda digest=digest: content.open_blob(digest), magic, intake)  # type: ignore[misc]
    return {"out": assembly.build()}
