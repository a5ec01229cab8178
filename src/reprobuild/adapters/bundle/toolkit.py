"""The tool with all that it runs on, as a gzipped tar that a bare machine can use.

bin/reprobuild       picks an interpreter and starts
lib/all, lib/pyXY    this package and its dependencies; what differs between versions of Python
helpers/             git and bubblewrap of this machine, with the libraries that they were linked to
python/              this machine's interpreter and standard library
"""

from __future__ import annotations

import ast
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import reprobuild
from reprobuild.errors import ReprobuildError

PROGRAMS = ("git", "bwrap")
_LOADER = Path("/lib64/ld-linux-x86-64.so.2")
_WHEEL = re.compile(r"([^-]+)-([^-]+)(?:-\d[^-]*)?-([^-]+)-([^-]+)-([^-]+)\.whl\Z")
_NAME = re.compile(r"[-_.]+")
_SKIP = ("__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip",
         "lib2to3", "site-packages", "config-3", "pydoc_data", "_tkinter")  # fmt: skip
_UNUSED = ("zstandard/_cffi.",)  # 12 MB each, for interpreters other than CPython

Files = dict[str, "Member"]


@dataclass(frozen=True, slots=True)
class Member:
    """A file's bytes and whether it can be run."""

    data: bytes
    executable: bool = False


@dataclass(slots=True)
class Toolkit:
    """What was packed: the tar's bytes, and what it says for people."""

    archive: bytes
    pythons: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)


def make_toolkit(wheels: Sequence[Path] = ()) -> Toolkit:
    """Packs the tool for this interpreter, and for those that the directories `wheels` serve.

    Such a directory holds a wheel of every dependency (`pip download --only-binary=:all:`).
    Raises E-TOOLKIT naming what is missing.
    """
    here = f"{sys.version_info[0]}{sys.version_info[1]}"
    sites: dict[str, Files] = {here: _installed()}
    for version, found in sorted(_from_wheels(wheels).items()):
        sites.setdefault(version, found)
    _check_imports(sites[here])
    members: Files = {"bin/reprobuild": Member(_text("command.sh.txt"), True)}
    members |= _merged(sites)
    programs = _helpers(members)
    _interpreter(members)
    return Toolkit(_tar(members), sorted(sites), programs)


def _text(name: str) -> bytes:
    return (files("reprobuild.adapters.bundle") / name).read_bytes()


def _tar(members: Files) -> bytes:
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name in sorted(members):
            info = tarfile.TarInfo(name)
            info.size = len(members[name].data)
            info.mode = 0o755 if members[name].executable else 0o644
            archive.addfile(info, io.BytesIO(members[name].data))
    return out.getvalue()


# -- Python packages -------------------------------------------------------------------------------


def _canonical(name: str) -> str:
    return _NAME.sub("-", name).lower()


def dependencies(extra: str = "") -> list[metadata.Distribution]:
    """The installed distributions that this tool needs, directly or not, itself left out.

    With `extra`, those of that optional part as well, as far as they are installed.
    """
    from packaging.requirements import Requirement

    found: dict[str, metadata.Distribution] = {}
    waiting = [Requirement(text) for text in metadata.requires("reprobuild") or ()]
    while waiting:
        wanted = waiting.pop()
        name = _canonical(wanted.name)
        if name in found or (wanted.marker and not wanted.marker.evaluate({"extra": extra})):
            continue
        try:
            found[name] = metadata.distribution(wanted.name)
        except metadata.PackageNotFoundError as error:
            if extra:
                continue
            raise ReprobuildError(
                "E-TOOLKIT", f"{wanted.name} is not installed, so it cannot be packed"
            ) from error
        waiting += [Requirement(text) for text in found[name].requires or ()]
    return [found[name] for name in sorted(found)]


