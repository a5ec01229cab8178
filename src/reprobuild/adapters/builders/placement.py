"""Placing a component's tree over what lies beneath it.

A directory entry over a link to a directory would replace the link (a `lib/` over a merged /usr
destroys it), and one over a directory would reset its owner and mode. So entries go to where the
links beneath lead, and directories that are there already keep what is said about them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reprobuild.adapters.builders.assembly import Assembly, show
from reprobuild.adapters.builders.below import Found, Stack
from reprobuild.adapters.builders.globs import Selection
from reprobuild.core.digest import Digest
from reprobuild.core.imagetar import Attributes
from reprobuild.core.tree import Directory, Entry, File, Symlink, check_depth
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore


@dataclass(slots=True)
class Placement:
    """Puts trees where they go; `inherited` collects the directories that are there
    beneath, with what is said about them, if anything is.

    `replace` says which files may take the place of others; None: none may.
    """

    content: ContentStore
    stack: Stack
    name: str
    replace: Selection | None = None
    inherited: dict[bytes, Attributes | None] = field(default_factory=dict)
    _assembly: Assembly | None = None

    def place(self, tree: Digest, prefix: bytes) -> Digest:
        """The tree as it lies in the image; raises E-IMAGE-OVERLAP."""
        self._assembly = Assembly(self.content)
        self._walk(tree, self._enter(self.stack.resolve(prefix)))
        return self._assembly.build()

    def _enter(self, parts: tuple[bytes, ...]) -> tuple[bytes, ...]:
        assert self._assembly is not None
        for depth in range(1, len(parts) + 1):
            found = self.stack.lookup(parts[:depth])
            if found is not None and found.kind != "directory":
                raise self._overlap(parts[:depth], f"is a {found.kind}, not a directory, beneath")
            if found is not None:
                self.inherited[b"/".join(parts[:depth])] = found.attributes
        self._assembly.directory(b"/".join(parts), self.name)
        return parts

    def _walk(self, tree: Digest, at: tuple[bytes, ...]) -> None:
        assert self._assembly is not None
        check_depth(len(at), show(b"/".join(at[:20])))
        for name, entry in self.content.tree(tree).entries:
            parts = (*at, name)
            found = self.stack.lookup(parts)
            if isinstance(entry, Directory):
                if found is None:
                    self._assembly.put(b"/".join(parts), entry, self.name)
                else:
                    self._walk(entry.digest, self._enter(self._real(parts, found)))
            else:
                if found is not None and not self._may_stand(entry, parts, found):
                    raise self._overlap(parts, f"is there beneath already, as another {found.kind}")
                self._assembly.put(b"/".join(parts), entry, self.name)

    def _real(self, parts: tuple[bytes, ...], found: Found) -> tuple[bytes, ...]:
        return self.stack.resolve(b"/".join(parts)) if found.kind == "link" else parts

    def _may_stand(self, entry: Entry, parts: tuple[bytes, ...], found: Found) -> bool:
        if found.kind == "directory":
            return False
        if isinstance(entry, File) and found.file == entry:
            return True
        if isinstance(entry, Symlink) and found.kind == "link" and found.target == entry.target:
            return True
        return self.replace is not None and self.replace.takes(b"/".join(parts))

    def _overlap(self, parts: tuple[bytes, ...], what: str) -> ReprobuildError:
        path = show(b"/".join(parts))
        return ReprobuildError(
            "E-IMAGE-OVERLAP", f"/{path} of {self.name} {what}", path=path, second=self.name
        )
