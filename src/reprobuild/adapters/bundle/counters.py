"""Numbers that only grow, so that what is old is not taken for new; no clock is needed.

Kept in roots that keep nothing else: `inventory=counter` (this store's name, its inventories, its
bundles), `inventory=seen-STORE` and `bundle=seen-…` (what was used here before).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.bundle.inventory import Inventory
from reprobuild.core.bundle.signing import INVENTORY, Signature, Stamp, message
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, decode, encode
from reprobuild.errors import ReprobuildError

OWN = "inventory=counter"
_REMEMBERED = 1000
"""Bundles whose numbers are kept: the same content exported again gives the same bytes."""


def _read(store: LocalStore, name: str) -> dict[str, Value]:
    data = store.root(name)
    found = decode(data) if data is not None else None
    return found if isinstance(found, dict) else {}


def _write(store: LocalStore, name: str, state: Mapping[str, Value]) -> None:
    keep: Value = {"drvs": [], "records": [], "trees": []}
    store.set_root(name, encode({**state, "keep": keep}))


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _own(store: LocalStore) -> dict[str, Value]:
    state = _read(store, OWN)
    return {**state, "store": str(state.get("store") or secrets.token_hex(16))}


def next_inventory(store: LocalStore) -> tuple[bytes, int]:
    """(16 bytes that name this store, a number above all before)."""
    state = _own(store)
    number = _number(state.get("counter", 0)) + 1
    _write(store, OWN, {**state, "counter": number})
    return bytes.fromhex(str(state["store"])), number


def stamp(store: LocalStore, bundle: Digest) -> Stamp:
    """The stamp of a bundle: the one that it got before, else one above all others."""
    state = _own(store)
    known = state.get("bundles")
    numbers = {k: _number(v) for k, v in known.items()} if isinstance(known, dict) else {}
    if bundle.hex not in numbers:
        numbers[bundle.hex] = max(numbers.values(), default=0) + 1
        newest = sorted(numbers, key=numbers.__getitem__)[-_REMEMBERED:]
        _write(store, OWN, {**state, "bundles": {k: numbers[k] for k in newest}})
    return Stamp(bytes.fromhex(str(state["store"])), numbers[bundle.hex])


def _seen(signature: Signature, outputs: Iterable[str]) -> str:
    """The root for what one key signed of one store's installables."""
    assert signature.stamp is not None
    names = "\0".join(sorted(outputs)).encode()
    return f"bundle=seen-{Digest.of(signature.key + signature.stamp.store + names).short}"


def check_age(store: LocalStore, signature: Signature, outputs: Iterable[str]) -> None:
    """Raises E-BUNDLE-OLD where a later bundle of the same maker and installables was imported."""
    if signature.stamp is None:
        return
    newest = _number(_read(store, _seen(signature, outputs)).get("serial", 0))
    if signature.stamp.serial < newest:
        raise ReprobuildError(
            "E-BUNDLE-OLD",
            f"this is bundle {signature.stamp.serial} of its maker, whose number {newest} was "
            "imported",
            serial=signature.stamp.serial,
            seen=newest,
        )


def note_age(store: LocalStore, signature: Signature, outputs: Iterable[str]) -> None:
    """Remembers the number of a bundle that was imported."""
    if signature.stamp is None:
        return
    name = _seen(signature, outputs)
    if signature.stamp.serial > _number(_read(store, name).get("serial", 0)):
        _write(store, name, {"serial": signature.stamp.serial})


def check_inventory(
    store: LocalStore, found: Inventory, signed_by: Callable[[bytes, bytes, bytes], bool]
) -> None:
    """Refuses an inventory older than one of the same store that was used before.

    A store that once signed its inventories has to go on with the same key. Raises
    E-INVENTORY-REPLAY, E-BUNDLE.
    """
    signature = found.signature
    if signature is not None and not signed_by(
        signature.key, message(INVENTORY, found.digest), signature.value
    ):
        raise ReprobuildError("E-BUNDLE", "the inventory's signature does not hold")
    key = signature.key.hex() if signature is not None else ""
    name = f"inventory=seen-{found.store.hex()}"
    before = _read(store, name)
    counter, known = _number(before.get("counter", 0)), str(before.get("key", ""))
    if found.counter < counter:
        raise ReprobuildError(
            "E-INVENTORY-REPLAY",
            f"this is inventory {found.counter} of a store whose number {counter} was used",
            counter=found.counter,
            seen=counter,
        )
    if known and known != key:
        raise ReprobuildError(
            "E-INVENTORY-REPLAY",
            "the store's earlier inventories were signed by another key",
            expected=known,
            got=key or "no key",
        )
    _write(store, name, {"counter": found.counter, "key": key})
