"""verdict: two trees that one recipe gave, compared: what differs, why, and what would cure it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from reprobuild.core.cubin.fatbin import Inflate
from reprobuild.core.cubin.findings import Cause, Finding
from reprobuild.core.cubin.verdict import CURES, FileVerdict, judge_files
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.tree import Directory, Entry, File
from reprobuild.core.wording import plural
from reprobuild.ports import ContentStore

MAX_FILES = 200
"""Files that are judged; of more, the rest is counted."""
MAX_FILE = 2 * 2**30
"""Bytes of a file that is looked into."""

_ORDER = list(Cause)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdicts on all files that differ, gravest first; `more` were not looked into."""

    files: tuple[FileVerdict, ...]
    more: int = 0

    @property
    def device(self) -> str:
        """`different`, `identical`, or empty where no file that differs has device code."""
        found = {file.device for file in self.files} - {""}
        return "different" if "different" in found else "identical" if found else ""

    def names(self) -> set[str]:
        """The mangled names of kernels in it."""
        return {n for file in self.files for f in file.findings for n in f.where if n[:2] == "_Z"}

    def renamed(self, readable: Mapping[str, str]) -> Verdict:
        """The same with kernels' names for people, where `readable` has them."""
        files = [
            replace(
                file,
                findings=tuple(
                    replace(f, where=tuple(readable.get(n, n) for n in f.where))
                    for f in file.findings
                ),
            )
            for file in self.files
        ]
        return replace(self, files=tuple(files))

    def lines(self) -> list[str]:
        """For people: a line a file, then what to do about each cause."""
        lines = [file.line() for file in self.files]
        if self.more:
            lines.append(f"and {plural(self.more, 'file')} more")
        causes = {f.cause for file in self.files for f in file.findings}
        cures = [f"{cause}: {CURES[cause]}" for cause in _ORDER if cause in causes]
        return lines + [f"cure for {cure}" for cure in cures]

    def document(self) -> dict[str, Value]:
        """For `--json`."""
        return {
            "device": self.device or None,
            "files": [file.document() for file in self.files],
            "more": self.more,
        }


def judge(content: ContentStore, first: Digest, second: Digest, inflate: Inflate) -> Verdict:
    """Compares two trees; equal subtrees are skipped. Raises what the store raises."""
    files: list[FileVerdict] = []
    more = 0
    for path, one, two in _differing(content, first, second, ""):
        if len(files) < MAX_FILES:
            files.append(_judge(content, path, one, two, inflate))
        else:
            more += 1
    files.sort(key=lambda file: (_ORDER.index(file.cause), file.path))
    return Verdict(tuple(files), more)


def judge_outputs(
    content: ContentStore,
    first: Mapping[str, Digest],
    second: Mapping[str, Digest],
    inflate: Inflate,
) -> Verdict:
    """The same for all outputs of two records; paths begin with the output's name if it is not
    the only one."""
    files: list[FileVerdict] = []
    more = 0
    for name in sorted({*first} & {*second}):
        if first[name] == second[name]:
            continue
        found = judge(content, first[name], second[name], inflate)
        more += found.more
        for file in found.files:
            path = file.path if len(first) == 1 else f"{name}/{file.path}"
            files.append(FileVerdict(path, file.findings, file.device))
    return Verdict(tuple(files), more)


Pair = tuple[str, Entry | None, Entry | None]


def _differing(content: ContentStore, first: Digest, second: Digest, prefix: str) -> Iterator[Pair]:
    if first == second:
        return
    ones, twos = dict(content.tree(first)), dict(content.tree(second))
    for name in sorted({*ones, *twos}):
        one, two = ones.get(name), twos.get(name)
        path = prefix + name.decode("utf-8", "backslashreplace")
        if isinstance(one, Directory) and isinstance(two, Directory):
            yield from _differing(content, one.digest, two.digest, path + "/")
        elif one != two:
            yield path, one, two


def _judge(
    content: ContentStore, path: str, one: Entry | None, two: Entry | None, inflate: Inflate
) -> FileVerdict:
    if not isinstance(one, File) or not isinstance(two, File):
        return FileVerdict(path, (Finding(Cause.CONTENT, (), _shape(one, two)),))
    if one.digest == two.digest:
        detail = f"{_kind(one)} and {_kind(two)}"
        return FileVerdict(path, (Finding(Cause.CONTENT, (), detail),))
    if max(one.size, two.size) > MAX_FILE:
        detail = f"{one.size} and {two.size} bytes, too large to be looked into"
        return FileVerdict(path, (Finding(Cause.CONTENT, (), detail),))
    return judge_files(path, _read(content, one), _read(content, two), inflate)


def _read(content: ContentStore, file: File) -> bytes:
    with content.open_blob(file.digest) as blob:
        return blob.read()


def _shape(one: Entry | None, two: Entry | None) -> str:
    if one is None:
        return "is in the second only"
    if two is None:
        return "is in the first only"
    return f"{_kind(one)} and {_kind(two)}"


def _kind(entry: Entry) -> str:
    if isinstance(entry, File):
        return "an executable file" if entry.executable else "a file that is not executable"
    if isinstance(entry, Directory):
        return "a directory"
    return f"a link to {entry.target.decode('utf-8', 'backslashreplace')[:100]!r}"
