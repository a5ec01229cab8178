"""From recorded trees to what an action's inputs are."""

from __future__ import annotations

from reprobuild.core.derivation import Input, InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentReader


def content_at(content: ContentReader, tree: Digest, path: str, what: str) -> InputContent:
    """What stands at `path` in a tree; raises E-INPUT-PATH where nothing does, or a link.

    Links are not followed: a recipe names content, and a link is another name for it.
    """
    here = InputContent(tree)
    walked: list[str] = []
    for part in path.split("/") if path else ():
        entry = None if here.is_file else content.tree(here.digest).get(part.encode())
        walked.append(part)
        if isinstance(entry, Directory):
            here = InputContent(entry.digest)
        elif isinstance(entry, File):
            here = InputContent(entry.digest, is_file=True, executable=entry.executable)
        else:
            there = "a symbolic link" if entry is not None else "nothing"
            raise ReprobuildError(
                "E-INPUT-PATH",
                f"{what}: there is {there} at {'/'.join(walked)}",
                path=path,
                tree=str(tree),
                names=_names(content, here),
            )
    return here


def _names(content: ContentReader, where: InputContent) -> list[str]:
    if where.is_file:
        return []
    names = [name.decode(errors="backslashreplace") for name, _ in content.tree(where.digest)]
    return names[:40]


def input_content(content: ContentReader, entry: Input, tree: Digest, owner: str) -> InputContent:
    """What an input of `owner` turned out to be."""
    return content_at(content, tree, entry.path, f"{owner}: input {entry.name}")
