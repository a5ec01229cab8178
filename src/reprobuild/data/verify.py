#!/usr/bin/python3
"""Checks the files of this image against its statement, and says where any of them comes from.

    verify.py                   every listed file: there, with this content, size, mode and owner;
                                tracked sources as installed; versions; the contract (contract.py)
    verify.py --which PATH…     layer, component, derivation, origin and pull requests of files
    verify.py --labels          the labels that follow from the statement, as JSON
    verify.py --against FILE    these labels held against `docker inspect` output or a config

Exit status: 0 when all holds, 1 when something does not (named on standard error, and in the
`problems` of --json), 2 when there is nothing to check against. Needs Python 3.9, no package.
Owners are only compared when run by root, who alone sees them as they are.
"""

# ruff: noqa: PTH100, PTH115, PTH118, SIM102 - names are bytes, for which pathlib has no room

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import stat
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

sys.path.insert(0, str(Path(__file__).resolve().parent))
CHUNK = 1 << 20
LAYOUTS = (b"src", b"python", b"lib")

PACKAGES = {
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12"),
    "torch": ("torch",),
    "pytorch": ("torch",),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
    "vllm": ("vllm",),
    "flashinfer": ("flashinfer-python",),
    "cutlass-dsl": ("nvidia-cutlass-dsl",),
    "cutlass_dsl": ("nvidia-cutlass-dsl",),
    "xgrammar": ("xgrammar",),
    "lmcache": ("lmcache",),
    "instanttensor": ("instanttensor",),
    "triton": ("triton",),
}
"""The Python packages whose version a runtime fact of the release speaks of."""

LIBRARIES = {
    "cuda": (("usr/local/cuda/lib64", "usr/local/cuda/targets/x86_64-linux/lib"), "libcudart.so."),
    "nccl": (("usr/lib/x86_64-linux-gnu", "usr/local/lib"), "libnccl.so."),
}
"""Where a fact can be read off the name of a shared library, such as libnccl.so.2.28.3."""


def labels_of(statement: dict[str, Any]) -> dict[str, str]:
    """The labels that follow from a statement."""
    release, prefix = statement["release"], statement["release"]["label_prefix"]
    labels = {
        "org.opencontainers.image.created": "{}T00:00:00Z".format(release["date"]),
        "org.opencontainers.image.title": release["title"] or release["codename"],
        "org.opencontainers.image.version": release["reference"].rpartition(":")[2],
        prefix + ".release.codename": release["codename"],
        prefix + ".release.date": release["date"],
        prefix + ".release.revision": release["revision"],
        prefix + ".release.components": ",".join(r["name"] for r in statement["components"]),
        prefix + ".isolation.required": release["isolation"],
    }
    for key, value in (
        ("model.revision", release["model_revision"]),
        ("dirty", ",".join(release["dirty"])),
        ("cache.fingerprint", release["cache_fingerprint"]),
    ):
        if value:
            labels[f"{prefix}.{key}"] = value
    for name, version in release["runtime"].items():
        labels[f"{prefix}.runtime.{name}"] = version
    for row in statement["components"]:
        stem = "{}.{}".format(prefix, row["name"])
        labels[stem + ".drv"] = row["drv"]
        labels[stem + ".tree"] = row["tree"]
        if row["version"]:
            labels[stem + ".version"] = row["version"]
        if row["archs"]:
            labels[stem + ".cuda.archs"] = ",".join(row["archs"])
        source = row.get("source")
        if source:
            labels[stem + ".repo"] = source["repository"]
            labels[stem + ".ref"] = source["ref"]
            labels[stem + ".commit"] = source["base"]
            labels[stem + ".integration.tree"] = source["integration_tree"]
            if source["strategy"]:
                heads = source["heads"]
                stem += ".integration"
                labels[stem + ".strategy"] = source["strategy"]
                labels[stem + ".prs"] = ",".join(str(h["number"]) for h in heads)
                labels[stem + ".heads"] = ",".join(
                    "{}@{}:{}".format(h["number"], h["head"], h["disposition"]) for h in heads
                )
                if "resolutions" in source:
                    labels[stem + ".resolutions"] = ",".join(
                        "{}@{}".format(r["path"], r["result"]) for r in source["resolutions"]
                    )
                stem = stem.rpartition(".")[0]
                labels[stem + ".patch_sha256"] = source["patch_sha256"]
                labels[stem + ".patch_digest"] = source["patch_digest"]
    labels.update(release["labels"])
    return labels


def lines(path: Path) -> list[list[str]]:
    """The fields of each line of a list."""
    return [line.split(" ") for line in path.read_text("ascii").splitlines()]


