"""unpack, rootfs, join and wheel-install: steps done by built-ins, without a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reprobuild.core.component import JoinStep, Place, RootfsStep, UnpackStep, WheelInstallStep
from reprobuild.core.derivation import Derivation, Input
from reprobuild.core.encoding import Value
from reprobuild.core.kinds.context import Located, StepContext, hints
from reprobuild.errors import ReprobuildError


def unpack_one(
    name: str,
    archive: Located,
    context: StepContext,
    *,
    strip: int = 0,
    prefix: str = "",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Located:
    """One archive as a tree."""
    return context.add(
        Derivation(
            name=name,
            builder="builtin:unpack",
            inputs=(Input("archive", archive.drv, archive.output),),
            params={
                "exclude": list(exclude),
                "format": "auto",
                "include": list(include),
                "prefix": prefix,
                "strip": strip,
            },
        )
    )


def unpack(spec: UnpackStep, context: StepContext) -> Located:
    """Each archive alone, so that one that moves is unpacked alone; then merged."""
    archives = context.resolve_all(spec.archive)
    several = len(archives) > 1
    trees = [
        unpack_one(
            f"{context.name}:{archive.filename or index}" if several else context.name,
            archive,
            context,
            strip=spec.strip,
            prefix=spec.prefix,
            include=spec.include,
            exclude=spec.exclude,
        )
        for index, archive in enumerate(archives)
    ]
    if not several:
        return trees[0]
    return join_all(context.name, [(tree, "", False, (), ()) for tree in trees], context)


def rootfs(spec: RootfsStep, context: StepContext) -> Located:
    """Debian packages as a root file system."""
    debs = [deb for ref in spec.packages for deb in context.resolve_all(ref)]
    limits = hints(spec.memory, spec.timeout)
    return context.add(
        Derivation(
            name=context.name,
            builder="builtin:rootfs",
            inputs=tuple(
                Input(f"deb-{index}", deb.drv, deb.output) for index, deb in enumerate(debs)
            ),
            params={
                "exclude": list(spec.exclude),
                "files": dict(spec.files),
                "links": dict(spec.links),
            },
            hints=limits,
        )
    )


Placement = tuple[Located, str, bool, Sequence[str], Sequence[str]]
"""What, where to, whether it may replace, include and exclude patterns."""


def join_all(
    name: str,
    places: Sequence[Placement],
    context: StepContext,
    *,
    links: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    executables: Sequence[str] = (),
) -> Located:
    """Places one after another into one tree."""
    inputs: dict[tuple[str, str], Input] = {}
    rows: list[Value] = []
    for located, to, replace, include, exclude in places:
        key = (located.drv.hex, located.output)
        bound = inputs.setdefault(key, Input(f"tree-{len(inputs)}", located.drv, located.output))
        rows.append(
            {
                "exclude": list(exclude),
                "from": located.path,
                "include": list(include),
                "input": bound.name,
                "replace": replace,
                "to": to,
            }
        )
    return context.add(
        Derivation(
            name=name,
            builder="builtin:join",
            inputs=tuple(inputs.values()),
            params={
                "executables": list(executables),
                "files": dict(files or {}),
                "links": dict(links or {}),
                "place": rows,
            },
        )
    )


def placements(places: Sequence[Place], context: StepContext) -> list[Placement]:
    """The typed form of `place` tables."""
    return [
        (located, place.to, place.replace, place.include, place.exclude)
        for place in places
        for located in context.resolve_all(place.source)
    ]


def join(spec: JoinStep, context: StepContext) -> Located:
    """Several trees as one."""
    return join_all(
        context.name,
        placements(spec.place, context),
        context,
        links=spec.links,
        files=spec.files,
        executables=spec.executables,
    )


def wheel_install(spec: WheelInstallStep, context: StepContext) -> Located:
    """A ready wheel, laid out as pip would."""
    wheels = context.resolve_all(spec.wheel)
    if len(wheels) != 1:
        raise ReprobuildError(
            "E-COMPONENT", f"{context.name}: {spec.wheel} names {len(wheels)} files, not one wheel"
        )
    return install_wheel(context.name, wheels[0], spec.prefix, spec.scripts, context)


def install_wheel(
    name: str, wheel: Located, prefix: str, scripts: str, context: StepContext
) -> Located:
    """The derivation that lays out one wheel."""
    return context.add(
        Derivation(
            name=name,
            builder="builtin:wheel-install",
            inputs=(Input("wheel", wheel.drv, wheel.output, wheel.path),),
            params={"prefix": prefix, "scripts": scripts},
        )
    )
