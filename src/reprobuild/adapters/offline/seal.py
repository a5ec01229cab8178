"""Closing the network for this process and every process that it starts, for good.

Before that, whoever calls this looks at descriptors that were inherited: a connected socket would
still carry data.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat

from reprobuild.adapters.git.plumbing import no_protocols
from reprobuild.adapters.offline.filter import program
from reprobuild.core.redact import redact
from reprobuild.errors import ReprobuildError

_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 38, 39
_SECCOMP, _SET_MODE_FILTER, _TSYNC = 317, 1, 1
_EACCES = 13
_SEALED: list[bool] = []


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def seal() -> None:
    """Installs the filter for all threads; it is inherited and cannot be taken off.

    Raises E-OFFLINE-SEAL where the kernel has no seccomp, and E-OFFLINE when a network socket
    was inherited. On another processor than x86-64 nothing is built, and nothing sealed.
    """
    no_protocols()
    _SEALED.append(True)
    _refuse_inherited()
    if os.uname().machine != "x86_64":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    text = program()
    filter_ = _Program(len(text) // 8, text)
    # With CAP_SYS_ADMIN the filter needs no no_new_privs, which would keep AppArmor from giving
    # bubblewrap the profile that lets it make user namespaces.
    number = _install(libc, filter_)
    if number == _EACCES:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        number = _install(libc, filter_)
    if number:
        raise ReprobuildError(
            "E-OFFLINE-SEAL",
            f"the kernel does not close the network for this process: {os.strerror(number)}",
            errno=number,
        )


def _install(libc: ctypes.CDLL, filter_: _Program) -> int:
    """The errno, 0 for success."""
    done = libc.syscall(
        ctypes.c_long(_SECCOMP),
        ctypes.c_long(_SET_MODE_FILTER),
        ctypes.c_long(_TSYNC),
        ctypes.byref(filter_),
    )
    return ctypes.get_errno() if done < 0 else (0 if done == 0 else 11)


def _refuse_inherited() -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        fd = int(name)
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            family = socket.socket(fileno=os.dup(fd)).family
        except OSError:
            continue  # the listing's own descriptor, gone by now
        if family not in (socket.AF_UNIX, socket.AF_NETLINK):
            raise ReprobuildError(
                "E-OFFLINE",
                f"--offline, and descriptor {fd} is a network socket",
                hint="close it before the call: 0<&- or the like",
                descriptor=fd,
            )


def refuse_daemon(address: str) -> None:
    """Raises E-OFFLINE when this process is sealed and `address` names a daemon on a network."""
    if _SEALED and address and not address.startswith(("unix:", "/")):
        shown = redact(address)
        raise ReprobuildError(
            "E-OFFLINE",
            f"--offline, and the Docker daemon is at {shown}",
            hint="unset DOCKER_HOST, or let it name a unix:// socket",
            host=shown,
        )