def _check_imports(members: Files) -> None:
    """That what the tool imports is among what is packed: an installation's list of dependencies
    may be older than its source. Optional parts stay at home. Raises E-TOOLKIT."""
    packed = {name.partition("/")[0].partition(".")[0] for name in members}
    absent = _imported(members) - packed - set(sys.stdlib_module_names)
    if not absent:
        return
    extras = metadata.metadata("reprobuild").get_all("Provides-Extra") or ()
    optional = {_canonical(d.name) for extra in extras for d in dependencies(extra)}
    optional -= {_canonical(d.name) for d in dependencies()}
    providers = metadata.packages_distributions()
    for module in sorted(absent):
        homes = {_canonical(name) for name in providers.get(module, ())}
        if homes and not homes & optional:
            raise ReprobuildError(
                "E-TOOLKIT",
                f"the tool imports {module}, which the installed reprobuild does not require",
                hint="install it again, so that its dependencies are those of its source",
                missing=sorted(homes),
            )


def _imported(members: Files) -> set[str]:
    """The top-level names that this package's modules import, lazily or not."""
    found: set[str] = set()
    for name, member in members.items():
        if not name.startswith("reprobuild/") or not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(member.data)):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def _own() -> Files:
    home = Path(reprobuild.__file__).parent
    members = {
        f"reprobuild/{path.relative_to(home).as_posix()}": Member(path.read_bytes())
        for path in sorted(home.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    text = metadata.distribution("reprobuild").read_text("METADATA") or ""
    info = f"reprobuild-{reprobuild.__version__}.dist-info"
    members[f"{info}/METADATA"] = Member(text.encode())
    return members


def _installed() -> Files:
    members = _own()
    for distribution in dependencies():
        for entry in distribution.files or ():
            name = entry.as_posix()
            path = Path(str(entry.locate()))
            if name.startswith(("..", "/")) or "__pycache__" in name or not path.is_file():
                continue
            if name.endswith(("/RECORD", "/direct_url.json", "/INSTALLER", "/REQUESTED")):
                continue  # they tell how it came to be installed here
            if name.startswith(_UNUSED):
                continue
            members[name] = Member(path.read_bytes(), os.access(path, os.X_OK))
    return members


def _from_wheels(directories: Sequence[Path]) -> dict[str, Files]:
    wheels = sorted(path for d in directories for path in d.glob("*.whl"))
    rows = [(path, match) for path in wheels if (match := _WHEEL.match(path.name))]
    versions = {
        tag.removeprefix("cp")
        for _, match in rows
        for tag in match[4].split(".")
        if re.fullmatch(r"cp3\d\d", tag)
    }
    wanted = {_canonical(d.name) for d in dependencies()}
    found: dict[str, Files] = {}
    for version in versions:
        chosen: dict[str, Path] = {}
        for path, match in rows:
            if _serves(match, version):
                chosen[_canonical(match[1])] = path  # sorted: the newest comes last
        absent = sorted(wanted - set(chosen))
        if absent:
            raise ReprobuildError(
                "E-TOOLKIT",
                f"for Python 3.{version[1:]} there are wheels, but none of {', '.join(absent)}",
                missing=absent,
            )
        members = _own()
        for name in sorted(wanted):
            members |= _unzip(chosen[name])
        found[version] = members
    return found


def _serves(match: re.Match[str], version: str) -> bool:
    pythons, abis, platforms = (match[n].split(".") for n in (3, 4, 5))
    if "any" not in platforms and not any("x86_64" in p and "linux" in p for p in platforms):
        return False
    if any("musllinux" in p for p in platforms):
        return False
    if "none" in abis and "any" in platforms:
        return any(p in ("py3", f"cp{version}", f"py{version}") for p in pythons)
    if f"cp{version}" in abis:
        return True
    if "abi3" in abis:
        return any(p.startswith("cp3") and int(p[3:]) <= int(version[1:]) for p in pythons)
    return "none" in abis and any(p in ("py3", f"cp{version}") for p in pythons)


def _unzip(path: Path) -> Files:
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                name: Member(archive.read(info), bool(info.external_attr >> 16 & 0o100))
                for info in archive.infolist()
                if not (name := info.filename).endswith(("/", ".dist-info/RECORD"))
                and not name.startswith(_UNUSED)
                and ".data/" not in name
                and not name.startswith("/")
                and ".." not in name.split("/")
            }
    except (OSError, zipfile.BadZipFile) as error:
        raise ReprobuildError("E-TOOLKIT", f"{path} is no wheel: {error}") from error


def _merged(sites: Mapping[str, Files]) -> Files:
    """One copy of every top-level name that is the same for all; the others each by version."""
    content: dict[str, bytes] = {}
    differing: set[str] = set()
    for members in sites.values():
        for name, member in members.items():
            top = name.partition("/")[0]
            if content.setdefault(name, member.data) != member.data:
                differing.add(top)
    out: Files = {}
    for version, members in sites.items():
        out[f"lib/py{version}/VERSION"] = Member(version.encode())
        for name, member in members.items():
            place = f"py{version}" if name.partition("/")[0] in differing else "all"
            out[f"lib/{place}/{name}"] = member
    return out


# -- programs --------------------------------------------------------------------------------------

_WRAPPER = """\
#!/bin/sh
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P) || exit 10
exec "$here/lib/{loader}" --library-path "$here/lib" "$here/libexec/{name}" "$@"
"""


def _libraries(program: Path) -> Iterator[Path]:
    """The shared libraries that the loader finds for a program."""
    done = subprocess.run(
        [str(_LOADER), "--list", str(program)], capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        found = re.search(r"=> (/\S+)", line)
        if found:
            yield Path(found[1])


def _helpers(members: Files) -> list[str]:
    """Adds git and bubblewrap, where this machine has them; their names."""
    packed = []
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is None or not _LOADER.exists():
            continue
        program = Path(found).resolve()
        _add_program(members, "helpers", name, program)
        packed.append(name)
    return packed


def _add_program(members: Files, place: str, name: str, program: Path) -> None:
    members[f"{place}/libexec/{name}"] = Member(program.read_bytes(), True)
    members[f"{place}/lib/{_LOADER.name}"] = Member(_LOADER.read_bytes(), True)
    for library in _libraries(program):
        members[f"{place}/lib/{library.name}"] = Member(library.read_bytes())
    text = _WRAPPER.format(loader=_LOADER.name, name=name)
    members[f"{place}/bin/{name}"] = Member(text.encode(), True)


def _interpreter(members: Files) -> None:
    """Adds this interpreter with its standard library, for machines without a python3."""
    program = Path(sys.executable).resolve()
    home = Path(sys.base_prefix)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = home / "lib" / version
    if not _LOADER.exists() or not (library / "os.py").is_file():
        return
    for path in sorted(library.rglob("*")):
        relative = path.relative_to(library)
        if any(part.startswith(_SKIP) for part in relative.parts) or not path.is_file():
            continue
        members[f"python/lib/{version}/{relative.as_posix()}"] = Member(path.read_bytes())
        if path.suffix == ".so":
            for needed in _libraries(path):
                members[f"python/carried/{needed.name}"] = Member(needed.read_bytes())
    for needed in _libraries(program):
        members[f"python/carried/{needed.name}"] = Member(needed.read_bytes())
    members[f"python/carried/{_LOADER.name}"] = Member(_LOADER.read_bytes(), True)
    members[f"python/bin/{version}"] = Member(program.read_bytes(), True)
    text = (
        "#!/bin/sh\n"
        'here=$(CDPATH=\'\' cd -- "$(dirname -- "$0")/.." && pwd -P) || exit 10\n'
        f'exec "$here/carried/{_LOADER.name}" --library-path "$here/carried" '
        f'"$here/bin/{version}" "$@"\n'
    )
    members["python/bin/python3"] = Member(text.encode(), True)
