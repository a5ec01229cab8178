"""Whether an output's tag pattern names what there is, and gives an OCI tag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reprobuild.core.component import Component
from reprobuild.core.files import FLAKE_FILE, component_file
from reprobuild.core.flake import Flake, Output
from reprobuild.core.kinds.labels import tag_values
from reprobuild.core.pattern import FIELDS, Pattern, Placeholder, tag_problem
from reprobuild.core.problem import Problem, nearest_of
from reprobuild.core.uses import REPOSITORIES, count

KeyPath = tuple[str | int, ...]


def tag_problems(
    flake: Flake, name: str, output: Output, components: Mapping[str, Component]
) -> list[Problem]:
    """At most one problem; all references must lead somewhere."""
    if output.release is None:
        return []
    path: KeyPath = ("outputs", name, "release", "tag")
    try:
        pattern = Pattern.parse(output.release.tag)
    except ValueError as error:
        return [Problem(FLAKE_FILE, path, str(error))]
    facts = tag_values(output.release, [])
    for placeholder in pattern.placeholders():
        if placeholder.name in facts:
            continue
        for problem in _wrong(path, placeholder, facts, flake, output, components):
            return [problem]
    samples = {key: facts.get(key) or _sample(key, components) for key in pattern.names()}
    text = "".join(
        part if isinstance(part, str) else samples[part.name][: part.length]
        for part in pattern.parts
    )
    reason = tag_problem(text)
    return [Problem(FLAKE_FILE, path, f"this gives no OCI tag: {reason}")] if reason else []


def _sample(name: str, components: Mapping[str, Component]) -> str:
    """What the name may stand for: a version that is known, or digits of the right number."""
    component, _, field = name.partition(".")
    if field == "version":
        return components[component].version or "0"
    return "0" * (64 if field == "drv" else 40)


def _wrong(
    path: KeyPath,
    placeholder: Placeholder,
    facts: Mapping[str, str],
    flake: Flake,
    output: Output,
    components: Mapping[str, Component],
) -> Iterator[Problem]:
    component, field = placeholder.component, placeholder.field
    if not component:
        members = [f"{name}.{field}" for name in output.components for field in FIELDS]
        valid = dict.fromkeys([*facts, *members])
        known = ", ".join(f"{{{fact}}}" for fact in sorted(facts))
        near, _, _ = nearest_of("", placeholder.name, valid)
        meant = f"; did you mean `{near}`?" if near else ""
        yield Problem(
            FLAKE_FILE,
            path,
            f"unknown placeholder {{{placeholder.name}}}{meant} (there is: {known} and "
            "{COMPONENT.FIELD}; release.runtime adds names)",
            nearest=near,
            expected=known,
            got=placeholder.name,
        )
        return
    for what, name, valid in (
        ("this output has no component", component, dict.fromkeys(output.components)),
        (f"component `{component}` has no field", field, dict.fromkeys(FIELDS)),
    ):
        if name not in valid:
            near, there, message = nearest_of(what, name, valid)
            yield Problem(FLAKE_FILE, path, message, nearest=near, expected=there, got=name)
            return
    lacks = _lacks(field, component, flake, output, components[component])
    if lacks:
        yield Problem(
            FLAKE_FILE,
            path,
            f"{{{placeholder.name}}} needs {lacks} in "
            f"{component_file(output.described_by(component))}",
            expected=lacks,
        )


def _lacks(field: str, name: str, flake: Flake, output: Output, component: Component) -> str:
    """What the component would need for the field; empty when all is there."""
    if component.image is None:
        return "an [image] table (only what is in the image can be in its tag)"
    declared = flake.inputs.get(component.input or "")
    if field in ("tree", "commit"):
        is_repository = declared is not None and declared.kind in REPOSITORIES
        return "" if name in output.sources or is_repository else "an `input` that is a repository"
    if field == "version" and component.version is None:
        packages = declared is not None and declared.kind in ("wheel", "sdist", "deb")
        if declared is None or not packages or count(declared) != 1:
            return "a `version`, or an `input` of one package,"
    return ""
