"""rootfs: Debian packages into one root file system, without running their scripts.

Inputs `deb-0`, `deb-1`… are one-file trees, unpacked in that order as dpkg would: over a merged
/usr, through the links that are already there. Parameters: `exclude` (patterns), `links` (path to
target), `files` (path to text), `executables`. Each package's control paragraph goes to
`var/lib/dpkg/status.d/<package>`, where scanners look for packages in images without dpkg.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

from reprobuild.adapters.builders.archive import DEFAULT_LIMIT, Budget, Intake
from reprobuild.adapters.builders.assembly import Assembly, single_file
from reprobuild.adapters.builders.deb import Package
from reprobuild.adapters.builders.globs import Selection
from reprobuild.adapters.builders.join import add_texts
from reprobuild.adapters.builders.params import Params, numbered
from reprobuild.adapters.builders.tarread import read_tar
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.tree import Symlink
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

KEYS = ("exclude", "links", "files", "executables")
MERGED_USR = ("bin", "lib", "lib64", "sbin")


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """See the module text. Raises E-PARAMS, E-ARCHIVE…, E-TREE-CONFLICT (naming both packages)."""
    read = Params("rootfs", params, KEYS)
    select = Selection.of([], read.texts("exclude"))
    names = numbered(inputs, "deb")
    if not names or len(names) != len(inputs):
        raise ReprobuildError("E-PARAMS", "rootfs takes the inputs `deb-0`, `deb-1`…")
    assembly = Assembly(content, follow=True)
    for part in MERGED_USR:
        assembly.directory(f"usr/{part}".encode(), "merged /usr")
        assembly.put(part.encode(), Symlink(f"usr/{part}".encode()), "merged /usr")
    for name in names:
        label, file = single_file(content, inputs[name], f"the input {name}")
        path = content.materialise_blob(file.digest, executable=file.executable)
        with path.open("rb") as source:
            _unpack(Package(label, file.size, source), content, assembly, select)
    add_texts(read, content, assembly)
    return {"out": assembly.build()}


def _unpack(package: Package, content: ContentStore, assembly: Assembly, select: Selection) -> None:
    budget = Budget(package.label, package.size, DEFAULT_LIMIT)
    intake = Intake(content, assembly, package.label, budget, select, merge_usr=True)
    read_tar(package.data, package.data_magic(), intake)
    status = f"var/lib/dpkg/status.d/{package.name}".encode()
    if select.takes(status):
        text = package.control + "\nStatus: install ok installed\n"
        assembly.put(status, content.add_blob(io.BytesIO(text.encode())), package.label)
