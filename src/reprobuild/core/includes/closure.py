"""The files a translation unit could read, out of all that its sandbox would show.

From the unit and what the compiler includes by itself, every operand is followed, and every file
that it could name is taken: in each of the directories that are searched, and beside the file that
asks. So a file that would shadow another is in the set by construction, as is what another pass of
the compiler would find. Where a directory cannot be told (`..`, links, quotes made by a macro, a
search of which the list is not known), *every* file counts whose path ends in the operand.

The invariant that makes a compile in the cut root equal to one in the whole root: whatever path
the preprocessor asks for, below whichever directory, is there in the one exactly when it is there
in the other, with the same content. `tests/property/test_includes.py` holds it against a compiler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest
from reprobuild.core.includes.index import FileIndex, Place, Search
from reprobuild.core.includes.macros import operands, probed
from reprobuild.core.includes.scan import (
    ANYWHERE,
    QUOTED,
    SEARCHED,
    Definition,
    Scan,
    asks_for_parameter,
)

_PASTE = re.compile(rb"([\w$]*)\s*##\s*([\w$]*)")
_PIECE = 3
"""Letters of a name that a pasted piece must have to count as part of it."""


@dataclass(slots=True)
class Closure:
    """The set for one unit. `unresolved` says what could not be told: where it is not empty, the
    set is not the whole truth and the unit needs its whole trees."""

    files: set[Place] = field(default_factory=set)
    directories: set[Place] = field(default_factory=set)
    unresolved: set[bytes] = field(default_factory=set)
    operands: set[bytes] = field(default_factory=set)


def close(
    index: FileIndex,
    starts: Iterable[bytes],
    scan_of: Callable[[Digest], Scan],
    defines: Mapping[bytes, Sequence[Definition]],
    search: Search | None = None,
) -> Closure:
    """Follows operands from `starts` (paths) until nothing new turns up.

    `search` is what is known of the directories that are searched. `defines` are macros from the
    command line. Uses of macros are looked at again whenever the set grew, since a definition found
    later may be the one that holds.
    """
    walk = _Walk(index, scan_of, {n: list(d) for n, d in defines.items()}, search)
    queue = [ANYWHERE + start for start in starts]
    while queue:
        walk.follow(queue)
        queue = [operand for operand in walk.resolve() if operand not in walk.result.operands]
    return walk.result


@dataclass(slots=True)
class _Walk:
    index: FileIndex
    scan_of: Callable[[Digest], Scan]
    known: dict[bytes, list[Definition]]
    search: Search | None
    result: Closure = field(default_factory=Closure)
    taken: set[Digest] = field(default_factory=set)
    uses: set[bytes] = field(default_factory=set)
    calls: set[bytes] = field(default_factory=set)

    def follow(self, queue: list[bytes]) -> None:
        """Takes operands, and theirs, until the queue is empty."""
        result = self.result
        while queue:
            operand = queue.pop()
            if operand in result.operands:
                continue
            result.operands.add(operand)
            path = operand[1:]
            if not self.index.can_tell(path):
                result.unresolved.add(path)
            search = self.search if operand[:1] == SEARCHED else None
            places, directories = self.index.candidates(path, search)
            result.directories.update(directories)
            self._take_all(places, queue)

    def _take_all(self, places: Iterable[Place], queue: list[bytes]) -> None:
        fresh = [place for place in places if place not in self.result.files]
        while fresh:
            place = fresh.pop()
            if place in self.result.files:
                continue
            self.result.files.add(place)
            for operand in self._take(place):
                if operand[:1] != QUOTED:
                    queue.append(operand)
                elif self.search is None or not self.index.is_plain(operand[1:]):
                    queue.append(ANYWHERE + operand[1:])
                else:
                    queue.append(SEARCHED + operand[1:])
                    fresh += self.index.beside(place, operand[1:])

    def _take(self, place: Place) -> Sequence[bytes]:
        """What a file asks for; its macros and their uses are noted when it is first seen."""
        blob = self.index.blobs[place]
        found = self.scan_of(blob)
        if blob in self.taken:
            # Its twin elsewhere asked already, but for what lies beside it.
            return [operand for operand in found.operands if operand[:1] == QUOTED]
        self.taken.add(blob)
        if found.whole:
            self.result.unresolved.add(found.whole)
        for name, parameters, body in found.defines:
            self.known.setdefault(name, []).append((parameters, body))
        self.uses.update(found.uses)
        self.calls.update(found.calls)
        return found.operands

    def resolve(self) -> set[bytes]:
        """Operands that macros can make, with all that is known by now."""
        for name, found_twice in self.known.items():
            if len(found_twice) > 1:
                self.known[name] = list(dict.fromkeys(found_twice))
        found: set[bytes] = set()
        spaces = 32 in self.index.alphabet
        for use in self.uses:
            self._add(found, operands(use, self._lookup, spaces=spaces), use)
        probing = self._probing()
        asked = {call for call in self.calls if call.partition(b"(")[0].strip() in probing}
        for name in probing:
            asked.update(body for parameters, body in self.known[name] if parameters is None)
        for text in asked:
            self._add(found, probed(text, self._lookup, spaces=spaces), text)
        return found

    def _add(self, found: set[bytes], more: set[bytes] | None, text: bytes) -> None:
        if more is None:
            self.result.unresolved.add(text)
        else:
            found |= more

    def _lookup(self, name: bytes) -> Sequence[Definition]:
        return self.known.get(name, ())

    def _probing(self) -> set[bytes]:
        """Macros that lead to a `__has_include` of what a parameter says.

        Those whose body has one, those whose body has the name of such a macro, and those that
        paste such a name together from a piece that is written out. (All other operands of a
        `__has_include` are literal, or in `uses`.)
        """
        found = {
            name
            for name, definitions in self.known.items()
            for parameters, body in definitions
            if b"__has_" in body and asks_for_parameter(parameters or (), body)
        }
        fresh = set(found)
        while fresh:
            mentions = re.compile(b"|".join(re.escape(name) for name in sorted(fresh)))
            fresh = {
                name
                for name, definitions in self.known.items()
                if name not in found
                and any(mentions.search(body) or _pastes(body, fresh) for _, body in definitions)
            }
            found |= fresh
        return found


def _pastes(body: bytes, names: set[bytes]) -> bool:
    if b"##" not in body:
        return False
    for before, after in _PASTE.findall(body):
        for name in names:
            starts = len(before) >= _PIECE and name.startswith(before)
            ends = len(after) >= _PIECE and name.endswith(after)
            if starts or ends:
                return True
    return False
