"""The system-call filter of the sandbox, as the bytes of a classic BPF program.

Namespaces and the absence of capabilities carry the sandbox; the filter closes what they leave
open: setuid files in the output, kernel interfaces that a build has no use for and that have
been ways out before, foreign ABIs (whose calls would pass by other numbers), and address
families that a network namespace does not confine (vsock).

The program is `struct sock_filter[]` of linux/filter.h over `struct seccomp_data` of
linux/seccomp.h, little-endian, x86-64 system-call numbers of asm/unistd_64.h.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache

_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

EPERM, ENOSYS, EOPNOTSUPP, EAFNOSUPPORT = 1, 38, 95, 97

_SETID = 0o6000
_CREATES = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_FORMAT, _CHARACTER, _BLOCK = 0o170000, 0o020000, 0o060000
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

# Kernel interfaces that are said not to exist: programs know how to do without them.
_ABSENT = {
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "perf_event_open": 298,
    "bpf": 321,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "clone3": 435,  # its flags lie in memory, where a filter cannot look; libc falls back
    "openat2": 437,  # likewise its mode
    "memfd_secret": 447,
}
_FORBIDDEN = {
    "pivot_root": 155,
    "mount": 165,
    "umount2": 166,
    "unshare": 272,
    "open_by_handle_at": 304,
    "setns": 308,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
}
# Extended attributes are dropped from outputs; refusing them shows that at once.
_UNSUPPORTED = {"setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "setxattrat": 463}

# call: index of the mode argument
_CHMODS = {90: 1, 91: 1, 268: 2, 452: 2}  # chmod, fchmod, fchmodat, fchmodat2
_OPENS = {2: (1, 2), 257: (2, 3)}  # open, openat: index of flags, of mode
_CREAT = 85
_MKNODS = {133: 1, 259: 2}  # mknod, mknodat
_SOCKETS = (41, 53)  # socket, socketpair
_IOCTL, _CLONE = 16, 56


@dataclass(frozen=True, slots=True)
class _Instruction:
    code: int
    operand: int
    then: int = 0
    otherwise: int = 0

    def encode(self) -> bytes:
        return struct.pack("<HBBI", self.code, self.then, self.otherwise, self.operand)


def _fail(errno: int) -> _Instruction:
    return _Instruction(_RETURN, _ERRNO | errno)


def _argument(index: int) -> _Instruction:
    # The low half: every argument that is looked at is an int or a mode for the kernel.
    return _Instruction(_LOAD, _ARGUMENTS + 8 * index)


_PASS = _Instruction(_RETURN, _ALLOW)


def _on(number: int, body: list[_Instruction]) -> list[_Instruction]:
    """`body`, which ends in a return, for one call; the accumulator holds the call's number."""
    return [_Instruction(_JEQ, number, 0, len(body)), *body]


def _refuse_bits(argument: int, bits: int) -> list[_Instruction]:
    return [_argument(argument), _Instruction(_JSET, bits, 0, 1), _fail(EPERM), _PASS]


def _rules() -> list[_Instruction]:
    out: list[_Instruction] = []
    for numbers, errno in ((_ABSENT, ENOSYS), (_FORBIDDEN, EPERM), (_UNSUPPORTED, EOPNOTSUPP)):
        for number in numbers.values():
            out += _on(number, [_fail(errno)])
    for number, mode in _CHMODS.items():
        out += _on(number, _refuse_bits(mode, _SETID))
    for number, (flags, mode) in _OPENS.items():
        check = _refuse_bits(mode, _SETID)
        # Without O_CREAT the mode argument is whatever the register held.
        out += _on(number, [_argument(flags), _Instruction(_JSET, _CREATES, 1, 0), _PASS, *check])
    out += _on(_CREAT, _refuse_bits(1, _SETID))
    for number, mode in _MKNODS.items():
        out += _on(
            number,
            [
                _argument(mode),
                _Instruction(_JSET, _SETID, 4, 0),
                _Instruction(0x54, _FORMAT),  # and
                _Instruction(_JEQ, _CHARACTER, 2, 0),
                _Instruction(_JEQ, _BLOCK, 1, 0),
                _PASS,
                _fail(EPERM),
            ],
        )
    for number in _SOCKETS:
        known = [
            _Instruction(_JEQ, family, len(_FAMILIES) - place, 0)
            for place, family in enumerate(_FAMILIES)
        ]
        out += _on(number, [_argument(0), *known, _fail(EAFNOSUPPORT), _PASS])
    out += _on(
        _IOCTL,
        [
            _argument(1),
            _Instruction(_JEQ, _TIOCSTI, 2, 0),
            _Instruction(_JEQ, _TIOCLINUX, 1, 0),
            _PASS,
            _fail(EPERM),
        ],
    )
    out += _on(_CLONE, _refuse_bits(0, _NEW_NAMESPACES))
    return out


@cache
def program() -> bytes:
    """The filter, as `bwrap --seccomp FD` reads it.

    A foreign architecture's call ends the process (SIGSYS); x32 calls do not exist (ENOSYS).
    """
    instructions = [
        _Instruction(_LOAD, _ARCH),
        _Instruction(_JEQ, _ARCH_X86_64, 1, 0),
        _Instruction(_RETURN, _KILL),
        _Instruction(_LOAD, _NUMBER),
        _Instruction(_JGE, _X32_BIT, 0, 1),
        _fail(ENOSYS),
        *_rules(),
        _PASS,
    ]
    return b"".join(instruction.encode() for instruction in instructions)