def listed(here: Path, component: dict[str, Any]) -> dict[bytes, tuple[str, list[str]]]:
    """Layer and fields of every entry of a component's layers, by path."""
    out = {}
    for layer in component.get("layers", []):
        place = here / "files" / layer["name"]
        if place.exists():
            for fields in lines(place):
                out[unquote_to_bytes(fields[7])] = (layer["name"], fields)
    return out


def show(path: bytes) -> str:
    """A path as text."""
    return "/" + path.decode("utf-8", "backslashreplace")


def hashed(path: bytes, start: bytes = b"", name: str = "sha256") -> str:
    """A file's digest, with `start` in front of it."""
    hasher = hashlib.new(name, start)
    with open(path, "rb") as source:  # noqa: PTH123 - names are bytes
        while chunk := source.read(CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def check_entry(root: bytes, path: bytes, fields: list[str]) -> str:
    """What is wrong with an entry; empty when nothing is."""
    kind, mode, uid, gid, size, content = fields[:6]
    folder, _, name = path.rpartition(b"/")
    if name.startswith(b".wh."):  # it takes away what lies beneath
        gone = b".wh..wh." not in name and os.path.lexists(os.path.join(root, folder, name[4:]))
        return "was to be gone" if gone else ""
    place = os.path.join(root, path)
    try:
        found = os.lstat(place)
    except OSError:
        return "is missing"
    kinds = {"d": stat.S_ISDIR, "l": stat.S_ISLNK}
    if not kinds.get(kind, stat.S_ISREG)(found.st_mode):
        return "is of another kind"
    if kind == "l":
        return "" if os.readlink(place) == unquote_to_bytes(content) else "leads elsewhere"
    try:
        if kind != "d" and (found.st_size != int(size) or hashed(place) != content):
            return "has other content"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if stat.S_IMODE(found.st_mode) != int(mode, 8):
        return f"has mode {stat.S_IMODE(found.st_mode):04o}, not {mode}"
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        if (found.st_uid, found.st_gid) != (int(uid), int(gid)):
            return f"belongs to {found.st_uid}:{found.st_gid}, not {uid}:{gid}"
    return ""


def check_sources(
    root: bytes, here: Path, component: dict[str, Any], entries: dict[bytes, Any]
) -> tuple[dict[str, Any], list[str]]:
    """How many tracked files are installed and equal, and what does not hold."""
    place = here / "sources" / component["name"]
    if not place.exists():
        return {}, []
    algorithm = "sha256" if len(component["source"]["integration_tree"]) == 64 else "sha1"
    ends: dict[bytes, list[tuple[bytes, str]]] = {}
    rows = lines(place)
    for mode, oid, quoted in rows:
        parts = unquote_to_bytes(quoted).split(b"/")
        parts = parts[1:] if parts[0] in LAYOUTS else parts
        if len(parts) > 1 and mode != "120000":
            ends.setdefault(b"/".join(parts[-2:]), []).append((b"/".join(parts), oid))
    installed, equal, problems = 0, 0, []
    excused = component.get("tracked", {}).get("changed", [])
    for path, (_, fields) in entries.items():
        if fields[0] not in "fx":
            continue
        key = b"/".join(path.rsplit(b"/", 2)[-2:])
        fitting = [(e, o) for e, o in ends.get(key, []) if (b"/" + path).endswith(b"/" + e)]
        longest = max((len(end) for end, _ in fitting), default=0)
        wanted = {oid for end, oid in fitting if len(end) == longest}
        if not wanted:
            continue
        installed += 1
        try:
            full = os.path.join(root, path)
            got = hashed(full, b"blob %d\0" % os.lstat(full).st_size, algorithm)
        except OSError:
            continue  # said already
        if got in wanted:
            equal += 1
        elif show(path) not in excused:
            problems.append(f"{show(path)} is not as its tracked source")
    return {"files": len(rows), "installed": installed, "equal": equal}, problems


def runtime_version(fact: str, root: Path) -> str:
    """The version that is installed of what a runtime fact speaks of; empty when none is found."""
    for name in PACKAGES.get(fact, (fact, fact.replace("_", "-"))):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    folders, stem = LIBRARIES.get(fact, ((), ""))
    for folder in folders:
        found = [p.resolve().name for p in (root / folder).glob(stem + "*")]
        versions = [re.sub(r".*\.so\.", "", name) for name in found]
        if versions:
            return max(versions, key=len)
    return ""


def agrees(stated: str, found: str) -> bool:
    """13.3 is 13.3.29, and 2.13.0 is 2.13.0+cu133; a library called .13 says no more than 13."""
    one, two = stated.partition("+")[0].split("."), found.partition("+")[0].split(".")
    length = min(len(one), len(two))
    return one[:length] == two[:length]


def which(here: Path, statement: dict[str, Any], root: bytes, text: str) -> dict[str, Any]:
    """Everything that is known of one file."""
    path = os.fsencode(text)
    absolute = os.path.abspath(path)
    resolved = os.path.realpath(path)
    for candidate in (absolute, resolved):
        inner = os.path.relpath(candidate, root) if root != b"/" else candidate.lstrip(b"/")
        for component in statement["components"]:
            entry = listed(here, component).get(inner)
            if entry is None:
                continue
            layer, fields = entry
            layers = {row["name"]: row for row in component["layers"]}
            origins = component.get("origins", [])
            origin = origins[int(fields[6])] if fields[6].isdigit() else {}
            source = component.get("source", {})
            return {
                "component": component["name"],
                "drv": component["drv"],
                "layer": layers[layer]["diff_id"],
                "origin": {k: origin[k] for k in ("kind", "name", "drv") if k in origin},
                "path": show(inner),
                "pull_requests": [
                    {k: h[k] for k in ("number", "head", "disposition", "title")}
                    for h in source.get("heads", [])
                ],
                "repository": source.get("repository", ""),
                "integration_tree": source.get("integration_tree", ""),
            }
    return {"path": text, "component": "", "problem": "no component's layer holds it"}


def against(statement: dict[str, Any], file: str) -> list[str]:
    """What of the labels in a config or `docker inspect` output does not follow."""
    text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    document = json.loads(text)
    document = document[0] if isinstance(document, list) else document
    config = document.get("Config") or document.get("config") or document
    have = config.get("Labels") or config
    want = labels_of(statement)
    return [
        f"the label {key} is {have.get(key)}, not {value}"
        for key, value in sorted(want.items())
        if have.get(key) != value
    ]


def everything(here: Path, statement: dict[str, Any], root: Path) -> dict[str, Any]:
    """The whole check, as one document."""
    check = import_module("contract").check  # beside this file
    problems: list[str] = []
    rows = []
    for component in statement["components"]:
        entries = listed(here, component)
        for path, (_, fields) in entries.items():
            wrong = check_entry(os.fsencode(root), path, fields)
            if wrong:
                problems.append(f"{show(path)} {wrong}")
        sources, found = check_sources(os.fsencode(root), here, component, entries)
        problems += found
        contract = check(component, str(root))
        problems += ["{}: {}".format(component["name"], p) for p in contract["problems"]]
        rows.append(
            {
                "component": component["name"],
                "files": sum(fields[0] != "d" for _, fields in entries.values()),
                "sources": sources,
            }
        )
    runtime = {}
    for fact, stated in statement["release"]["runtime"].items():
        found_version = runtime_version(fact, root)
        runtime[fact] = {"stated": stated, "found": found_version}
        if found_version and not agrees(stated, found_version):
            problems.append(f"{fact} is {found_version}, the release says {stated}")
    return {"components": rows, "holds": not problems, "problems": problems, "runtime": runtime}


def say(document: dict[str, Any]) -> None:
    """The whole check, for people."""
    for row in document["components"]:
        text = "{}: {} files as listed".format(row["component"], row["files"])
        if row["sources"]:
            text += ", {installed} of {files} tracked files installed, {equal} equal".format(
                **row["sources"]
            )
        sys.stdout.write(text + "\n")
    for fact, versions in document["runtime"].items():
        found = versions["found"] or "not found here"
        sys.stdout.write("{}: {} ({})\n".format(fact, versions["stated"], found))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Check this image against its statement.")
    here = Path(__file__).resolve().parent
    parser.add_argument("--root", default="/", help="where the image's files lie")
    parser.add_argument("--which", nargs="+", metavar="PATH", help="say where files come from")
    parser.add_argument("--labels", action="store_true", help="the labels, as JSON")
    parser.add_argument("--against", metavar="FILE", help="compare labels with a config (-: stdin)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    try:
        statement = json.loads((here / "statement.json").read_text("utf-8"))
        if statement["format"] != 0:
            raise ValueError("format {!r} is newer than this program".format(statement["format"]))
        if options.labels:
            sys.stdout.write(json.dumps(labels_of(statement), indent=2, sort_keys=True) + "\n")
            return 0
        if options.which:
            root = os.path.abspath(os.fsencode(options.root))
            found = [which(here, statement, root, path) for path in options.which]
            sys.stdout.write(json.dumps(found, indent=2, sort_keys=True) + "\n")
            return 1 if any("problem" in row for row in found) else 0
        if options.against:
            problems = against(statement, options.against)
            document: dict[str, Any] = {"holds": not problems, "problems": problems}
        else:
            document = everything(here, statement, Path(options.root))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        sys.stderr.write(f"there is nothing to check against: {error!r}\n")
        return 2
    if options.json:
        sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    elif "components" in document:
        say(document)
    for problem in document["problems"]:
        sys.stderr.write(problem + "\n")
    sys.stderr.write("" if document["problems"] or options.json else "all of it holds\n")
    return 0 if document["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
