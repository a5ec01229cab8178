"""Addresses of servers: grpc[s]://HOST:PORT[,HOST:PORT]…[/INSTANCE]."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from reprobuild.errors import ReprobuildError

_PORTS = {"grpc": 50051, "grpcs": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Servers of one kind behind one name: `hosts` are `host:port`, equal in all they offer."""

    hosts: tuple[str, ...]
    secure: bool
    instance: str = ""

    @property
    def name(self) -> str:
        """As it was written."""
        scheme = "grpcs" if self.secure else "grpc"
        return f"{scheme}://{','.join(self.hosts)}" + (f"/{self.instance}" if self.instance else "")


def parse_address(text: str) -> Address:
    """Raises E-USAGE, also for credentials: every process list shows an address."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in _PORTS:
        raise ReprobuildError(
            "E-USAGE", "a remote server's address begins with grpc:// or grpcs://"
        )
    names, _, instance = rest.partition("/")
    if "@" in names:
        raise ReprobuildError(
            "E-USAGE",
            "a remote server's address holds no credentials",
            hint="name a token file, a credential helper or a certificate under [remote] in the "
            "configuration; docs/remote.md shows how",
        )
    hosts = tuple(_host(name, scheme) for name in names.split(","))
    if len(set(hosts)) != len(hosts):
        raise ReprobuildError("E-USAGE", f"{text[:200]} names one server twice")
    return Address(hosts, scheme == "grpcs", instance.strip("/"))


def _host(name: str, scheme: str) -> str:
    host, _, port = name.rpartition(":")
    if not host or name.endswith("]"):
        host, port = name, str(_PORTS[scheme])
    if not host.strip("[]") or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ReprobuildError("E-USAGE", f"{name[:200]!r} is no HOST:PORT")
    return f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether `host:port` is this very machine."""
    name = host.rpartition(":")[0].strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
