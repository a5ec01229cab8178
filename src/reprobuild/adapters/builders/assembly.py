"""Composing one tree out of several, remembering who brought what.

Whole directories are grafted by digest and opened only where two sources meet in one of them, so
joining trees costs what they overlap, not what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from reprobuild.adapters.builders.globs import Selection
from reprobuild.core.digest import Digest
from reprobuild.core.tree import MAX_DEPTH, Directory, Entry, File, Symlink, Tree, check_depth
from reprobuild.core.treebuilder import split_path
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

MAX_LINKS = 40  # as the kernel

Replace = bool | Selection


def show(path: bytes) -> str:
    """A path as text for a message; bytes that are not UTF-8 are escaped."""
    return path.decode("utf-8", "backslashreplace")[:300]


@dataclass(slots=True)
class _Leaf:
    entry: Entry
    owner: str


@dataclass(slots=True)
class _Node:
    owner: str
    children: dict[bytes, _Leaf | _Node] = field(default_factory=dict)


class Assembly:
    """A tree under construction over a content store.

    With `follow`, a path is resolved through the symbolic links that are already there, inside the
    tree, as a package manager does; without it, an entry below a link is refused.
    """

    def __init__(self, content: ContentStore, *, follow: bool = False) -> None:
        self._content = content
        self._follow = follow
        self._root = _Node("")

    def put(self, path: bytes, entry: Entry, owner: str, *, replace: Replace = False) -> None:
        """Puts `entry` at `path`, merging directories.

        The same content twice is fine; anything else in an occupied place raises E-TREE-CONFLICT
        naming both owners, unless `replace` (always, or for the paths it takes) lets
        a file or link take the place of another.
        """
        parts = split_path(path)
        if not parts:
            if not isinstance(entry, Directory):
                raise ReprobuildError("E-TREE", "an entry needs a path")
            self._merge_children(self._root, (), entry, owner, replace)
            return
        parent, seen = self._descend(parts[:-1], owner)
        self._merge(parent, (*seen, parts[-1]), entry, owner, replace)

    def directory(self, path: bytes, owner: str) -> None:
        """Makes sure that a directory stands at `path`."""
        self._descend(split_path(path), owner)

    def graft(
        self,
        path: bytes,
        tree: Digest,
        owner: str,
        *,
        select: Selection | None = None,
        replace: Replace = False,
    ) -> None:
        """Merges `tree` at `path`; `select` sees paths relative to `tree`.

        Directories in which nothing is selected do not appear.
        """
        if select is None or select.everything:
            self.put(path, Directory(tree), owner, replace=replace)
            return
        for relative, entry in _walk(self._content, tree, select):
            self.put(path + b"/" + relative if path else relative, entry, owner, replace=replace)

    def lookup(self, path: bytes) -> Entry | None:
        """What stands at `path`, links not followed; an open directory shows as an empty one."""
        here: _Node = self._root
        parts = split_path(path)
        for index, part in enumerate(parts):
            child = self._child(here, part)
            if child is None:
                return None
            if isinstance(child, _Leaf):
                return child.entry if index == len(parts) - 1 else None
            here = child
        return Directory(Tree(()).digest)

    def build(self) -> Digest:
        """Stores the nodes made here and returns the root's digest."""
        nodes: dict[Digest, Tree] = {}
        made: dict[int, Digest] = {}
        stack = [self._root]
        while stack:
            here = stack[-1]
            below = [c for c in here.children.values() if isinstance(c, _Node)]
            if todo := [c for c in below if id(c) not in made]:
                stack += todo
                continue
            stack.pop()
            tree = Tree.of(
                {
                    name: Directory(made[id(c)]) if isinstance(c, _Node) else c.entry
                    for name, c in here.children.items()
                }
            )
            made[id(here)] = digest = tree.digest
            nodes[digest] = tree
        self._content.add_trees(nodes)
        return made[id(self._root)]

    # -- inside --------------------------------------------------------------------------------

    def _child(self, node: _Node, name: bytes) -> _Leaf | _Node | None:
        """The child, opened when it is a grafted directory."""
        child = node.children.get(name)
        if isinstance(child, _Leaf) and isinstance(child.entry, Directory):
            tree = self._content.tree(child.entry.digest)
            opened = _Node(child.owner, {n: _Leaf(e, child.owner) for n, e in tree.entries})
            node.children[name] = opened
            return opened
        return child

    def _descend(self, parts: tuple[bytes, ...], owner: str) -> tuple[_Node, tuple[bytes, ...]]:
        """The directory at `parts`, made where missing, and where it really lies."""
        todo = list(reversed(parts))
        stack: list[_Node] = [self._root]
        names: list[bytes] = []
        links = 0
        while todo:
            part = todo.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                if names:
                    names.pop()
                    stack.pop()
                continue
            child = self._child(stack[-1], part)
            if child is None:
                child = stack[-1].children[part] = _Node(owner)
            if isinstance(child, _Leaf):
                here = b"/".join((*names, part))
                if not self._follow or not isinstance(child.entry, Symlink):
                    raise _conflict(here, child.owner, owner, "is no directory")
                links += 1
                if links > MAX_LINKS:
                    raise _conflict(here, child.owner, owner, "is a loop of links")
                target = child.entry.target
                if target.startswith(b"/"):
                    stack, names = [self._root], []
                todo.extend(reversed(target.split(b"/")))
                continue
            stack.append(child)
            names.append(part)
            if len(names) > MAX_DEPTH:  # through links, since a path was checked
                check_depth(len(names), show(b"/".join(names)))
        return stack[-1], tuple(names)

    def _merge(
        self, parent: _Node, path: tuple[bytes, ...], entry: Entry, owner: str, replace: Replace
    ) -> None:
        node = self._merge_one(parent, path, entry, owner, replace)
        if node is not None:
            assert isinstance(entry, Directory)
            self._merge_children(node, path, entry, owner, replace)

    def _merge_children(
        self,
        node: _Node,
        path: tuple[bytes, ...],
        entry: Directory,
        owner: str,
        replace: Replace,
    ) -> None:
        frames = [(node, path, iter(self._content.tree(entry.digest).entries))]
        while frames:
            parent, prefix, entries = frames[-1]
            for name, child in entries:
                whole = (*prefix, name)
                below = self._merge_one(parent, whole, child, owner, replace)
                if below is not None:
                    assert isinstance(child, Directory)
                    frames.append((below, whole, iter(self._content.tree(child.digest).entries)))
                    break
            else:
                frames.pop()

    def _merge_one(
        self, parent: _Node, path: tuple[bytes, ...], entry: Entry, owner: str, replace: Replace
    ) -> _Node | None:
        """Puts one entry; the directory into which its children are still to be merged."""
        if len(path) > MAX_DEPTH:
            check_depth(len(path) - 1, show(b"/".join(path)))
        name = path[-1]
        have = parent.children.get(name)
        if have is None:
            parent.children[name] = _Leaf(entry, owner)
            return None
        if isinstance(have, _Leaf) and have.entry == entry:
            return None
        if isinstance(entry, Directory):
            if self._follow and isinstance(have, _Leaf) and isinstance(have.entry, Symlink):
                node, _ = self._descend(path, owner)
            else:
                opened = self._child(parent, name)
                if not isinstance(opened, _Node):
                    raise _conflict(b"/".join(path), have.owner, owner, "is not always a directory")
                node = opened
            return node
        if not isinstance(have, _Leaf) or isinstance(have.entry, Directory):
            raise _conflict(b"/".join(path), have.owner, owner, "is not always a directory")
        whole = b"/".join(path)
        if not (replace if isinstance(replace, bool) else replace.takes(whole)):
            raise _conflict(whole, have.owner, owner, "comes with different content")
        parent.children[name] = _Leaf(entry, owner)
        return None


