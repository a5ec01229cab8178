"""Records, the memo of which was chosen, and derivation documents."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.faults import damaged, missing
from reprobuild.adapters.store.reading import read_file
from reprobuild.adapters.store.staging import Staging
from reprobuild.adapters.store.trees import Trees
from reprobuild.core.derivation import DERIVATION_DOMAIN, FIXED_DOMAIN
from reprobuild.core.digest import Digest, tagged
from reprobuild.core.record import RECORD_DOMAIN, Record
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


class Records:
    """The catalog's documents by digest."""

    def __init__(self, staging: Staging, trees: Trees) -> None:
        self._staging = staging
        self._trees = trees
        self._layout = staging.layout
        self._home = str(staging.layout.root)

    # -- records -------------------------------------------------------------------------------

    def of_action(self, action: Digest) -> Sequence[Record]:
        """All records of an action, by digest; raises E-STORE-DAMAGED."""
        directory = self._layout.records(action.hex)
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            return ()
        except NotADirectoryError as error:
            reason = "what lies there is no directory of records"
            hint = "move away what is there: it is not the store's"
            raise damaged("action", action.hex, directory, reason, hint) from error
        found = (self._load(action.hex, name) for name in names)
        return tuple(record for record in found if record is not None)

    def _load(self, action_hex: str, name: str) -> Record | None:
        path = self._layout.record(action_hex, name)
        data = read(path, "record", name)
        return None if data is None else parse_record(data, action_hex, name, path)

    def add_all(self, records: Sequence[Record]) -> bool:
        """Appends records, durable on return; whether another of some action says otherwise.

        Raises E-STORE-MISSING for an output tree that is not here: a record never dangles.
        """
        if not records:
            return False
        for record in records:
            for tree in record.outputs.values():
                if not self._trees.contains(tree.hex):
                    raise missing("tree", tree.hex)
        # What was only found present a moment ago has to be as durable as the records.
        self._staging.barrier()
        with durable.writing(self._layout.root, "a record"):
            self._write_all(records)
        return any(self._disputed(record) for record in records)

    def _write_all(self, records: Sequence[Record]) -> None:
        """Bytes first, then names, then what the names stand in."""
        pending: list[tuple[str, str]] = []
        directories: set[str] = set()
        try:
            for record in records:
                directory = self._layout.records(record.action.hex)
                durable.ensure_directory(directory)
                directories |= {directory, f"{self._home}/records"}
                temporary = self._staging.temporary()
                target = self._layout.record(record.action.hex, record.digest.hex)
                pending.append((temporary, target))
                fd = durable.create(temporary)
                try:
                    durable.write(fd, record.encode())
                finally:
                    os.close(fd)
            durable.sync_paths([temporary for temporary, _ in pending], self._staging.root_fd)
            while pending:
                temporary, target = pending[-1]
                if not durable.rename_new(temporary, target):
                    durable.unlink(temporary)
                pending.pop()
        finally:
            for temporary, _ in pending:
                durable.forget(temporary)
        durable.sync_paths(sorted(directories), self._staging.root_fd)

    def _disputed(self, record: Record) -> bool:
        others = os.listdir(self._layout.records(record.action.hex))
        found = [
            self._load(record.action.hex, other) for other in others if other != record.digest.hex
        ]
        return any(o is not None and dict(o.outputs) != dict(record.outputs) for o in found)

    def has(self, reference: tuple[str, str]) -> bool:
        """Whether there is a record of that action and digest."""
        return os.path.exists(self._layout.record(*reference))

    # -- the memo ------------------------------------------------------------------------------

    def chosen(self, drv: Digest) -> Record | None:
        """The record last chosen for a derivation; None when there is no usable memo."""
        try:
            text = read_file(self._layout.chosen(drv.hex), 200)
        except OSError:
            return None  # whatever lies there: it is no memo
        reference = parse_memo(text, drv.hex)
        if reference is None:
            return None
        return self._load(*reference)

    def choose(self, drv: Digest, record: Record) -> None:
        """Remembers a choice. A memo that is lost only costs a look-up, so it is not synced."""
        target = self._layout.chosen(drv.hex)
        name = tagged(RECORD_DOMAIN, record.encode()).hex
        data = f"{record.action.hex}/{name}/{drv.hex}\n".encode()
        try:
            if read_file(target) == data:
                return
        except OSError:
            pass  # absent or damaged: written anew
        with durable.writing(self._layout.root, "a note of the chosen record"):
            durable.ensure_directory(os.path.dirname(target))
            temporary = self._staging.temporary()
            fd = durable.create(temporary)
            try:
                try:
                    durable.write(fd, data)
                finally:
                    os.close(fd)
                durable.rename(temporary, target)
            except IsADirectoryError:
                durable.forget(temporary)  # a stranger's, which `verify` names
            except OSError:
                durable.forget(temporary)
                raise

    # -- derivations ---------------------------------------------------------------------------

    def add_derivations(self, documents: Mapping[Digest, bytes]) -> None:
        """Stores derivation documents, durable on return; E-DERIVATION for a wrong digest."""
        new: list[tuple[str, str]] = []
        shards: set[str] = set()
        with durable.writing(self._layout.root, "derivations"):
            try:
                for drv, data in documents.items():
                    target = self._layout.drv(drv.hex)
                    shards.add(target[: target.rindex("/")])
                    if os.path.lexists(target):
                        continue
                    if not is_derivation(drv, data):
                        raise ReprobuildError(
                            "E-DERIVATION", f"a derivation document has another digest than {drv}"
                        )
                    new.append((self._stage(data), target))
                self._name(new)
                if shards:
                    shards.add(f"{self._home}/drvs")
                durable.sync_paths(sorted(shards), self._staging.root_fd)
            except (OSError, ReprobuildError):
                for temporary, _ in new:
                    durable.forget(temporary)
                raise

    def _name(self, new: Sequence[tuple[str, str]]) -> None:
        durable.sync_paths([temporary for temporary, _ in new], self._staging.root_fd)
        for shard in sorted({target[: target.rindex("/")] for _, target in new}):
            durable.ensure_directory(shard)
        for temporary, target in new:
            if not durable.rename_new(temporary, target):
                durable.unlink(temporary)

    def _stage(self, data: bytes) -> str:
        temporary = self._staging.temporary()
        root_fd = self._staging.root_fd
        assert root_fd >= 0
        fd = durable.create(temporary)
        try:
            durable.write(fd, data)
        except OSError:
            durable.forget(temporary)
            raise
        finally:
            os.close(fd)
        return temporary

    def derivation(self, drv: Digest) -> bytes | None:
        """A stored document, verified."""
        path = self._layout.drv(drv.hex)
        data = read(path, "derivation", drv.hex)
        if data is not None and not is_derivation(drv, data):
            raise damaged("derivation", drv.hex, path, "its content has another digest")
        return data


