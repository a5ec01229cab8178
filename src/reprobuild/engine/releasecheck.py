"""Whether documents still say the truth: their variables and flags, and the variables that an image
sets, are in the integrated sources or in a declared interface; profiles hold to their rules; pins
give what is stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest
from reprobuild.core.documents.names import (
    PROSE,
    SYSTEM,
    TOKEN,
    declared_names,
    names_in_profiles,
    names_in_text,
    names_of_compose,
    names_of_image,
)
from reprobuild.core.tree import Directory, File
from reprobuild.engine.documents import ReleaseDocuments
from reprobuild.ports import ContentStore

MAX_FILE = 8 * 2**20
"""Larger files are data, not sources."""


@dataclass(slots=True)
class Checked:
    """What a check found. `names` says for each variable or flag where it is known from."""

    names: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)
    """Components whose sources are not at hand, and why."""


def check_release(
    made: ReleaseDocuments,
    content: ContentStore,
    sources: Mapping[str, Digest],
    unseen: Mapping[str, str],
) -> Checked:
    """Checks an output's documents against the integrated `sources` (store trees by component)."""
    result = Checked(unseen=dict(unseen))
    output = made.facts.declared
    in_profiles = names_in_profiles(made.served)
    spoken: dict[str, str] = dict(in_profiles)
    for document, text in (("contract", made.contract()), ("runbook", made.runbook())):
        for name in sorted(names_in_text(text)):
            spoken.setdefault(name, document)
    for name, place in names_of_image(output).items():
        spoken.setdefault(name, place)
    declared = declared_names(output)
    wanted = {name.encode() for name in {*spoken, *declared}}
    found = {name: occurrences(content, tree, wanted) for name, tree in sources.items()}
    anywhere: dict[str, str] = {}
    for component, places in found.items():
        for name, path in places.items():
            anywhere.setdefault(name, f"{component}: {path}")
    owned = {name: owner for owner, names in output.interface.items() for name in names}
    compose = names_of_compose(made.served)
    for name in sorted(spoken):
        owner = owned.get(name, "")
        mine = found.get(owner, {}).get(name)
        known = (
            f"{owner}: {mine}" if mine else declared.get(name),
            "the system" if name in SYSTEM else anywhere.get(name),
            "the Compose file" if name in compose else "",
        )
        result.names[name] = next((where for where in known if where), "")
        if not result.names[name]:
            result.problems.append(
                f"{name} ({spoken[name]}) is in no integrated source and no declared interface"
            )
    for owner, places in found.items():
        result.problems += [
            f"{name} is declared by {owner}, whose sources do not have it any more"
            for name in output.interface.get(owner, ())
            if name not in places
        ]
    result.problems += _pins(made)
    return result


def _pins(made: ReleaseDocuments) -> list[str]:
    """Where the lock gives something else than the flake states."""
    lock = made.project.lock
    pins = lock.outputs.get(made.output) if lock else None
    problems = []
    for component, wanted in made.facts.declared.sources.items():
        pin = pins.sources.get(component) if pins else None
        if pin is None:
            continue
        for what, stated, got in (
            ("tree", wanted.tree, pin.tree),
            ("patch", wanted.patch_sha256, pin.patch_sha256),
            ("base", wanted.base_commit, pin.base),
        ):
            if stated is not None and stated != got:
                problems.append(f"{component}: {what} {stated} is stated, and {got} is locked")
    return problems


def occurrences(content: ContentStore, tree: Digest, wanted: set[bytes]) -> dict[str, str]:
    """Which of the names occur in a tree's files that are no prose, each with the first path."""
    found: dict[str, str] = {}
    left = set(wanted)
    stack: list[tuple[str, Digest]] = [("", tree)]
    while stack and left:
        prefix, digest = stack.pop()
        below: list[tuple[str, Digest]] = []
        for raw, entry in content.tree(digest):
            path = prefix + raw.decode("utf-8", "replace")
            if isinstance(entry, Directory):
                below.append((path + "/", entry.digest))
            elif isinstance(entry, File) and entry.size <= MAX_FILE and not path.endswith(PROSE):
                with content.open_blob(entry.digest) as blob:
                    data = blob.read()
                if b"\0" in data[:8192]:
                    continue
                here = left.intersection(TOKEN.findall(data))
                found.update((name.decode(), path) for name in here)
                left -= here
        stack += reversed(below)
    return found