def _conflict(path: bytes, first: str, second: str, what: str) -> ReprobuildError:
    return ReprobuildError(
        "E-TREE-CONFLICT",
        f"{show(path)} {what}: from {first or 'this recipe'} and from {second or 'this recipe'}",
        path=show(path),
        first=first,
        second=second,
    )


def _walk(
    content: ContentStore, tree: Digest, select: Selection, prefix: bytes = b""
) -> Iterator[tuple[bytes, File | Symlink]]:
    check_depth(prefix.count(b"/"), show(prefix))
    for name, entry in content.tree(tree).entries:
        path = prefix + name
        if isinstance(entry, Directory):
            if not select.drops(path):
                yield from _walk(content, entry.digest, select, path + b"/")
        elif select.takes(path):
            yield path, entry


def subtree(content: ContentStore, tree: Digest, path: bytes) -> Entry:
    """What stands at `path` inside `tree`, links not followed; E-PARAMS when nothing does."""
    entry: Entry = Directory(tree)
    for part in split_path(path):
        found = content.tree(entry.digest).get(part) if isinstance(entry, Directory) else None
        if found is None:
            raise ReprobuildError(
                "E-PARAMS", f"there is nothing at {show(path)} in the input", path=show(path)
            )
        entry = found
    return entry


def single_file(content: ContentStore, tree: Digest, what: str) -> tuple[str, File]:
    """Name and entry of the one file that a fetched input's tree holds; else E-PARAMS."""
    entries = content.tree(tree).entries
    if len(entries) == 1 and isinstance(entries[0][1], File):
        return show(entries[0][0]), entries[0][1]
    raise ReprobuildError(
        "E-PARAMS", f"{what} must hold exactly one file, not {len(entries)} entries", input=what
    )
