"""import: a bundle's objects into a store – verified, resumable, visible only when complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from reprobuild.core.bundle import format as layout
from reprobuild.core.bundle.format import Entry
from reprobuild.core.bundle.manifest import SOURCES, Manifest, parse_manifest
from reprobuild.core.derivation import DERIVATION_DOMAIN, FIXED_DOMAIN
from reprobuild.core.digest import Digest, tagged
from reprobuild.core.encoding import Value, decode, encode
from reprobuild.core.record import RECORD_DOMAIN, Record
from reprobuild.core.tree import DOMAIN, Directory, File, Tree
from reprobuild.core.tree import decode as decode_tree
from reprobuild.engine.inventory import IMPORT, known_closures
from reprobuild.engine.transfer import reference
from reprobuild.engine.transferport import OpenBundle, TransferStore
from reprobuild.errors import ReprobuildError

BATCH_BYTES = 512 * 2**20
"""After so many new bytes everything so far is made durable, so that a rerun finds it."""

BATCH_NODES = 4000
MAX_NODE = 256 * 2**20
SLACK = 64 * 2**20


@dataclass(slots=True)
class Imported:
    """What an import did. Bytes are of content."""

    bundle: Digest
    manifest: Manifest
    added: dict[str, int] = field(default_factory=dict)
    bytes_added: int = 0
    present: int = 0
    left_out: list[str] = field(default_factory=list)
    """Names of records that do not count, because nobody trusted vouches for them."""

    def counts(self) -> dict[str, Value]:
        """For `--json`."""
        return {
            "added": dict(self.added),
            "bytes_added": self.bytes_added,
            "present": self.present,
            "records_left_out": len(self.left_out),
        }


def root_name(bundle: Digest) -> str:
    """The root that keeps what a bundle brought."""
    return f"{IMPORT}{bundle.short}"


@dataclass(slots=True)
class Importer:
    """Brings one bundle into one store. The caller holds the lease."""

    store: TransferStore
    progress: Callable[[int, int], None] = lambda done, total: None
    _tables: dict[bytes, dict[Digest, bytes]] = field(default_factory=dict)
    _done: int = 0
    _since: int = 0

    def run(self, bundle: OpenBundle, *, trusted: bool, keep: bool = True) -> Imported:
        """Imports everything; `trusted` says that a trusted key signed the bundle. Without `keep`
        no root is written: the caller refers to what came in.

        Raises E-BUNDLE (damage), E-BUNDLE-INCOMPLETE (naming the object), E-BUNDLE-BASE (a delta
        whose base is not here), E-DISK-SPACE, and the store's own errors. Until the last step,
        which writes the root, nothing refers to what came in: a rerun finds it and goes on.
        """
        manifest = parse_manifest(bundle.index.manifest)
        result = Imported(bundle.digest, manifest)
        self._check_base(manifest)
        wanted, missing = self._missing(bundle, result)
        self.store.require_space(missing + SLACK)
        self._tables = {layout.DRV: {}, layout.RECORD: {}}
        self._take(bundle, wanted, missing, result)
        records = self._records(result)
        self._complete(manifest, records)
        self.store.barrier()
        for record in records.values():
            if not trusted and not self._self_evident(record):
                result.left_out.append(record.name)
                continue
            self._verify_fixed(record)
            before = {r.digest for r in self.store.records(record.action)}
            self.store.add_record(record)
            if record.digest not in before:
                self._count(result, "records")
        self._choose(manifest, records, set(result.left_out))
        if keep:
            self._keep(bundle, manifest, result)
        return result

    # -- before anything is read ----------------------------------------------------------------

    def _check_base(self, manifest: Manifest) -> None:
        here = known_closures(self.store)
        absent = [str(d) for d in manifest.requires.closures if d not in here]
        absent += [str(d) for d in manifest.requires.trees if not self.store.contains(d)]
        if absent:
            raise ReprobuildError(
                "E-BUNDLE-BASE",
                "the bundle is the difference to something that is not in this store",
                needs=absent,
            )

    def _missing(self, bundle: OpenBundle, result: Imported) -> tuple[list[bool], int]:
        """Which objects are to be read, and their bytes."""
        wanted: list[bool] = []
        total = 0
        for kind, raw, size in bundle.index.rows():
            digest = Digest(raw.hex())
            if kind in (layout.BLOB, layout.EXECUTABLE):
                here = self.store.has_blob(File(digest, size, kind == layout.EXECUTABLE))
            elif kind == layout.TREE:
                here = self.store.contains(digest)
                if size > MAX_NODE:
                    raise ReprobuildError(
                        "E-BUNDLE-LIMIT", f"the tree {digest} says that it has {size} bytes"
                    )
            else:
                here = False
                if size > MAX_NODE:
                    raise ReprobuildError(
                        "E-BUNDLE-LIMIT", f"the document {digest} says that it has {size} bytes"
                    )
            wanted.append(not here)
            result.present += here
            total += 0 if here else size
        return wanted, total

    # -- reading --------------------------------------------------------------------------------

    def _take(self, bundle: OpenBundle, wanted: list[bool], total: int, result: Imported) -> None:
        nodes: dict[Digest, Tree] = {}
        size = 0
        for entry, source in bundle.entries(wanted):
            if entry.kind in (layout.BLOB, layout.EXECUTABLE):
                self._blob(entry, source, result)
            else:
                data = _whole(entry, source)
                if entry.kind == layout.TREE:
                    nodes[entry.digest] = _node(entry, data)
                    size += entry.size
                    self._count(result, "trees", entry.size)
                else:
                    self._document(entry, data)
            if len(nodes) >= BATCH_NODES or size > BATCH_BYTES // 8:
                self._add_trees(nodes)
                nodes, size = {}, 0
            self._done += entry.size
            self.progress(self._done, total)
        self._add_trees(nodes)
        drvs = self._tables[layout.DRV]
        before = {d for d in drvs if self.store.derivation(d) is not None}
        self.store.add_derivations({d: text for d, text in drvs.items() if d not in before})
        result.present += len(before)
        for drv in drvs:
            if drv not in before:
                self._count(result, "derivations", len(drvs[drv]))

    def _blob(self, entry: Entry, source: BinaryIO, result: Imported) -> None:
        executable = entry.kind == layout.EXECUTABLE
        try:
            added = self.store.add_blob(source, executable=executable, size=entry.size)
        except ReprobuildError as error:
            if error.code != "E-CONTENT-SIZE":
                raise
            raise layout.off(f"the {entry} is cut short") from error
        if added.digest != entry.digest:
            raise layout.off(
                f"the {entry} has another content: {added.digest}",
                expected=str(entry.digest),
                got=str(added.digest),
            )
        self._count(result, "blobs", entry.size)
        self._since += entry.size
        if self._since >= BATCH_BYTES:
            self.store.barrier()
            self._since = 0

    def _add_trees(self, nodes: Mapping[Digest, Tree]) -> None:
        try:
            self.store.add_trees(nodes)
        except ReprobuildError as error:
            if error.code != "E-STORE-MISSING":
                raise
            lacking = ReprobuildError(
                "E-BUNDLE-INCOMPLETE", f"the bundle lacks something: {error.message}"
            )
            lacking.facts.update(error.facts)
            raise lacking from error

    def _document(self, entry: Entry, data: bytes) -> None:
        if entry.kind == layout.DRV:
            domain = FIXED_DOMAIN if data.startswith(b'{"fixed":') else DERIVATION_DOMAIN
        else:
            domain = RECORD_DOMAIN
        if tagged(domain, data) != entry.digest:
            raise layout.off(f"the {entry} has another content")
        self._tables[entry.kind][entry.digest] = data

    @staticmethod
    def _count(result: Imported, what: str, size: int = 0) -> None:
        result.added[what] = result.added.get(what, 0) + 1
        result.bytes_added += size

    # -- completeness ---------------------------------------------------------------------------

    def _records(self, result: Imported) -> dict[str, Record]:
        records: dict[str, Record] = {}
        for digest, data in self._tables[layout.RECORD].items():
            try:
                record = Record.decode(data)
            except ReprobuildError as error:
                raise layout.off(f"the record {digest} is off: {error.message}") from error
            if reference(record) not in result.manifest.keep.records:
                raise layout.off(f"the record {digest} is not among those that the bundle keeps")
            records[reference(record)] = record
        return records

    def _complete(self, manifest: Manifest, records: Mapping[str, Record]) -> None:
        """Everything that the manifest names is here, and all that a rebuild needs."""
        for tree in manifest.keep.trees:
            if not self.store.contains(Digest(tree)):
                raise _lacks("tree", tree)
        for drv in manifest.keep.drvs:
            if self.store.derivation(Digest(drv)) is None:
                raise _lacks("derivation", drv)
        for name in manifest.keep.records:
            if name not in records and not self._on_record(name):
                raise _lacks("record", name.partition("/")[2])
        for record in records.values():
            for tree_digest in record.outputs.values():
                if not self.store.contains(tree_digest):
                    raise _lacks("tree", tree_digest.hex, record.name)
        kept = set(manifest.keep.trees)
        for name, wanted in manifest.outputs.items():
            if wanted.tree.hex not in kept or wanted.record not in manifest.keep.records:
                raise layout.off(f"the bundle does not keep what it says {name} is")
        for extra in (*manifest.git.values(), *([manifest.project] if manifest.project else [])):
            if extra.hex not in kept:
                raise layout.off(f"the bundle does not keep the tree {extra} that it names")
        if manifest.kind == SOURCES:
            self._buildable(manifest)

    def _on_record(self, name: str) -> bool:
        action, _, record = name.partition("/")
        return any(r.digest.hex == record for r in self.store.records(Digest(action)))

    def _buildable(self, manifest: Manifest) -> None:
        """Every recipe below the outputs is here, and every fetched input or what makes it."""
        stack = [wanted.drv for wanted in manifest.outputs.values()]
        seen: set[Digest] = set()
        while stack:
            drv = stack.pop()
            if drv in seen:
                continue
            seen.add(drv)
            data = self.store.derivation(drv)
            if data is None:
                raise _lacks("derivation", drv.hex)
            document = decode(data)
            assert isinstance(document, dict)
            fixed = document.get("fixed")
            if isinstance(fixed, dict):
                self._source(manifest, drv, fixed)
            inputs = document.get("inputs")
            for row in inputs.values() if isinstance(inputs, dict) else ():
                stack.append(Digest.parse(str(cast("dict[str, Value]", row)["drv"])))

    def _source(self, manifest: Manifest, drv: Digest, fixed: Mapping[str, Value]) -> None:
        if fixed.get("kind") == "git-tree":
            return  # integrated anew, from the project's fixtures or the packs of `git`
        if fixed.get("kind") == "tree":
            here = self.store.contains(Digest.parse(str(fixed.get("tree"))))
        else:
            here = drv in manifest.chosen
        if not here:
            raise _lacks("source of", drv.hex, str(fixed.get("filename") or fixed.get("kind")))

    # -- records --------------------------------------------------------------------------------

    def _fixed(self, record: Record) -> Mapping[str, Value] | None:
        data = self.store.derivation(record.drv)
        document = decode(data) if data is not None else None
        fixed = document.get("fixed") if isinstance(document, dict) else None
        return fixed if isinstance(fixed, dict) else None

    def _self_evident(self, record: Record) -> bool:
        """Whether the record's content proves itself: a file or an image by its own digests."""
        fixed = self._fixed(record)
        return fixed is not None and fixed.get("kind") in ("file", "oci-image", "tree")

    def _verify_fixed(self, record: Record) -> None:
        """A fetched input is what its recipe promises, whoever says so; raises E-BUNDLE."""
        fixed = self._fixed(record)
        if fixed is None:
            return
        out = record.outputs.get("out")
        kind = fixed.get("kind")
        good = out is not None and len(record.outputs) == 1
        if good and out is not None and kind == "file":
            good = self._holds_file(out, str(fixed.get("filename")), str(fixed.get("sha256")))
        elif good and out is not None and kind == "oci-image":
            good = self._holds_image(out, str(fixed.get("sha256")))
        elif good and out is not None and kind == "tree":
            good = out.hex == fixed.get("tree")
        if not good:
            raise layout.off(
                f"the record of {record.name} gives other content than its recipe promises",
                drv=str(record.drv),
                record=str(record.digest),
            )

    def _holds_file(self, tree: Digest, filename: str, sha256: str) -> bool:
        entries = self.store.tree(tree).entries
        if len(entries) != 1 or entries[0][0] != filename.encode():
            return False
        entry = entries[0][1]
        return isinstance(entry, File) and self._sha256(entry.digest) == sha256

    def _holds_image(self, tree: Digest, manifest: str) -> bool:
        """Every blob of the layout has the digest that names it, and the manifest is there."""
        names = dict(self._files(tree, b""))
        blobs = {n: d for n, d in names.items() if n.startswith(b"blobs/sha256/")}
        return f"blobs/sha256/{manifest}".encode() in blobs and all(
            self._sha256(digest).encode() == name.rpartition(b"/")[2]
            for name, digest in blobs.items()
        )

    def _files(self, tree: Digest, prefix: bytes) -> Iterator[tuple[bytes, Digest]]:
        for name, entry in self.store.tree(tree):
            if isinstance(entry, File):
                yield prefix + name, entry.digest
            elif isinstance(entry, Directory):
                yield from self._files(entry.digest, prefix + name + b"/")

    def _sha256(self, blob: Digest) -> str:
        hasher = hashlib.sha256()
        with self.store.open_blob(blob) as source:
            while chunk := source.read(2**20):
                hasher.update(chunk)
        return hasher.hexdigest()

    # -- the end --------------------------------------------------------------------------------

    def _choose(
        self, manifest: Manifest, records: Mapping[str, Record], left_out: set[str]
    ) -> None:
        for drv, name in manifest.chosen.items():
            record = records.get(name)
            if record is not None and record.name not in left_out and record.drv == drv:
                self.store.choose(drv, record)

    def _keep(self, bundle: OpenBundle, manifest: Manifest, result: Imported) -> None:
        keep = manifest.keep.document()
        if result.left_out:
            kept = [n for n in manifest.keep.records if self._on_record(n)]
            keep = {**keep, "records": kept}
        document: dict[str, Value] = {
            "bundle": bundle.digest.hex,
            "keep": keep,
            "manifest": manifest.document(),
        }
        self.store.set_root(root_name(bundle.digest), encode(document))


def _lacks(kind: str, hex_digest: str, name: str = "") -> ReprobuildError:
    of = f" ({name})" if name else ""
    return ReprobuildError(
        "E-BUNDLE-INCOMPLETE",
        f"the bundle lacks the {kind} blake3:{hex_digest}{of}, and the store does not have it",
        object=f"{kind} {hex_digest}",
    )


def _whole(entry: Entry, source: BinaryIO) -> bytes:
    data = source.read()
    if len(data) != entry.size:
        raise layout.off(f"the {entry} is cut short")
    return data


def _node(entry: Entry, data: bytes) -> Tree:
    if tagged(DOMAIN, data) != entry.digest:
        raise layout.off(f"the {entry} has another content")
    try:
        return decode_tree(data)
    except ReprobuildError as error:
        raise layout.off(f"the {entry} breaks the format: {error.message}") from error
