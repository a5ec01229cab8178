"""diff: what changed between two release sides. Builds nothing, fetches nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprobuild.core.diff import facts
from reprobuild.core.diff.causes import SourceDiff, causes_of
from reprobuild.core.diff.comparison import (
    Comparison,
    ContentDiff,
    FilesDiff,
    OutputChange,
)
from reprobuild.core.diff.side import ComponentSide
from reprobuild.core.diff.sources import (
    Base,
    PackageChange,
    compare_heads,
    compare_inputs,
    status,
)
from reprobuild.core.diff.trees import PathChange, compare_trees
from reprobuild.core.digest import Digest
from reprobuild.core.tree import File
from reprobuild.core.wording import plural
from reprobuild.engine.diff_loaded import Loaded, content_at_hand, tree_reader
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.core.diff.comparison import Touch
    from reprobuild.core.diff.dag import GraphDiff
    from reprobuild.core.diff.kernels import Module, ModuleDiff
    from reprobuild.core.encoding import Value
    from reprobuild.core.integration.backend import PatchReader
    from reprobuild.engine.diff_reach import ReadsOf
    from reprobuild.engine.diff_sources import Opener, SourceFindings

KernelReader = Callable[[str, File], "Module | None"]
"""The device code of a file (its path is for messages); None for a file without any."""


def no_patches(path: str) -> bytes:
    """For sides without patch files."""
    raise ReprobuildError("E-PATCH", f"there is no patch file {path}", file=path)


VersionOrder = Callable[[str, str, str], int | None]
"""(kind of input, one version, other) → negative, 0, positive; None where they cannot be told."""


@dataclass(slots=True)
class Differ:
    """The use case. What is None cannot be had here, and the report says so."""

    old: Loaded
    new: Loaded
    opener: Opener | None = None
    patches: tuple[PatchReader, PatchReader] = (no_patches, no_patches)
    kernels: KernelReader | None = None
    order: VersionOrder | None = None
    reads_of: ReadsOf | None = None
    draw: bool = True
    _notes: list[str] = field(default_factory=list)
    _paths: dict[str, list[PathChange]] = field(default_factory=dict)
    """What differs in each component's output, once it was looked for."""

    def run(self) -> Comparison:
        """All levels, each from the one before."""
        old, new = self.old.side, self.new.side
        found = Comparison(old, new, notes=self._notes)
        self._notes += [f"{s.name}: {note}" for s in (old, new) for note in s.notes]
        self._sources(found)
        if old.inputs is not None and new.inputs is not None:
            found.packages = compare_inputs(old.inputs, new.inputs)
            found.downgrades = self._downgrades(found.packages)
        found.release = facts.release_changes(old, new)
        self._image_texts(found)
        self._graph(found)
        prints = self._fingerprints()
        unexplained = {
            "environment": {
                k: v for k, v in found.environment.items() if not facts.follows(*v, prints)
            },
            "serving": found.serving,
            "labels": {
                k: v
                for k, v in found.labels.items()
                if facts.label_of(k, {*old.components, *new.components})[0] == facts.LABELS
            },
        }
        found.causes = causes_of(
            old, new, found.sources, found.packages, found.graph, found.release, unexplained
        )
        self._outputs(found)
        self._content(found)
        self._kernels(found)
        self._touches(found)
        self._layers(found)
        return found

    # -- sources ---------------------------------------------------------------------------

    def _sources(self, found: Comparison) -> None:
        old, new = self.old.side, self.new.side
        sources: dict[str, SourceDiff] = {}
        files: dict[str, FilesDiff] = {}
        for name in sorted({*old.components, *new.components}):
            one, other = old.components.get(name), new.components.get(name)
            before, after = one or ComponentSide(name), other or ComponentSide(name)
            base = facts_base(before, after)
            contained: tuple[int, ...] = ()
            if before.base or after.base or before.content or after.content:
                seen = self._source(before, after, one is not None and other is not None)
                base, contained, files[name] = seen.base, seen.contained, seen.files
            heads = compare_heads(before.heads, after.heads, contained)
            stated = after.strategy and before.strategy
            sources[name] = SourceDiff(
                name,
                status(one, other),
                base,
                heads,
                (before.tree, after.tree),
                (before.version, after.version),
                (before.strategy, after.strategy) if stated else ("", ""),
            )
        found.sources, found.files = sources, files

    def _source(self, old: ComponentSide, new: ComponentSide, both: bool) -> SourceFindings:
        from reprobuild.engine.diff_sources import SourceFindings, compare_source

        if not both:
            return SourceFindings(facts_base(old, new))
        return compare_source(old, new, (self.old, self.new), self.opener, self.patches)

    def _downgrades(self, packages: Mapping[str, Sequence[PackageChange]]) -> list[str]:
        if self.order is None:
            return []
        out = []
        for rows in packages.values():
            for row in rows:
                if not row.old or not row.new or row.old == row.new:
                    continue
                told = self.order(row.kind, row.old, row.new)
                if told is not None and told > 0:
                    out.append(f"{row.input}: {row.name} {row.old} → {row.new}")
        return out

    def _fingerprints(self) -> tuple[str, str]:
        """Of both sides' JIT caches, which the sources decide."""
        key = "cache_fingerprint"
        return self.old.side.release.get(key, ""), self.new.side.release.get(key, "")

    # -- labels, environment, serving --------------------------------------------------------

    def _image_texts(self, found: Comparison) -> None:
        old, new = self.old.side.image, self.new.side.image
        if old is None or new is None:
            return
        if old.labels and new.labels:
            rows = facts.text_changes(old.labels, new.labels)
            found.labels = {
                k: v
                for k, v in rows.items()
                # what a component came out as is a label of finished images alone
                if not (None in v and k.endswith(".tree") and not k.endswith("integration.tree"))
            }
        told = (old.env or old.serving) and (new.env or new.serving)
        if told:
            found.environment = facts.text_changes(old.env, new.env)
            found.serving = facts.text_changes(old.serving, new.serving)

    # -- derivations -------------------------------------------------------------------------

    def _graph(self, found: Comparison) -> None:
        old, new = self.old.side, self.new.side
        pairs = root_pairs(old.roots, new.roots)
        if not pairs or self._unseen(pairs):
            return
        from reprobuild.core.diff.dag import compare
        from reprobuild.core.diff.graphview import grouped

        rename = facts.renamer(old.output_name, new.output_name)
        found.graph = compare(
            self.old.look,
            self.new.look,
            pairs,
            rename=rename,
            explained=facts.explainer({*old.components, *new.components}, self._fingerprints()),
        )
        for drv in found.graph.unknown:
            self._notes.append(f"the recipe {drv[:12]} is not at hand")
        if self._blind(found.graph):
            found.graph = None
            return
        if self.new.graph is not None:
            roots = [n for _, n in pairs if n]
            closure = self.new.graph.closure([Digest(r) for r in roots])
            touched = {c.new for c in found.graph.changes.values()}
            found.equal_derivations = sum(d.hex not in touched for d in closure)
            if self.draw:
                found.nodes = grouped(self.new.look, roots, found.graph, rename)

    def _unseen(self, pairs: Sequence[tuple[str, str]]) -> bool:
        """Whether recipes differ, and of none of them both documents are at hand."""
        moved = [pair for pair in pairs if pair[0] != pair[1]]
        return bool(moved) and not any(
            not old or not new or (self.old.has(old) and self.new.has(new)) for old, new in moved
        )

    def _blind(self, graph: GraphDiff) -> bool:
        """Whether not one of the differing recipes is at hand on both sides."""
        if not graph.unknown:
            return False
        self._notes[:] = [n for n in self._notes if not n.startswith("the recipe ")]
        known = [c for c in graph.changes.values() if c.fields or c.kind == "inherits"]
        if known:
            self._notes.append(f"not at hand: {plural(len(graph.unknown), 'recipe')}")
        return not known

    # -- outputs -----------------------------------------------------------------------------

    def _outputs(self, found: Comparison) -> None:
        outputs: dict[str, OutputChange] = {}
        for key, change in (found.graph.changes if found.graph is not None else {}).items():
            if change.old and change.new:
                outputs[key] = self._output(change.name, change.old, change.new)
        found.outputs = outputs
        components: dict[str, OutputChange] = {}
        old, new = self.old.side.components, self.new.side.components
        for name in sorted({*old, *new}):
            one = old.get(name) or ComponentSide(name)
            other = new.get(name) or ComponentSide(name)
            same = bool(one.drv) and one.drv == other.drv
            before, after = one.output, other.output
            if same:  # what one side knows of a recipe, both know, unless they disagree
                before, after = before or after, after or before
            conflict = self._conflict(one.drv) or self._conflict(other.drv)
            components[name] = OutputChange(name, before, after, same, conflict)
        found.component_outputs = components

    def _output(self, name: str, old: str, new: str) -> OutputChange:
        trees = self.old.output(old), self.new.output(new)
        records = self.old.record(old), self.new.record(new)
        grades = tuple(r.isolation.value if r is not None else "" for r in records)
        conflict = self._conflict(old) or self._conflict(new)
        return OutputChange(name, *trees, conflict=conflict, isolation=(grades[0], grades[1]))

    def _conflict(self, drv: str) -> tuple[str, ...]:
        """The different trees that one action is on record with, by either store."""
        trees: set[str] = set()
        for side in (self.old, self.new):
            action = side.action(drv)
            if action is None or side.store is None:
                continue
            rows = {
                tuple(sorted((n, t.hex) for n, t in r.outputs.items()))
                for r in side.store.records(action)
            }
            if len(rows) > 1:
                trees |= {tree for row in rows for _, tree in row}
        return tuple(sorted(trees))

    # -- content and kernels -----------------------------------------------------------------

    def _content(self, found: Comparison) -> None:
        content: dict[str, ContentDiff] = {}
        read = tree_reader(self.old, self.new)
        for name, output in found.component_outputs.items():
            if output.old == output.new:
                continue
            sides = [t for t in (output.old, output.new) if t]
            if found.sources[name].status not in ("added", "dropped") and len(sides) < 2:
                content[name] = ContentDiff(note="files were not compared: not made here")
                continue
            if not all(content_at_hand(t, self.old, self.new) for t in sides):
                content[name] = ContentDiff(note="files were not compared: not in the store")
                continue
            pair = [Digest(t) if t else None for t in (output.old, output.new)]
            self._paths[name] = list(compare_trees(read, pair[0], pair[1]))
            rows = []
            for change in self._paths[name]:
                size = change.new.size if isinstance(change.new, File) else 0
                path = change.path.decode("utf-8", "backslashreplace")
                rows.append((path, change.status, size))
            content[name] = ContentDiff(tuple(rows))
        found.content = content

    def _kernels(self, found: Comparison) -> None:
        if self.kernels is None:
            found.kernels_note = "kernels were not compared: nothing here reads them"
            return
        compared: dict[str, Sequence[ModuleDiff]] = {}
        blind: list[str] = []
        for name, output in found.component_outputs.items():
            if output.old == output.new and output.old:
                continue
            if found.content.get(name) is None or found.content[name].note:
                if output.verdict == "unknown" and found.sources[name].status != "kept":
                    blind.append(name)
                continue
            modules: tuple[dict[str, Module], dict[str, Module]] = ({}, {})
            for change in self._paths[name]:
                path = change.path.decode("utf-8", "backslashreplace")
                for entry, into in zip((change.old, change.new), modules, strict=True):
                    if isinstance(entry, File):
                        self._module(path, entry, into)
            if modules[0] or modules[1]:
                from reprobuild.core.diff.kernels import compare_modules

                compared[name] = compare_modules(*modules)
        if blind and not compared:
            found.kernels_note = "kernels were not compared: not made here: " + ", ".join(blind)
            return
        found.kernels = compared
        if blind:
            found.kernels_note = "not compared, since not made here: " + ", ".join(blind)

    def _touches(self, found: Comparison) -> None:
        """What each head that came, went or moved really reaches."""
        if found.graph is None or self.reads_of is None:
            return
        from reprobuild.core.diff.blast import changed_heads
        from reprobuild.engine.diff_reach import Reach

        reach = Reach((self.old, self.new), found.graph, found.outputs, self.reads_of)
        touches: dict[tuple[str, int], Touch] = {}
        for cause in found.causes:
            if cause.kind == "source" and cause.component in found.files:
                name = cause.component
                heads = [row[0] for row in changed_heads(found.sources[name].heads)]
                rows = reach.touches(cause, found.files[name], heads)
                touches |= {(name, number): touch for number, touch in rows.items()}
        found.touches = touches
        if reach.left_out:
            self._notes.append(f"what {reach.left_out} compiles could read was not looked at")
        units = {key for touch in touches.values() for key in touch.units}
        found.unit_kernels = {key: self._unit(found, key) for key in sorted(units)}

    def _unit(self, found: Comparison, key: str) -> list[ModuleDiff]:
        """The device code of one compile's objects on both sides."""
        from reprobuild.core.diff.kernels import compare_modules

        output = found.outputs.get(key)
        if output is None or output.verdict != "changed":
            return []
        if not all(content_at_hand(t, self.old, self.new) for t in (output.old, output.new)):
            return []
        read = tree_reader(self.old, self.new)
        modules: tuple[dict[str, Module], dict[str, Module]] = ({}, {})
        if self.kernels is not None:
            for change in compare_trees(read, Digest(output.old), Digest(output.new)):
                path = change.path.decode("utf-8", "backslashreplace")
                for entry, into in zip((change.old, change.new), modules, strict=True):
                    if isinstance(entry, File):
                        self._module(path, entry, into)
        return compare_modules(*modules)

    def _module(self, path: str, entry: File, into: dict[str, Module]) -> None:
        assert self.kernels is not None
        try:
            module = self.kernels(path, entry)
        except ReprobuildError as error:
            if not error.code.startswith("E-CUBIN"):
                raise
            self._notes.append(error.message)
            return
        if module is not None:
            into[path] = module

    # -- layers ------------------------------------------------------------------------------

    def _layers(self, found: Comparison) -> None:
        old, new = self.old.side.image, self.new.side.image
        if old is None or new is None:
            return
        if old.layers is None or new.layers is None:
            lacking = [s.side.name for s in (self.old, self.new)
                       if s.side.image is not None and s.side.image.layers is None]  # fmt: skip
            found.layers_note = "layers were not compared: not made here: " + ", ".join(lacking)
            return
        from reprobuild.core.diff.layers import compare_layers

        found.layers = compare_layers(old.layers, new.layers)


def facts_base(before: ComponentSide, after: ComponentSide) -> Base:
    """The base of a component that only one side has."""
    return Base(before.base, after.base, after.ref or before.ref)


def root_pairs(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str]]:
    """What to begin comparing at: the two images, else component by component."""
    if "image" in old and "image" in new:
        return [(old["image"], new["image"])]
    names = sorted({*old, *new} - {"image"})
    both = [n for n in names if n in old and n in new]
    return [(old.get(n, ""), new.get(n, "")) for n in names] if both else []


def failed_checks(document: Mapping[str, Value], kinds: Sequence[str]) -> dict[str, list[str]]:
    """Of the kinds asked for, those that do not hold, with what is behind each."""
    checks = document["checks"]
    assert isinstance(checks, Mapping)
    found: dict[str, list[str]] = {}
    for kind in dict.fromkeys(kinds):
        rows = checks[kind]
        assert isinstance(rows, (list, tuple))
        if rows:
            found[kind] = [str(row) for row in rows]
    return found
