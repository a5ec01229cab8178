"""Whether what lies in the project is still what was pinned."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from reprobuild.adapters.inner import inner_directory, inputs_words
from reprobuild.core.agreement import input_disagrees
from reprobuild.core.flake import FixtureInput, GitInput, PathInput
from reprobuild.core.lock import GitPin, PathPin
from reprobuild.core.origins import spec_digest
from reprobuild.core.project import Project
from reprobuild.errors import ReprobuildError


def check_inputs(
    project: Project, directory: Path, names: Iterable[str], output: str | None
) -> None:
    """Raises E-LOCK-STALE when the text of a fixture or the content of a directory moved, and when
    the pin of a repository states another ref or commit than the flake.

    `directory` is the flake's, `names` are the inputs to look at, `output` what they are for. A
    directory that is not here is no news: what is pinned may be in the store.
    """
    for name in sorted(names):
        declared = project.flake.inputs[name]
        pin = project.lock.inputs.get(name) if project.lock else None
        if isinstance(declared, (GitInput, FixtureInput)) and isinstance(pin, GitPin):
            said = input_disagrees(declared, pin) if pin.spec == spec_digest(declared).hex else ""
            if said:
                raise ReprobuildError(
                    "E-LOCK-STALE", f"input {name}: {said}", input=name, output=output
                )
        if isinstance(declared, FixtureInput) and isinstance(pin, GitPin):
            from reprobuild.adapters.git.fixture import fixture_digest

            what, pinned = f"the text of fixture {name}", pin.text
            now = fixture_digest(inner_directory(directory, declared.path)).hex
        elif isinstance(declared, PathInput) and isinstance(pin, PathPin):
            what, pinned = f"the directory {declared.path} of input {name}", pin.tree
            place = inner_directory(directory, declared.path)
            if not place.is_dir():
                continue
            now = _digest(place)
        else:
            continue
        if pinned != now:
            raise ReprobuildError(
                "E-LOCK-STALE",
                f"{what} changed after it was pinned",
                input=name,
                output=output,
                expected=pinned,
                got=now,
                hint=f"run `reprobuild lock --update {name}`",
            )


def _digest(directory: Path) -> str:
    from reprobuild.adapters.store.treedigest import tree_digest

    with inputs_words(directory):
        return tree_digest(directory).hex