def read(path: str | Path, kind: str, hex_digest: str) -> bytes | None:
    """A document's bytes, or None when it is not there."""
    try:
        return read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        hint = None
        if error.errno in (errno.EINVAL, errno.EISDIR):
            hint = "move away what is there: it is not the store's"
        raise damaged(kind, hex_digest, path, str(error.strerror), hint) from error


def is_derivation(drv: Digest, data: bytes) -> bool:
    """Whether `data` is the document that `drv` names."""
    domain = FIXED_DOMAIN if data.startswith(b'{"fixed":') else DERIVATION_DOMAIN
    return tagged(domain, data) == drv


def parse_record(data: bytes, action_hex: str, name: str, path: str) -> Record:
    """The verified record of a file; raises E-STORE-DAMAGED."""
    if tagged(RECORD_DOMAIN, data).hex != name:
        raise damaged("record", name, path, "its content has another digest")
    try:
        record = Record.decode(data)
    except ReprobuildError as error:
        raise damaged("record", name, path, error.message) from error
    if record.action.hex != action_hex:
        raise damaged("record", name, path, "it lies under another action")
    return record


def parse_memo(text: bytes, drv_hex: str) -> tuple[str, str] | None:
    """(action, record) out of the bytes of the memo of a derivation; None for what is none of it:
    also one that lay under another name, and one of a release that did not say whose it is."""
    reference, _, drv = text.removesuffix(b"\n").rpartition(b"/")
    return parse_reference(reference) if drv == drv_hex.encode() else None


def parse_reference(text: bytes) -> tuple[str, str] | None:
    """(action, record) out of `<action>/<record>`."""
    try:
        action, _, record = text.decode("ascii").partition("/")
        return Digest.parse(action).hex, Digest.parse(record).hex
    except (UnicodeDecodeError, ReprobuildError):
        return None
