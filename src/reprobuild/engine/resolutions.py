"""Recording a reviewed resolution of the conflict at which a stack stops now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from reprobuild.core.encoding import Value
from reprobuild.core.integration.backend import ConflictedPath, PatchReader
from reprobuild.core.integration.model import IntegrationSpec, Resolution
from reprobuild.core.integration.resolve import blob_oid
from reprobuild.core.integration.strategies import Stack, Step
from reprobuild.engine.gitport import SourceRepositories
from reprobuild.errors import ReprobuildError


class ResolutionStore(Protocol):
    """Where resolutions are kept."""

    def write(self, resolution: Resolution, content: bytes | None) -> str:
        """Records one; the name of its file."""
        ...


def record(
    origin: Mapping[str, Value],
    spec: IntegrationSpec,
    sources: SourceRepositories,
    store: ResolutionStore,
    answers: Mapping[str, Path | None],
    *,
    author: str,
    reason: str,
    read: PatchReader,
) -> list[str]:
    """Records an answer for each conflicted path (None: the file goes); the files written.

    Raises E-USAGE when the stack has no conflict, an answer is for another path or lacks, or
    author or reason is empty.
    """
    if not author.strip() or not reason.strip():
        raise ReprobuildError("E-USAGE", "a resolution names who reviewed it, and why it is right")
    with sources.open(origin, spec) as repository:
        step = _stop(Stack.start(repository, spec, read).fresh(), spec)
        if step is None or step.outcome is None:
            raise ReprobuildError("E-USAGE", "every head goes on; there is nothing to resolve")
        conflicts = {c.path.decode("utf-8", "surrogateescape"): c for c in step.outcome.conflicts}
        wrong = sorted(set(answers) - set(conflicts))
        lacking = sorted(set(conflicts) - set(answers))
        if wrong or lacking:
            detail = f"no conflict is in {wrong[0]}" if wrong else f"{lacking[0]} has no answer"
            raise ReprobuildError(
                "E-USAGE",
                f"PR #{step.head.number}: {detail}; the conflicts are in "
                + ", ".join(sorted(conflicts)),
            )
        like = spec.base
    written = []
    for path, file in sorted(answers.items()):
        content = None if file is None else _content(file)
        conflict = conflicts[path]
        resolution = Resolution(
            path=path,
            ancestor=conflict.ancestor.oid if conflict.ancestor else None,
            ours=conflict.ours.oid if conflict.ours else None,
            theirs=conflict.theirs.oid if conflict.theirs else None,
            result=None if content is None else blob_oid(content, like),
            author=author.strip(),
            reason=reason.strip(),
            executable=_executable(conflict),
        )
        written.append(store.write(resolution, content))
    return written


def _stop(stack: Stack, spec: IntegrationSpec) -> Step | None:
    for head in spec.heads:
        step = stack.push(head)
        if step.failed:
            return step
    return None


def _executable(conflict: ConflictedPath) -> bool:
    side = conflict.ours or conflict.theirs
    return side is not None and side.mode == 0o100755


def _content(file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ReprobuildError(
            "E-USAGE", f"cannot read {file}: {error.strerror}", file=str(file)
        ) from error
    if b"\n<<<<<<< " in b"\n" + content or b"\n>>>>>>> " in b"\n" + content:
        raise ReprobuildError("E-USAGE", f"{file} still holds conflict markers", file=str(file))
    return content
