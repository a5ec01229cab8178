"""wheel-install: wheels installed the way pip would, as a tree.

Inputs `wheel`, `wheel-0`, `wheel-1`… are one-file trees. Parameters: `prefix` (where packages go),
`scripts` (where commands go), `data` (what a wheel's data scheme lands under), `interpreter` (the
shebang of commands). RECORD is checked before anything is taken and written anew, sorted; no .pyc
is made. Reading and checking wheels is the `installer` library's; destinations and the text of
command scripts are ours, so that a new version of it moves no bytes.
"""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import os
import posixpath
import warnings
import zipfile
from collections.abc import Collection, Iterable, Mapping
from typing import BinaryIO, cast

from installer import install
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import Hash, RecordEntry
from installer.sources import WheelFile

from reprobuild.adapters.builders.archive import (
    DEFAULT_LIMIT,
    Budget,
    Intake,
    entry_path,
    refuse,
)
from reprobuild.adapters.builders.assembly import Assembly, single_file
from reprobuild.adapters.builders.globs import Selection
from reprobuild.adapters.builders.params import Params, numbered
from reprobuild.adapters.builders.zipread import DAMAGE, check
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.tree import File
from reprobuild.core.treebuilder import split_path
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

KEYS = ("prefix", "scripts", "data", "headers", "interpreter")

_SCRIPT = """\
#!{interpreter}
import sys

from {module} import {first}

if __name__ == "__main__":
    sys.argv[0] = sys.argv[0].removesuffix(".exe")
    sys.exit({call}())
"""


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """See the module text. Raises E-PARAMS, E-WHEEL, E-ARCHIVE…, E-TREE-CONFLICT."""
    read = Params("wheel-install", params, KEYS)
    schemes = {
        "purelib": read.text("prefix", "usr/lib/python3/dist-packages"),
        "platlib": read.text("prefix", "usr/lib/python3/dist-packages"),
        "scripts": read.text("scripts", "usr/bin"),
        "data": read.text("data", "usr"),
        "headers": read.text("headers", "usr/include/python3"),
    }
    for place in schemes.values():
        split_path(place.encode())
    interpreter = read.text("interpreter", "/usr/bin/python3")
    if not interpreter.startswith("/") or "\n" in interpreter:
        raise ReprobuildError("E-PARAMS", f"`interpreter` is no absolute path: {interpreter!r}")
    names = [name for name in ("wheel",) if name in inputs] + numbered(inputs, "wheel")
    if not names or len(names) != len(inputs):
        raise ReprobuildError("E-PARAMS", "wheel-install takes `wheel` or `wheel-0`, `wheel-1`…")
    assembly = Assembly(content)
    for name in names:
        label, file = single_file(content, inputs[name], f"the input {name}")
        _install(label, file, _Destination(label, schemes, interpreter, content, assembly))
    return {"out": assembly.build()}


def _install(
    label: str,
    file: File,
    destination: _Destination,
) -> None:
    content, assembly = destination.content, destination.assembly
    path = content.materialise_blob(file.digest, executable=file.executable)
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            intake = Intake(
                content,
                assembly,
                label,
                Budget(label, file.size, DEFAULT_LIMIT),
                Selection.of([], []),
            )
            check(archive, intake)
            archive.filename = label  # the library reads name and version out of it
            source = WheelFile(archive)
            source.validate_record()
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", RuntimeWarning
                )  # __pycache__ is left out, as it says
                install(source, destination, {"INSTALLER": b"reprobuild\n"})
    except (InstallerError, configparser.Error, KeyError, AssertionError) as error:
        issues = getattr(error, "issues", None) or [str(error) or type(error).__name__]
        raise ReprobuildError(
            "E-WHEEL", f"{label} is no sound wheel: {issues[0]}", archive=label, issues=issues[:20]
        ) from error
    except DAMAGE as error:
        raise refuse(label, b"", f"cannot be read: {error}") from error


class _Destination(WheelDestination):
    """Takes what `installer` hands out into an assembly."""

    def __init__(
        self,
        label: str,
        schemes: Mapping[str, str],
        interpreter: str,
        content: ContentStore,
        assembly: Assembly,
    ) -> None:
        self.label = label
        self.schemes = schemes
        self.interpreter = interpreter
        self.content = content
        self.assembly = assembly

    def write_script(self, name: str, module: str, attr: str, section: str) -> RecordEntry:
        """A command for an entry point."""
        words = (*module.split("."), *attr.split("."))
        if not all(word.isidentifier() for word in words) or "/" in name or not name:
            raise ReprobuildError(
                "E-WHEEL", f"{self.label} has an entry point that is off: {name[:80]!r}"
            )
        text = _SCRIPT.format(
            interpreter=self.interpreter, module=module, first=attr.partition(".")[0], call=attr
        )
        return self._add("scripts", name, io.BytesIO(text.encode()), True)

    def write_file(
        self, scheme: str, path: str | os.PathLike[str], stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        """A file of the wheel; `#!python` of a script becomes the interpreter."""
        path = os.fspath(path)
        if scheme == "scripts":
            text = stream.read()
            if text.startswith(b"#!python"):
                text = b"#!" + self.interpreter.encode() + b"\n" + text.partition(b"\n")[2]
            return self._add(scheme, path, io.BytesIO(text), True)
        return self._add(scheme, path, stream, is_executable)

    def _add(self, scheme: str, path: str, stream: BinaryIO, executable: bool) -> RecordEntry:
        entry_path(self.label, path.encode())
        counted = _Hashing(stream)
        entry = self.content.add_blob(cast(BinaryIO, counted), executable=executable)
        full = posixpath.join(self.schemes[scheme], path)
        self.assembly.put(full.encode(), entry, self.label)
        digest = base64.urlsafe_b64encode(counted.sha256.digest()).rstrip(b"=").decode()
        return RecordEntry(path, Hash("sha256", digest), entry.size)

    def finalize_installation(
        self, scheme: str, record_file_path: str, records: Iterable[tuple[str, RecordEntry]]
    ) -> None:
        """Writes RECORD, sorted, with paths relative to where the package lies."""
        root = self.schemes[scheme]
        rows: Collection[tuple[str, str, str]] = sorted(
            (
                posixpath.relpath(posixpath.join(self.schemes[where], record.path), root),
                str(record.hash_) if record.hash_ else "",
                str(record.size) if record.size is not None else "",
            )
            for where, record in records
        )
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        entry = self.content.add_blob(io.BytesIO(text.getvalue().encode()))
        self.assembly.put(posixpath.join(root, record_file_path).encode(), entry, self.label)


class _Hashing:
    """A stream that is hashed while it is read."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.sha256.update(data)
        return data
