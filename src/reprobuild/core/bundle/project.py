"""Which files of a project decide its outputs: what a bundle has to carry of it."""

from __future__ import annotations

from reprobuild.core.files import COMPONENT_DIRECTORY, FLAKE_FILE, LOCK_FILE
from reprobuild.core.flake import FixtureInput, PathInput
from reprobuild.core.project import Project

RESOLUTIONS = "resolutions"


def project_paths(project: Project) -> tuple[str, ...]:
    """Files and directories relative to the project, sorted; optional ones may be absent."""
    paths = {FLAKE_FILE, LOCK_FILE, COMPONENT_DIRECTORY, RESOLUTIONS, *project.texts}
    for declared in project.flake.inputs.values():
        if isinstance(declared, (FixtureInput, PathInput)):
            paths.add(declared.path)
    for output in project.flake.outputs.values():
        for source in output.sources.values():
            paths |= {patch.path for patch in source.patches}
    for component in project.components.values():
        # A program lies among what it imports.
        paths |= {
            check.program.rpartition("/")[0] or check.program for check in component.checks.values()
        }
    # what lies within another comes with it
    return tuple(
        sorted(p for p in paths if not any(p != o and p.startswith(o + "/") for o in paths))
    )
