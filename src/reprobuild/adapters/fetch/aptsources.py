"""Which Debian archives this host is configured for, and with whose keys they are signed.

Sources of the formats: sources.list(5) (one-line and deb822 style), apt_auth.conf(5),
apt.conf(5). `debian` (python-debian) parses the deb822 style here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from reprobuild.adapters.fetch.http import Access, origin_of
from reprobuild.core.mirrors import Mirrors

_ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)")
_FINGERPRINT = re.compile(r"[0-9A-Fa-f]{40}!?\Z")
_SETTING = re.compile(r'(?P<key>[A-Za-z0-9:._-]+) "(?P<value>.*)";\Z')


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive root (`http://archive.example.org/debian`) that offers `suite`.

    `suite` is empty for a mirror, which may offer any. `keyrings` are files of keys, or armored
    key blocks themselves; empty for the host's usual ones. `fingerprints` (40 hex digits) name
    the only keys of those that count; empty for all. `frozen` skips the check that the
    index has not expired: a mirror that a user names may be a snapshot.
    """

    root: str
    suite: str = ""
    keyrings: tuple[str, ...] = ()
    frozen: bool = False
    fingerprints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AptConfig:
    """What apt on this host is configured for. `access` holds proxies and credentials."""

    archives: tuple[Archive, ...] = ()
    keyrings: tuple[str, ...] = ()
    access: Access = field(default_factory=Access, repr=False)


def archives_for(suite: str, mirrors: Mirrors, config: AptConfig) -> list[Archive]:
    """Where to look for `suite`: mirrors, then the host's archives that are configured for it.

    When none is, the roots of the host's other archives follow: one archive usually holds several
    releases, and its signed index says whether it has this one.
    """
    found = [
        Archive(root.rstrip("/"), "", mirrors.debian_keyrings, True) for root in mirrors.debian
    ]
    exact = [archive for archive in config.archives if archive.suite == suite]
    found += exact or config.archives
    unique: dict[str, Archive] = {}
    for archive in found:
        unique.setdefault(archive.root, archive)
    return list(unique.values())


def read_apt_config() -> AptConfig:
    """Asks `apt-config` for paths, proxies and authorities; without apt, /etc/apt is read."""
    settings = parse_settings(_run(["apt-config", "dump"]))
    paths = _paths()
    archives: list[Archive] = []
    for path in _files(paths["list"], paths["parts"]):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        archives += parse_deb822(text) if path.suffix == ".sources" else parse_one_line(text)
    access = Access(
        verify=settings.get("Acquire::https::CaInfo") or True,
        proxies={
            scheme: proxy
            for scheme in ("http", "https")
            if (proxy := settings.get(f"Acquire::{scheme}::Proxy", "")) not in ("", "DIRECT")
        },
        credentials=_credentials(paths["auth"], paths["authparts"]),
    )
    keyrings = [paths["trusted"], *sorted(_listed(paths["trustedparts"], (".gpg", ".asc")))]
    usual = Path("/usr/share/keyrings")
    keyrings += [usual / "debian-archive-keyring.gpg", usual / "debian-archive-keyring.pgp"]
    return AptConfig(tuple(archives), tuple(str(k) for k in keyrings if k.is_file()), access)


def parse_settings(text: str) -> dict[str, str]:
    """The scalar settings of `apt-config dump`."""
    found = {}
    for line in text.splitlines():
        match = _SETTING.match(line)
        if match is not None:
            found[match["key"]] = match["value"]
    return found


def _paths() -> dict[str, Path]:
    names = {
        "list": ("Dir::Etc::sourcelist/f", "/etc/apt/sources.list"),
        "parts": ("Dir::Etc::sourceparts/d", "/etc/apt/sources.list.d"),
        "auth": ("Dir::Etc::netrc/f", "/etc/apt/auth.conf"),
        "authparts": ("Dir::Etc::netrcparts/d", "/etc/apt/auth.conf.d"),
        "trusted": ("Dir::Etc::trusted/f", "/etc/apt/trusted.gpg"),
        "trustedparts": ("Dir::Etc::trustedparts/d", "/etc/apt/trusted.gpg.d"),
    }
    words = [word for name, (key, _) in names.items() for word in (f"P_{name}", key)]
    shell = _run(["apt-config", "shell", *words])
    found = dict(re.findall(r"^P_(\w+)='(.*)'$", shell, re.MULTILINE))
    return {name: Path(found.get(name) or usual) for name, (_, usual) in names.items()}


