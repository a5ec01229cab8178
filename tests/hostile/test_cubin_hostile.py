"""Device code made to break its readers: they say E-CUBIN, or read it; nothing else happens."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprobuild.adapters.cubin.inflate import inflate
from reprobuild.core.cubin import ar, fatbin
from reprobuild.core.cubin import elf as elves
from reprobuild.core.cubin.module import read_module
from reprobuild.core.cubin.verdict import judge_files
from reprobuild.errors import ReprobuildError
from support import cubins
from support.cubins import FLAG_A, LZ4, ZSTD, ElfFile, K, cubin, cubin_file, library, member

KERNELS = (
    K("_Z1av", bytes(64), 40, 24, 1536, 1, (128, 1, 1), calls="_Z1fv"),
    K("_Z1bv", b"\7" * 32),
)
PLAIN = library(cubins.fatbin(member(cubin(*KERNELS))))
PACKED = library(
    cubins.fatbin(
        member(cubin(*KERNELS), flags=FLAG_A | ZSTD), member(cubin(*KERNELS), flags=FLAG_A | LZ4)
    )
)


def attempt(data: bytes) -> None:
    """Reads it; the one error that may come is E-CUBIN."""
    try:
        read_module(data, inflate)
    except ReprobuildError as error:
        assert error.code == "E-CUBIN"


def refused(data: bytes) -> str:
    with pytest.raises(ReprobuildError) as error:
        read_module(data, inflate)
    assert error.value.code == "E-CUBIN"
    return error.value.message


@pytest.mark.parametrize("whole", [PLAIN, PACKED, cubin(*KERNELS)], ids=["plain", "packed", "bare"])
def test_cut_short_anywhere(whole: bytes) -> None:
    for length in range(0, len(whole), 7 if len(whole) > 3000 else 1):
        attempt(whole[:length])


@given(
    whole=st.sampled_from([PLAIN, PACKED, cubin(*KERNELS)]),
    changes=st.lists(
        st.tuples(st.integers(0, 2**20), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])),
        min_size=1,
        max_size=12,
    ),
)
def test_changed_anywhere(whole: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(whole)
    for place, value in changes:
        data[place % len(data)] = value
    attempt(bytes(data))
    judge_files("m", whole, bytes(data), inflate)
    judge_files("m", bytes(data), whole, inflate)


@given(st.binary(max_size=300))
def test_anything_behind_the_magic(data: bytes) -> None:
    attempt(fatbin.MAGIC_BYTES + data)
    attempt(b"\x7fELF\x02\x01" + data)
    judge_files("m", ar.MAGIC + data, ar.MAGIC + b"x", inflate)


def test_more_sections_than_the_file_can_hold() -> None:
    data = bytearray(ElfFile().data())
    struct.pack_into("<H", data, 60, 0)  # the count is in the first section, then
    (table,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<Q", data, table + 32, 2**40)
    assert "outside the file" in refused(bytes(data))


def test_names_that_all_share_one_long_string() -> None:
    """A megabyte of symbols, each of whose names is most of a long string without an end."""
    file = ElfFile(cubins.CUDA, 2, 120 << 8, (0x41, 8))
    rows = b"".join(struct.pack("<IBBHQQ", n, 0x12, 0x10, 1, 0, 0) for n in range(40_000))
    file.add(".symtab2", rows, kind=cubins.SYMTAB, link=2)
    file.add(".names", b"a" * 100_000 + b"\0", kind=cubins.STRTAB)
    assert "overlap" in refused(file.data())


def test_a_kernel_outside_all_sections() -> None:
    file = cubin_file(KERNELS)
    data = bytearray(file.data())
    symbols = next(s for s in elves.parse(bytes(data)).sections if s.kind == 2)
    struct.pack_into("<H", data, symbols.offset + 24 + 6, 0xFEFE)
    assert "not there" in refused(bytes(data))


def header(flags: int, stored: int, full: int, body: bytes) -> bytes:
    head = struct.pack("<HHIQIIHHI", 2, 0x101, 64, len(body), stored, 0, 8, 1, 120)
    return head.ljust(40, b"\0") + struct.pack("<QQQ", flags, 0, full) + body


@pytest.mark.parametrize("flags", [ZSTD, LZ4])
def test_a_member_that_says_it_is_huge(flags: int) -> None:
    for full in (2**63, fatbin.MAX_PAYLOAD + 1):
        data = library(cubins.fatbin(header(FLAG_A | flags, 16, full, bytes(16))))
        assert "when decompressed" in refused(data)


def test_members_that_are_huge_together() -> None:
    count = fatbin.MAX_TOTAL // fatbin.MAX_PAYLOAD + 1
    each = header(FLAG_A | ZSTD, 16, fatbin.MAX_PAYLOAD, bytes(16))
    assert "together" in refused(library(cubins.fatbin(*[each] * count)))


def test_no_memory_is_taken_for_what_a_frame_only_says() -> None:
    few = header(FLAG_A | LZ4, 16, fatbin.MAX_PAYLOAD, bytes(16))
    assert "cannot stand for" in refused(library(cubins.fatbin(few)))
    import zstandard

    frame = zstandard.ZstdCompressor().compress(bytes(2**20))
    frame += bytes(-len(frame) % 8)
    other = header(FLAG_A | ZSTD, len(frame), 4096, frame)
    assert "the frame holds 1048576 bytes, not 4096" in refused(library(cubins.fatbin(other)))


def test_a_frame_without_its_size_that_does_not_end() -> None:
    import zstandard

    frame = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(2**24))
    frame += bytes(-len(frame) % 8)
    refused(library(cubins.fatbin(header(FLAG_A | ZSTD, len(frame), 4096, frame))))


def test_headers_that_would_never_move_on() -> None:
    still = bytearray(member(cubin(*KERNELS)))
    struct.pack_into("<IQ", still, 4, 0, 0)
    refused(library(cubins.fatbin(bytes(still))))
    container = struct.pack("<IHHQ", fatbin.MAGIC, 1, 0, 0)
    refused(library(container))


@pytest.mark.parametrize(
    "text",
    [b"a", b"/", b".", b"1", b"a/", b"a.c", b"_12345678_3_", b"tmpxft_", b"a.cu/"],
)
def test_text_that_makes_patterns_slow(text: bytes) -> None:
    """Takes time in proportion to its length: the square of it would be minutes."""
    one = text * (2**19 // len(text))
    judge_files("m", one, one + b"x", inflate)
