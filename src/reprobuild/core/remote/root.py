"""The input root of a remote build: the sandbox's `/`, made of content.

It holds what `docs/sandbox.md` says: the entries of the recipe's root file system but for those
that the sandbox has of its own, the inputs at their places, the constant files of /etc, and empty
directories where a build may write. /dev and /proc are left to the worker.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reprobuild.core.derivation import InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.sandboxenv import (
    BUILD_DIRECTORY,
    ETC,
    ETC_HIDDEN,
    OUTPUT_DIRECTORY,
    ROOT_OURS,
)
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree
from reprobuild.errors import ReprobuildError

EMPTY_DIRECTORIES = ("dev", "proc", "tmp")
_ELSEWHERE = ("/proc", "/dev", "/sys", "/out")


@dataclass(slots=True)
class Node:
    """A directory under construction: entries of its own over those of `below`, a whole tree."""

    below: Digest | None = None
    own: dict[bytes, Node | Entry | bytes] = field(default_factory=dict)
    """Directories, entries of trees, or the bytes of a file."""


def input_root(
    inputs: Sequence[tuple[str, InputContent]],
    outputs: Iterable[str],
    cwd: str,
    read: Callable[[Digest], Tree],
) -> Node:
    """The root directory of a build.

    `read` gives directory nodes. Raises E-DERIVATION where an input cannot stand, as the sandbox
    of one's own does; E-REMOTE-UNFIT for a place that workers mount over.
    """
    root = Node()
    bottom = [content for at, content in inputs if at == "/"]
    etc = Node()
    for content in bottom:
        for name, entry in read(content.digest):
            if name.decode(errors="replace") not in ROOT_OURS:
                root.own[name] = entry
        found = read(content.digest).get(b"etc")
        if isinstance(found, Directory):
            etc.own.update(
                (name, entry)
                for name, entry in read(found.digest)
                if name.decode(errors="replace") not in ETC_HIDDEN and name not in _CONSTANTS
            )
    etc.own.update(_CONSTANTS)
    root.own[b"etc"] = etc
    root.own.update((name.encode(), Node()) for name in EMPTY_DIRECTORIES)
    out = Node()
    out.own.update((name.encode(), Node()) for name in outputs)
    root.own[OUTPUT_DIRECTORY.strip("/").encode()] = out
    root.own[BUILD_DIRECTORY.strip("/").encode()] = Node()
    for at, content in sorted(inputs, key=lambda row: row[0]):
        if at != "/":
            _check(at)
            _place(root, at, content, read)
    _make(root, cwd, read)
    return root


_CONSTANTS: Mapping[bytes, bytes] = {name.encode(): text for name, text in ETC.items()}


def _check(at: str) -> None:
    if not at.startswith("/") or posixpath.normpath(at) != at or at.startswith("//"):
        raise ReprobuildError("E-DERIVATION", f"{at[:200]!r} is no clean absolute path", at=at)
    top = "/" + at.split("/")[1]
    if at in ("/build", "/etc") or top in _ELSEWHERE:
        raise ReprobuildError(
            "E-DERIVATION", f"an input cannot stand at {at}: the sandbox has its own there", at=at
        )
    if top == "/tmp":  # noqa: S108 - a place inside the sandbox
        raise ReprobuildError(
            "E-REMOTE-UNFIT", f"an input stands at {at}, and workers mount their own /tmp", at=at
        )
    if at.startswith("/etc/") and at.split("/")[2].encode() in _CONSTANTS:
        raise ReprobuildError(
            "E-DERIVATION", f"an input cannot stand at {at}: that file is constant", at=at
        )


def _open(parent: Node, name: bytes, at: str, read: Callable[[Digest], Tree]) -> Node:
    """The directory `name` of `parent`, ready to be added to."""
    found = parent.own.get(name)
    if found is None and parent.below is not None:
        found = read(parent.below).get(name)
    if isinstance(found, Node):
        return found
    if found is None:
        made = Node()
    elif isinstance(found, Directory):
        made = Node(below=found.digest)
    else:
        what = "a symbolic link" if isinstance(found, Symlink) else "a file"
        raise ReprobuildError(
            "E-DERIVATION",
            f"an input cannot stand at {at}: {name.decode(errors='replace')} is {what}",
            at=at,
        )
    parent.own[name] = made
    return made


def _make(root: Node, path: str, read: Callable[[Digest], Tree]) -> Node:
    here = root
    for part in path.strip("/").split("/"):
        if part:
            here = _open(here, part.encode(), path, read)
    return here


def _place(root: Node, at: str, content: InputContent, read: Callable[[Digest], Tree]) -> None:
    parent, _, name = at.rpartition("/")
    here = _make(root, parent, read)
    key = name.encode()
    if content.is_file:
        # The size is not known here; the one who writes the wire's names looks it up.
        here.own[key] = File(content.digest, -1, content.executable)
    else:
        here.own[key] = Node(below=content.digest)


def entries(node: Node, read: Callable[[Digest], Tree]) -> dict[bytes, Node | Entry | bytes]:
    """All entries of a directory under construction."""
    if node.below is None:
        return node.own
    return {**dict(read(node.below)), **node.own}