def _run(argv: Sequence[str]) -> str:
    if shutil.which(argv[0]) is None:
        return ""
    done = subprocess.run(
        list(argv), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60
    )
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def _listed(directory: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    try:
        yield from (p for p in directory.iterdir() if p.suffix in suffixes and p.is_file())
    except OSError:
        return


def _files(main: Path, parts: Path) -> list[Path]:
    files = [main] if main.is_file() else []
    return files + sorted(_listed(parts, (".list", ".sources")))


def parse_one_line(text: str) -> list[Archive]:
    """`deb [options] uri suite component…` lines; source lines and comments are passed over."""
    found = []
    for line in text.splitlines():
        match = _ONE_LINE.match(line.partition("#")[0].strip())
        if match is None:
            continue
        options = dict(
            word.split("=", 1) for word in (match["options"] or "").split() if "=" in word
        )
        frozen = options.get("check-valid-until", "").lower() == "no"
        found += _archive(match["uri"], match["suite"], options.get("signed-by", ""), frozen)
    return found


def parse_deb822(text: str) -> list[Archive]:
    """The stanzas of a `.sources` file that are enabled and of type deb."""
    from debian.deb822 import Deb822

    found: list[Archive] = []
    for stanza in Deb822.iter_paragraphs(text.splitlines(keepends=True), use_apt_pkg=False):
        fields: Mapping[str, str] = stanza
        if fields.get("Enabled", "yes").strip().lower() in ("no", "false", "0", "off", "disable"):
            continue
        if "deb" not in fields.get("Types", "").split():
            continue
        frozen = fields.get("Check-Valid-Until", "yes").strip().lower() in ("no", "false")
        for uri in fields.get("URIs", "").split():
            for suite in fields.get("Suites", "").split():
                found += _archive(uri, suite, fields.get("Signed-By", ""), frozen)
    return found


def _signed_by(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Keyrings and fingerprints: names of files, or one armored block (deb822 writes its empty
    lines as ` .`); a fingerprint may end in `!` (no subkeys), which is not told apart."""
    if "-----BEGIN PGP PUBLIC KEY BLOCK-----" in text:
        lines = [line.strip() for line in text.strip().splitlines()]
        return ("\n".join("" if line == "." else line for line in lines),), ()
    words = re.split(r"[,\s]+", text)
    fingerprints = tuple(w.rstrip("!").upper() for w in words if _FINGERPRINT.match(w))
    return tuple(word for word in words if word.startswith("/")), fingerprints


def _archive(uri: str, suite: str, signed_by: str, frozen: bool) -> list[Archive]:
    """One archive, unless it is of a kind (cdrom:, mirror+…) that this program cannot read."""
    uri = re.sub(r"\Acopy:", "file:", uri)
    if uri.startswith("file:/") and not uri.startswith("file://"):
        uri = "file://" + uri.removeprefix("file:")
    if not uri.startswith(("http://", "https://", "file:///")) or suite.endswith("/"):
        return []
    keyrings, fingerprints = _signed_by(signed_by)
    return [Archive(uri.rstrip("/"), suite, keyrings, frozen, fingerprints)]


def _credentials(main: Path, parts: Path) -> dict[str, tuple[str, str]]:
    """`machine [scheme://]host[:port][/path] login USER password WORD` entries, by origin.

    Without a scheme apt sends them over https only, and so does this.
    """
    found: dict[str, tuple[str, str]] = {}
    for path in [*sorted(_listed(parts, (".conf",))), main]:
        try:
            words = re.sub(r"(?m)#.*$", "", path.read_text(encoding="utf-8")).split()
        except (OSError, UnicodeDecodeError):
            continue
        entry: dict[str, str] = {}
        for key, value in pairwise(words):
            if key == "machine":
                entry = {"machine": value}
            elif key in ("login", "password") and "machine" in entry:
                entry[key] = value
            if {"login", "password"} <= entry.keys():
                machine = entry["machine"]
                url = machine if "://" in machine else f"https://{machine}"
                found.setdefault(origin_of(url), (entry["login"], entry["password"]))
                entry = {}
    return found
