"""The table of all device code in a tree, its memo, and names for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.cubin.demangle import MAX_NAME, demangle
from reprobuild.adapters.cubin.inflate import inflate
from reprobuild.core.cubin.module import read_module
from reprobuild.core.cubin.table import decode, encode, kernel_table
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from support.cubins import ElfFile, K, cubin, fatbin, library, member
from support.trees import Given, make

ONE = library(fatbin(member(cubin(K("_Z1av", shared=1024, max_threads=(64, 1, 1))))))
TWO = library(fatbin(member(cubin(K("_Z1bv"), arch=90), 90)))


class Memo:
    def __init__(self) -> None:
        self.known: dict[Digest, bytes] = {}

    def get(self, blob: Digest) -> bytes | None:
        return self.known.get(blob)

    def put(self, scans: Mapping[Digest, bytes]) -> None:
        self.known.update(scans)


def test_every_file_that_holds_device_code_whatever_it_is_called(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    files: dict[str, Given] = {
        "lib/one.so": ONE,
        "lib/again": ONE,
        "two.bin": TWO,
        "link.so": "two.bin",
        "host.so": library(),
        "text.cu": b"text" * 40,
        "small": b"",
    }
    table = kernel_table(store, make(store, files), inflate)
    assert list(table) == ["lib/again", "lib/one.so", "two.bin"]
    assert table["lib/one.so"].archs == ("sm_120a",)
    assert table["two.bin"].kernels[0].arch == "sm_90a"


def test_a_blob_is_read_once(tmp_path: Path) -> None:
    store, memo = MemoryStore(tmp_path), Memo()
    tree = make(store, {"a.so": ONE, "host.so": library()})
    first = kernel_table(store, tree, inflate, memo)
    assert len(memo.known) == 2  # what holds nothing is remembered, too
    for digest in memo.known:
        store.blobs[digest] = b"not read again"
    assert kernel_table(store, tree, inflate, memo) == first


def test_the_remembered_form_says_everything() -> None:
    for data in (ONE, TWO):
        module = read_module(data, inflate)
        assert decode(encode(module)) == module
    assert decode(encode(None)) is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    tree = make(store, {"deep/broken.so": library(b"garbage, no container")})
    with pytest.raises(ReprobuildError) as error:
        kernel_table(store, tree, inflate)
    assert (error.value.code, error.value.facts["file"]) == ("E-CUBIN", "deep/broken.so")


def test_other_machines_files_are_not_looked_into(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    tree = make(store, {"mips.so": ElfFile(machine=8).data()[:64]})
    assert kernel_table(store, tree, inflate) == {}


# -- names -------------------------------------------------------------------------------------


def test_names_for_people() -> None:
    names = ["_Z5scaleIfEvPT_i", "plain_c_name", "_Znot a name", ""]
    assert demangle(names) == {
        "_Z5scaleIfEvPT_i": "void scale<float>(float*, int)",
        "plain_c_name": "plain_c_name",
        "_Znot a name": "_Znot a name",
        "": "",
    }


def test_a_name_with_line_ends_stays_one_name() -> None:
    odd = "_Z1fv\n_Z1gv"
    assert demangle([odd, "_Z1hv"]) == {odd: odd, "_Z1hv": "h()"}


def bomb(length: int) -> str:
    """Each parameter is a function of two of the one before: text that doubles with each."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    before = ["S_", *(f"S{digit}_" for digit in digits)]
    return "_Z1fFvvE" + "".join(f"Fv{s}{s}E" for s in before[:length])


def test_a_name_that_kills_the_demangler_costs_only_itself() -> None:
    assert demangle([bomb(1)])[bomb(1)] == "f(void (), void (void (), void ()))"
    deep = "_Z1f" + "F" * (MAX_NAME - 10)
    found = demangle(["_Z1av", bomb(30), deep, "_Z1bv"])
    assert found == {"_Z1av": "a()", bomb(30): bomb(30), deep: deep, "_Z1bv": "b()"}


@pytest.mark.parametrize("python", ["absent", "bare"])
def test_names_are_not_left_as_they_are_for_want_of_a_library(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is required of kernels is compared with readable names: a host must not decide it."""
    if python == "absent":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    else:
        (tmp_path / "pycxxfilt.py").write_text("raise ImportError('broken')\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ReprobuildError) as caught:
        demangle(["_Z1fv"])
    assert caught.value.code == "E-ENVIRONMENT"
    assert demangle(["plain"]) == {"plain": "plain"}
