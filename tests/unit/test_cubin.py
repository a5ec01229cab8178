"""What is read out of cubins and fat binaries made by hand; real ones are in tests/e2e."""

from __future__ import annotations

import struct

import pytest

from reprobuild.adapters.cubin.inflate import inflate
from reprobuild.core.cubin import elf as elves
from reprobuild.core.cubin.kernel import local_accesses
from reprobuild.core.cubin.module import Module, may_be_module, read_module
from reprobuild.errors import ReprobuildError
from support.cubins import (
    FLAG_A,
    FLAG_F,
    LZ4,
    ZSTD,
    ElfFile,
    K,
    cubin,
    cubin_file,
    fatbin,
    library,
    member,
)


def read(data: bytes) -> Module:
    module = read_module(data, inflate)
    assert module is not None
    return module


def stl(count: int) -> bytes:
    return struct.pack("<QQ", 0x000890D201007387, 0) * count


def ldl(count: int) -> bytes:
    return struct.pack("<QQ", 0x0000000001007983, 0) * count


def test_a_kernel_and_what_it_takes() -> None:
    code = stl(2) + ldl(3) + bytes(64)
    kernel = K("_Z5scalePfi", code, 40, 24, 1536, 1, (128, 2, 1))
    module = read(library(fatbin(member(cubin(kernel)))))
    (found,) = module.kernels
    assert (module.archs, module.ptx) == (("sm_120a",), ())
    assert found.name == "_Z5scalePfi"
    assert (found.registers, found.stack, found.shared, found.barriers) == (40, 24, 1536, 1)
    assert (found.local_stores, found.local_loads, found.spills) == (2, 3, 5)
    assert found.code_size == len(code)
    assert found.constant == 908
    assert found.max_threads == (128, 2, 1)


def test_opcodes_are_read_at_the_beginning_of_instructions_only() -> None:
    shifted = b"\0" * 8 + stl(4)[:-8]
    assert local_accesses(shifted) == (0, 0)
    other = struct.pack("<QQ", 0x7987, 0)  # the same low byte, another opcode
    assert local_accesses(other + stl(1)) == (1, 0)


@pytest.mark.parametrize("flags", [0, ZSTD, LZ4])
def test_compression_changes_nothing_that_is_read(flags: int) -> None:
    plain = read(library(fatbin(member(cubin(K("_Z1av"), K("_Z1bv"))))))
    assert (
        read(library(fatbin(member(cubin(K("_Z1av"), K("_Z1bv")), flags=FLAG_A | flags)))) == plain
    )


def test_several_architectures_and_ptx() -> None:
    module = read(
        library(
            fatbin(
                member(cubin(K("_Z1av"), arch=90, suffix="a"), 90),
                member(cubin(K("_Z1av"), arch=120, suffix="f"), 120, FLAG_F),
                member(b".version 9.3\n", 120, 0, kind=1),
            )
        )
    )
    assert module.archs == ("sm_120f", "sm_90a")
    assert module.ptx == ("sm_120",)
    assert module.ptx_only == 0
    assert [k.arch for k in module.by_name()["_Z1av"]] == ["sm_120f", "sm_90a"]


def test_an_object_with_ptx_alone_is_counted() -> None:
    code, text = member(cubin(K("_Z1av"))), member(b".version 9.3\n", kind=1)
    assert read(library(fatbin(code), fatbin(text))).ptx_only == 1
    assert read(library(fatbin(code, text))).ptx_only == 0


def test_containers_one_after_another_with_padding() -> None:
    one, two = fatbin(member(cubin(K("_Z1av")))), fatbin(member(cubin(K("_Z1bv"))))
    module = read(library(one + bytes(8), bytes(4096 * 3), two, bytes(16)))
    assert [k.name for k in module.kernels] == ["_Z1av", "_Z1bv"]


def test_equal_kernels_of_several_objects_are_one_row() -> None:
    same = fatbin(member(cubin(K("_Z1av"))))
    other = fatbin(member(cubin(K("_Z1av", code=b"\1" * 64))))
    module = read(library(same, same, other))
    assert sorted(k.copies for k in module.kernels) == [1, 2]
    assert len({k.code for k in module.kernels}) == 2


def test_the_code_digest_is_of_instructions_and_what_they_refer_to() -> None:
    def code(kernel: K) -> str:
        return read(cubin(kernel)).kernels[0].code.hex

    one = code(K("_Z1av", calls="_Z1fv"))
    assert code(K("_Z9differentv", calls="_Z1fv", registers=99)) == one
    assert code(K("_Z1av", calls="_Z1gv")) != one
    assert code(K("_Z1av", code=b"\1" + bytes(63), calls="_Z1fv")) != one


@pytest.mark.parametrize(
    ("arch", "suffix", "name"),
    [(120, "a", "sm_120a"), (120, "f", "sm_120f"), (120, "", "sm_120"), (90, "a", "sm_90a")],
)
def test_a_bare_cubin_says_its_architecture(arch: int, suffix: str, name: str) -> None:
    assert read(cubin(K("_Z1av"), arch=arch, suffix=suffix)).archs == (name,)


def test_older_cubins_have_the_number_elsewhere() -> None:
    old = cubin_file([K("_Z1av")], 90, "")
    old.abi, old.flags = (0x33, 7), 0x5A055A
    assert read(old.data()).archs == ("sm_90",)


def test_relocatable_code_counts_where_there_is_no_other() -> None:
    device = fatbin(member(cubin(K("_Z1av"))))
    assert read(library(device, name="__nv_relfatbin")).relocatable
    assert not read(library(device)).relocatable


def test_a_bare_fat_binary() -> None:
    assert read(fatbin(member(cubin(K("_Z1av"))))).archs == ("sm_120a",)


def test_no_device_code() -> None:
    assert read_module(library(), inflate) is None
    assert read_module(ElfFile().data(), inflate) is None


def test_which_files_are_looked_into() -> None:
    assert may_be_module(library()[:64])
    assert may_be_module(cubin(K("_Z1av"))[:64])
    assert may_be_module(fatbin()[:16])
    assert not may_be_module(b"#!/bin/sh\n".ljust(64))
    assert not may_be_module(ElfFile(machine=8).data()[:64])  # MIPS


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            library(fatbin(member(cubin(K("_Z1av"), arch=90)))),
            "sm_90a, but its header says sm_120a",
        ),
        (library(fatbin(member(b"no elf at all.."))), "not a 64-bit"),
        (library(b"garbage that is no container"), "no fat binary at byte 0"),
        (library(fatbin(member(cubin(K("_Z1av"))))[:-8]), "cut short"),
    ],
)
def test_damage_is_named(data: bytes, said: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        read_module(data, inflate)
    assert error.value.code == "E-CUBIN"
    assert said in error.value.message


def test_symbols_in_sections_with_large_numbers() -> None:
    """A table beside the symbols holds numbers that do not fit into them."""
    file = cubin_file([K("_Z1av")])
    number = [s.name for s in file.sections].index(".text._Z1av") + 1
    table = len(file.sections) + 1
    file.add(".symtab_shndx", struct.pack("<II", 0, number), kind=18, link=table + 1)
    data = bytearray(file.data())
    parsed = elves.parse(bytes(data))
    symbols = next(s for s in parsed.sections if s.kind == 2)
    assert symbols.index == table + 1
    struct.pack_into("<H", data, symbols.offset + 24 + 6, 0xFFFF)
    assert read(bytes(data)).kernels[0].code_size == 64
