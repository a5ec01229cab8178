"""The release's own facts, and which fields of a recipe merely repeat what other levels say."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reprobuild.core.diff.dag import Node
    from reprobuild.core.diff.fields import FieldChange
    from reprobuild.core.diff.side import Side
    from reprobuild.core.encoding import Value

RELEASE = "release"
LABELS = "labels"
ENVIRONMENT = "environment"
SERVING = "serving"
PROGRAM = "contract-program"
COMPONENT = "component"
RECIPE = "recipe"

_RELEASE_LABEL = re.compile(
    r"org\.opencontainers\.image\.(created|title|version)\Z"
    r"|.+\.(release\.[a-z]+|runtime\.[^.]+|model\.revision|isolation\.required|dirty|cache\.fingerprint)\Z"
)
_COMPONENT_KEYS = (
    "drv", "tree", "version", "repo", "ref", "branch", "commit", "cuda.archs",
    "patch_sha256", "patch_digest", "integration.",
)  # fmt: skip
_PACKAGES = (".whl", ".deb", ".zip", ".gz", ".xz", ".tgz")
_SERVING = frozenset({"entrypoint", "cmd", "workdir", "user", "ports", "volumes", "stop_signal"})


def label_of(key: str, components: Collection[str]) -> tuple[str, str]:
    """What a label speaks of: (RELEASE, ""), (COMPONENT, name) or (LABELS, "")."""
    if _RELEASE_LABEL.match(key):
        return RELEASE, ""
    for name in components:
        _, found, rest = key.partition(f".{name}.")
        if found and rest.startswith(_COMPONENT_KEYS):
            return COMPONENT, name
    return LABELS, ""


def attribute(change: FieldChange, builder: str, components: Collection[str]) -> tuple[str, str]:
    """The level that a field of an image's or statement's recipe belongs to, and of which
    component; (RECIPE, "") for a field of its own, and for every field of another builder."""
    path = change.path
    if path == ("name",):
        return RELEASE, ""  # names are compared after the output's own was put aside
    if builder == "builtin:statement":
        if path[:3] == ("params", "document", "components"):
            return COMPONENT, path[3] if len(path) > 3 else ""
        if path[:4] == ("params", "document", "release", "labels") and len(path) == 5:
            return label_of(path[4], components)
        if path[:3] == ("params", "document", "release"):
            return RELEASE, ""
        if path[:2] == ("params", "origins"):
            return COMPONENT, path[2] if len(path) > 2 else ""
        if path[:2] in (("params", "program"), ("params", "verifier")):
            return PROGRAM, ""
    if builder == "builtin:image":
        if path[:2] in (("params", "created"), ("params", "reference")):
            return RELEASE, ""
        if path[:2] in (("params", "components"), ("params", "tree_labels")):
            return COMPONENT, ""
        if path[:3] == ("params", "config", "labels") and len(path) == 4:
            return label_of(path[3], components)
        if path[:3] == ("params", "config", "env"):
            return ENVIRONMENT, ""
        if path[:2] == ("params", "config") and len(path) > 2 and path[2] in _SERVING:
            return SERVING, ""
    return RECIPE, ""


def follows(old: Value, new: Value, fingerprints: tuple[str, str]) -> bool:
    """Whether a text differs only in the cache fingerprint, which the sources decide."""
    if not isinstance(old, str) or not isinstance(new, str) or not all(fingerprints):
        return False
    return old.replace(*fingerprints) == new


def explainer(
    components: Collection[str], fingerprints: tuple[str, str] = ("", "")
) -> Callable[[FieldChange, Node, Node], bool]:
    """Says which fields follow from components or release facts, and so are no root cause."""

    def explained(change: FieldChange, before: Node, after: Node) -> bool:
        builder = str(after.document.get("builder", ""))
        if before.document.get("builder") != builder:
            return False
        if change.path == ("name",):
            return False
        level = attribute(change, builder, components)[0]
        if level == ENVIRONMENT:
            return follows(change.old, change.new, fingerprints)
        return level in (RELEASE, COMPONENT)

    return explained


def renamer(old: str, new: str) -> Callable[[str], str]:
    """Brings names of derivations to one form: the old output's become the new output's, and a
    package's file name in one loses its version."""
    from reprobuild.core.diff.dag import stem

    def rename(name: str) -> str:
        head, colon, file = name.partition(":")
        if colon and file.endswith(_PACKAGES):
            name = f"{head}:{stem(file)}"
        if old and new and old != new and name.startswith(old + "."):
            return new + name[len(old) :]
        return name

    return rename


def release_changes(old: Side, new: Side) -> dict[str, tuple[str | None, str | None]]:
    """Facts that differ, where both sides state any."""
    if not old.release or not new.release:
        return {}
    one, other = set(old.release), set(new.release)
    # different documents state different facts: then only what both state can differ
    keys = sorted(one | other if old.basis == new.basis else one & other)
    pairs = {k: (old.release.get(k) or None, new.release.get(k) or None) for k in keys}
    return {k: (a, b) for k, (a, b) in pairs.items() if a != b}


def text_changes(
    old: Mapping[str, Value], new: Mapping[str, Value]
) -> dict[str, tuple[Value, Value]]:
    """Entries that differ between two tables; None where a side lacks one."""
    pairs = {k: (old.get(k), new.get(k)) for k in sorted({*old, *new})}
    return {k: (a, b) for k, (a, b) in pairs.items() if a != b}
