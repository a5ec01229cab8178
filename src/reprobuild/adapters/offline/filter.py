"""The system-call filter of `--offline`, as the bytes of a classic BPF program.

Sockets are refused but for Unix ones and netlink's routing family, which bubblewrap needs to bring
up the loopback device of a sandbox. io_uring, which makes sockets without the call that is
filtered, does not exist; descriptors of other processes cannot be taken over; calls by the
numbers of another ABI are not let through.

`struct sock_filter[]` of linux/filter.h over `struct seccomp_data` of linux/seccomp.h,
little-endian; system-call numbers of asm/unistd_64.h.
"""

from __future__ import annotations

import struct

_LOAD, _JEQ, _JGE, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCH, _FIRST, _THIRD = 0, 4, 16, 32
_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38

_SOCKET, _SOCKETPAIR, _PIDFD_GETFD = 41, 53, 438
_IO_URING = (425, 426, 427)
_AF_UNIX, _AF_NETLINK, _NETLINK_ROUTE = 1, 16, 0

Row = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


def _fail(errno: int) -> Row:
    return (_RETURN, 0, 0, _ERRNO | errno)


_PASS: Row = (_RETURN, 0, 0, _ALLOW)


def program() -> bytes:
    """The filter: `struct sock_filter` of 8 bytes each."""
    rows: list[Row] = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, _ARCH_X86_64),
        _fail(_EPERM),
        (_LOAD, 0, 0, _NUMBER),
        (_JGE, 0, 1, _X32_BIT),
        _fail(_ENOSYS),
    ]
    for number in _IO_URING:
        rows += _on(number, [_fail(_ENOSYS)])
    rows += _on(_PIDFD_GETFD, [_fail(_EPERM)])
    rows += _on(_SOCKETPAIR, [(_LOAD, 0, 0, _FIRST), (_JEQ, 0, 1, _AF_UNIX), _PASS, _fail(_EPERM)])
    rows += _on(
        _SOCKET,
        [
            (_LOAD, 0, 0, _FIRST),
            (_JEQ, 3, 0, _AF_UNIX),
            (_JEQ, 0, 3, _AF_NETLINK),
            (_LOAD, 0, 0, _THIRD),
            (_JEQ, 0, 1, _NETLINK_ROUTE),
            _PASS,
            _fail(_EPERM),
        ],
    )
    rows.append(_PASS)
    return b"".join(struct.pack("<HBBI", code, yes, no, k) for code, yes, no, k in rows)


def _on(number: int, body: list[Row]) -> list[Row]:
    """`body`, which ends in returns, for one call; the accumulator holds the call's number."""
    return [(_JEQ, 0, len(body), number), *body]
