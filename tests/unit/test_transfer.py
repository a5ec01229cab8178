"""Export and import over real stores: whole, in part, interrupted, forged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.bundle import format as layout
from reprobuild.core.bundle.format import Entry
from reprobuild.core.bundle.inventory import QR_BYTES, Inventory
from reprobuild.core.derivation import Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.record import Record
from reprobuild.engine.inventory import MEMO, known_closures, take_stock, what_is_held
from reprobuild.engine.transfer import Shipment
from reprobuild.engine.transfer_import import root_name
from reprobuild.errors import ReprobuildError
from support.bundles import RESULT, Release, TestSigner, bring, forged, make_release, write


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    made = make_release(tmp_path / "origin")
    yield made
    made.store.close()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore.open(tmp_path / "empty", create=True) as store:
        yield store


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PIECE", 400)


def remember(release: Release, shipment: Shipment) -> None:
    """What `export` leaves in the store that it was made from."""
    closure = shipment.manifest.keep.content
    nothing: Value = {"drvs": [], "records": [], "trees": []}
    document: Value = {"closure": closure.document(), "keep": nothing}
    release.store.set_root(MEMO + closure.digest.short, encode(document))


def test_everything_arrives(release: Release, empty: LocalStore, tmp_path: Path) -> None:
    written = release.export(tmp_path / "b")
    done = bring(tmp_path / "b", empty)
    assert done.bundle == written.digest
    assert done.added == {"blobs": 9, "trees": 10, "derivations": 4, "records": 3}
    for tree in (release.trees[0], release.trees[1], release.trees[3], release.project):
        assert empty.contains(tree)
    assert not empty.contains(release.trees[2])  # a step in between is expected, not carried
    assert empty.realized(release.target.drv) == release.store.realized(release.target.drv)
    assert empty.verify().problems == []
    assert empty.contains(release.trees[3])


def test_importing_again_adds_nothing(release: Release, empty: LocalStore, tmp_path: Path) -> None:
    release.export(tmp_path / "b")
    bring(tmp_path / "b", empty)
    again = bring(tmp_path / "b", empty)
    assert again.added == {}
    assert again.present > 0


def test_the_same_content_gives_the_same_bytes(release: Release, tmp_path: Path) -> None:
    other = make_release(tmp_path / "other", order=-1)
    release.export(tmp_path / "one")
    other.export(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    signed = [release.export(tmp_path / n, signer=TestSigner()) for n in ("three", "four")]
    assert signed[0] == signed[1]
    assert (tmp_path / "three").read_bytes() == (tmp_path / "four").read_bytes()


def test_without_sources_only_the_result_goes(
    release: Release, empty: LocalStore, tmp_path: Path
) -> None:
    release.export(tmp_path / "b", sources=False)
    bring(tmp_path / "b", empty)
    assert empty.contains(release.trees[3])
    assert not empty.contains(release.trees[0])
    assert not empty.contains(release.trees[1])


def test_one_object_is_read_without_the_rest(
    release: Release, tmp_path: Path, small_pieces: None
) -> None:
    release.export(tmp_path / "b")
    shipment = release.plan()
    data = bytearray((tmp_path / "b").read_bytes())
    with BundleReader(tmp_path / "b") as bundle:
        assert len(bundle.index.pieces) > 5
        position = 0
        for entry in bundle.index:
            with shipment.open(entry) as source:
                assert bundle.read(entry) == source.read()
            position += entry.size
        last = list(bundle.index)[-1]
        data[bundle.trailer.head] ^= 1  # the first piece is broken: the last object does not care
    (tmp_path / "c").write_bytes(data)
    with BundleReader(tmp_path / "c") as bundle:
        assert len(bundle.read(last)) == last.size
        with pytest.raises(ReprobuildError, match="piece 1 of") as first:
            bundle.read(next(iter(bundle.index)))
        assert first.value.facts["piece"] == 1


# -- completeness --------------------------------------------------------------------------------


def test_any_object_that_is_left_out_is_named(release: Release, tmp_path: Path) -> None:
    shipment = release.plan()
    assert len(shipment.entries) > 20
    for number, entry in enumerate(shipment.entries):
        entries = [e for e in shipment.entries if e != entry]
        write(tmp_path / "b", shipment, entries=entries)
        with LocalStore.open(tmp_path / f"store{number}", create=True) as store:
            with pytest.raises(ReprobuildError) as caught:
                bring(tmp_path / "b", store)
            assert caught.value.code == "E-BUNDLE-INCOMPLETE", entry
            assert entry.digest.hex in str(caught.value.facts), (entry, caught.value.facts)
            assert store.roots() == []
            assert store.verify().problems == []


def test_a_source_that_is_left_out_everywhere_is_named(
    release: Release, empty: LocalStore, tmp_path: Path
) -> None:
    """Record, tree and every mention of a fetched file are gone; its recipe still asks for it."""
    shipment = release.plan()
    manifest = shipment.manifest
    drv = next(d for d in manifest.chosen if release.graph.nodes[d].name == "inputs.thing:0")
    name = manifest.chosen[drv]
    wheel = release.trees[1]
    keep = replace(
        manifest.keep,
        trees=tuple(t for t in manifest.keep.trees if t != wheel.hex),
        records=tuple(r for r in manifest.keep.records if r != name),
    )
    chosen = {d: n for d, n in manifest.chosen.items() if d != drv}
    thinner = replace(shipment, manifest=replace(manifest, keep=keep, chosen=chosen))
    gone = {wheel, Digest(name.partition("/")[2])}
    write(tmp_path / "b", thinner, entries=[e for e in shipment.entries if e.digest not in gone])
    with pytest.raises(ReprobuildError) as caught:
        bring(tmp_path / "b", empty)
    assert caught.value.code == "E-BUNDLE-INCOMPLETE"
    assert drv.hex in str(caught.value.facts)
    assert "thing-1.whl" in caught.value.message


# -- trust ---------------------------------------------------------------------------------------


def test_nobody_s_records_do_not_count(release: Release, empty: LocalStore, tmp_path: Path) -> None:
    release.export(tmp_path / "b")
    done = bring(tmp_path / "b", empty, trusted=False)
    assert done.left_out == ["a.result"]
    assert empty.realized(release.target.drv) is None
    assert empty.contains(release.trees[3])
    empty.gc()  # the root says nothing that is not here
    # what proves itself counts: the file has the digest that its recipe names
    wheel = next(d for d, n in release.graph.nodes.items() if n.name == "inputs.thing:0")
    assert empty.realized(wheel) is not None


def test_a_record_that_promises_another_file_is_found(
    release: Release, empty: LocalStore, tmp_path: Path
) -> None:
    shipment = release.plan()
    old = next(
        r
        for d in shipment.manifest.chosen
        if (r := release.store.realized(d)) is not None and r.name == "inputs.thing:0"
    )
    bad = replace(old, outputs={"out": release.trees[3]})
    _swap_record(release, shipment, old, bad, tmp_path / "b")
    with pytest.raises(ReprobuildError, match="other content than its recipe promises"):
        bring(tmp_path / "b", empty)
    assert empty.roots() == []
    assert empty.records(bad.action) == ()


def test_a_weaker_record_of_a_build_does_not_pass_unsigned(
    release: Release, empty: LocalStore, tmp_path: Path
) -> None:
    shipment = release.plan()
    old = release.store.realized(release.target.drv)
    assert old is not None
    _swap_record(release, shipment, old, replace(old, isolation=Isolation.NONE), tmp_path / "b")
    done = bring(tmp_path / "b", empty, trusted=False)
    assert done.left_out == ["a.result"]
    assert empty.records(old.action) == ()


def _swap_record(
    release: Release, shipment: Shipment, old: Record, new: Record, path: Path
) -> None:
    """A bundle that is consistent in itself and has another record for one recipe."""
    name = f"{new.action.hex}/{new.digest.hex}"
    before = f"{old.action.hex}/{old.digest.hex}"
    manifest = shipment.manifest
    records = tuple(sorted(name if r == before else r for r in manifest.keep.records))
    swapped = replace(
        manifest,
        keep=replace(manifest.keep, records=records),
        chosen={d: name if n == before else n for d, n in manifest.chosen.items()},
        outputs={
            n: replace(w, record=name) if w.record == before else w
            for n, w in manifest.outputs.items()
        },
    )
    data = new.encode()
    entry = Entry(layout.RECORD, new.digest, len(data))
    entries = [entry if e.digest == old.digest else e for e in shipment.entries]
    open_ = forged(entry, data, shipment)
    write(path, replace(shipment, manifest=swapped), entries=entries, open_=open_)


# -- differences ---------------------------------------------------------------------------------


def test_a_delta_sends_what_changed(release: Release, empty: LocalStore, tmp_path: Path) -> None:
    shipment = release.plan()
    write(tmp_path / "full", shipment)
    remember(release, shipment)
    bring(tmp_path / "full", empty)
    closures, trees = take_stock(empty)
    assert shipment.manifest.keep.content.digest in closures
    assert trees == ()

    newer = make_release(tmp_path / "origin", result={**RESULT, "share/doc": b"another text\n"})
    delta = newer.plan(held=what_is_held(newer.store, closures, trees))
    assert delta.size < delta.full_size / 4
    assert delta.manifest.requires.closures == (shipment.manifest.keep.content.digest,)
    write(tmp_path / "delta", delta)
    done = bring(tmp_path / "delta", empty)
    assert done.added["blobs"] == 1
    assert empty.contains(newer.trees[3])
    assert empty.realized(newer.target.drv) == newer.store.realized(newer.target.drv)

    with LocalStore.open(tmp_path / "bare", create=True) as bare:
        with pytest.raises(ReprobuildError) as caught:
            bring(tmp_path / "delta", bare)
        assert caught.value.code == "E-BUNDLE-BASE"
        assert str(shipment.manifest.keep.content.digest) in str(caught.value.facts["needs"])
        assert bare.info().kinds["blobs"].count == 0
    newer.store.close()


def test_an_unknown_closure_counts_as_absent(release: Release) -> None:
    held = what_is_held(release.store, [Digest.of(b"never heard of")], [Digest.of(b"nor this")])
    assert held.trees == frozenset()
    plan = release.plan(held=held)
    assert plan.size == plan.full_size
    assert plan.manifest.requires.closures == ()


def test_a_closure_with_a_hole_is_not_claimed(
    release: Release, empty: LocalStore, tmp_path: Path
) -> None:
    release.export(tmp_path / "b")
    bring(tmp_path / "b", empty)
    assert len(known_closures(empty)) == 1
    hole = release.trees[3].hex
    (empty.path / "trees" / hole[:2] / hole).unlink()
    assert known_closures(empty) == {}
    closures, trees = take_stock(empty)
    assert closures == ()
    assert release.trees[3] not in trees
    assert release.trees[0] in trees


def test_a_store_of_one_release_fits_into_a_qr_code(
    release: Release, empty: LocalStore, tmp_path: Path
) -> None:
    release.export(tmp_path / "b")
    bring(tmp_path / "b", empty)
    closures, trees = take_stock(empty)
    data = Inventory(bytes(16), 1, closures, trees).signed(TestSigner()).encode()
    assert len(data) < 250 < QR_BYTES


# -- interruptions -------------------------------------------------------------------------------


def test_an_export_goes_on_where_it_stopped(
    release: Release, tmp_path: Path, small_pieces: None
) -> None:
    shipment = release.plan()
    fresh = write(tmp_path / "fresh", shipment)
    for stop in (1, 7, -1):

        def broken(entry: Entry, last: Entry = shipment.entries[stop]) -> BinaryIO:
            if entry == last:
                raise KeyboardInterrupt
            return shipment.open(entry)

        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "b", shipment, open_=broken)
        assert not (tmp_path / "b").exists()
    done = write(tmp_path / "b", shipment)
    assert done.resumed > 0
    assert done.digest == fresh.digest
    assert (tmp_path / "b").read_bytes() == (tmp_path / "fresh").read_bytes()
    assert {p.name for p in tmp_path.iterdir() if p.name.startswith(".")} == set()


def test_a_cut_export_of_something_else_starts_over(
    release: Release, tmp_path: Path, small_pieces: None
) -> None:
    shipment = release.plan(sources=False)
    (tmp_path / ".b.partial").write_bytes(b"garbage" * 1000)
    (tmp_path / ".b.journal").write_bytes(b"other garbage" * 100)
    done = write(tmp_path / "b", shipment)
    assert done.resumed == 0
    write(tmp_path / "fresh", shipment)
    assert (tmp_path / "b").read_bytes() == (tmp_path / "fresh").read_bytes()


def test_damage_in_a_cut_export_is_not_kept(
    release: Release, tmp_path: Path, small_pieces: None
) -> None:
    shipment = release.plan()
    write(tmp_path / "fresh", shipment)
    calls = iter(range(100))

    def broken(entry: Entry) -> BinaryIO:
        if next(calls) == 8:
            raise KeyboardInterrupt
        return shipment.open(entry)

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "b", shipment, open_=broken)
    partial = tmp_path / ".b.partial"
    data = bytearray(partial.read_bytes())
    data[-1] ^= 0x40
    partial.write_bytes(data)
    write(tmp_path / "b", shipment)
    assert (tmp_path / "b").read_bytes() == (tmp_path / "fresh").read_bytes()


def test_an_import_goes_on_where_it_stopped(
    release: Release, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprobuild.engine.transfer_import.BATCH_BYTES", 3000)
    release.export(tmp_path / "b")
    random_ = random.Random(7)
    for trial in range(6):
        place = tmp_path / f"store{trial}"
        with LocalStore.open(place, create=True) as store:
            left = random_.randrange(1, 9)
            real = store.add_blob

            def failing(source: BinaryIO, *, executable: bool = False, size: int = -1,
                        real: object = real) -> object:  # fmt: skip
                nonlocal left
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
                return real(source, executable=executable, size=size)  # type: ignore[operator]

            monkeypatch.setattr(store, "add_blob", failing)
            with pytest.raises(KeyboardInterrupt):
                bring(tmp_path / "b", store)
            assert store.roots() == []
        with LocalStore.open(place) as store:
            assert store.verify().problems == []
            bring(tmp_path / "b", store)
            assert store.contains(release.trees[3])
            assert len(store.roots()) == 1


def test_damage_met_on_the_way_out_is_reported(release: Release, tmp_path: Path) -> None:
    store = release.store
    victim = next(p for p in (store.path / "blobs").rglob("*") if p.is_file() and p.stat().st_size)
    victim.chmod(0o644)
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    with pytest.raises(ReprobuildError) as caught:
        release.export(tmp_path / "b")
    assert caught.value.code == "E-STORE-DAMAGED"
    assert not (tmp_path / "b").exists()


def test_what_was_not_made_is_not_exported(release: Release, tmp_path: Path) -> None:
    store = release.store
    chosen = store.path / "chosen" / release.target.drv.hex[:2] / release.target.drv.hex
    chosen.unlink()
    with pytest.raises(ReprobuildError) as caught:
        release.plan()
    assert caught.value.code == "E-NOT-REALIZED"
    assert "demo" in caught.value.message


def test_the_root_keeps_what_came(release: Release, empty: LocalStore, tmp_path: Path) -> None:
    written = release.export(tmp_path / "b")
    bring(tmp_path / "b", empty)
    assert empty.root(root_name(written.digest)) is not None
    before = empty.info().kinds["blobs"].count
    empty.gc()
    assert empty.info().kinds["blobs"].count == before
