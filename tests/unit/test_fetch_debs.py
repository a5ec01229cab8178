"""Pinning Debian packages: whose signature counts, and what a suite holds."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.fetch.aptsources import (
    AptConfig,
    Archive,
    archives_for,
    parse_deb822,
    parse_one_line,
    parse_settings,
    read_apt_config,
)
from reprobuild.adapters.fetch.debindex import check_location
from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.adapters.fetch.fetchers import Fetchers, file_fetchers
from reprobuild.adapters.fetch.gpgv import dearmor
from reprobuild.adapters.fetch.places import Places
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.mirrors import Mirrors
from reprobuild.core.pins import FilePin
from reprobuild.errors import ReprobuildError
from support.debarchive import DebArchive, Signer, missing_tools, signer
from support.events import Recorder

needs_gpg = pytest.mark.skipif(bool(missing_tools()), reason=missing_tools())


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signer]:
    with signer(tmp_path_factory.mktemp("key")) as made:
        yield made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signer]:
    with signer(tmp_path_factory.mktemp("stranger")) as made:
        yield made


@pytest.fixture
def archive(tmp_path: Path, key: Signer) -> DebArchive:
    made = DebArchive(tmp_path / "debian", key)
    made.add("tool", "1.0-1", b"one")
    made.add("tool", "1.0-1+deb12u2", b"two")
    made.add("tool", "1.0~rc1-1", b"rc")
    made.add("tool-extra", "2:3.0-1", b"epoch")
    made.add("blob", "1", b"blob", component="contrib")
    return made


def discovery(tmp_path: Path, config: AptConfig, mirrors: Mirrors | None = None) -> Discovery:
    settings = FetchSettings(
        tmp_path / "partial", mirrors=mirrors or Mirrors(), backoff=0.0, attempts=2
    )
    return Discovery(settings, places=lambda: Places(settings, apt=config))


def config_of(archive: DebArchive, **changes: object) -> AptConfig:
    fields: dict[str, object] = {
        "root": archive.root.as_uri(),
        "suite": archive.suite,
        "keyrings": (str(archive.key.keyring),),
        **changes,
    }
    return AptConfig((Archive(**fields),))  # type: ignore[arg-type]


def pins(tmp_path: Path, archive: DebArchive, *wanted: str, **changes: object) -> list[FilePin]:
    found = discovery(tmp_path, config_of(archive, **changes))
    return found.debs(archive.suite, "amd64", ["main", "contrib"], wanted)


def refused(
    tmp_path: Path, archive: DebArchive, *wanted: str, **changes: object
) -> ReprobuildError:
    with pytest.raises(ReprobuildError) as caught:
        pins(tmp_path, archive, *(wanted or ("tool",)), **changes)
    return caught.value


@needs_gpg
def test_the_newest_version_by_debian_order_is_pinned(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish()
    (pin,) = pins(tmp_path, archive, "tool")
    assert pin == FilePin(
        "tool",
        "1.0-1+deb12u2",
        "tool_1.0-1+deb12u2_amd64.deb",
        3,
        pin.sha256,
        "pool/main/t/tool/tool_1.0-1+deb12u2_amd64.deb",
    )
    assert pin.sha256.hex == hashlib.sha256(b"two").hexdigest()


@needs_gpg
@pytest.mark.parametrize("suffixes", [("",), (".gz",), (".xz",), ("", ".gz", ".xz")])
def test_every_form_of_the_index_is_read(
    tmp_path: Path, archive: DebArchive, suffixes: tuple[str, ...]
) -> None:
    archive.publish(suffixes=suffixes)
    found = pins(tmp_path, archive, "tool=1.0~rc1-1", "tool-extra", "blob")
    assert [(p.name, p.version) for p in found] == [
        ("tool", "1.0~rc1-1"),
        ("tool-extra", "2:3.0-1"),
        ("blob", "1"),
    ]


@needs_gpg
def test_the_index_by_its_hash_is_preferred(tmp_path: Path, archive: DebArchive) -> None:
    archive.fields["Acquire-By-Hash"] = "yes"
    archive.publish(suffixes=(".xz",))
    named = archive.root / "dists/bookworm/main/binary-amd64/Packages.xz"
    named.write_bytes(b"an update is under way")
    assert pins(tmp_path, archive, "tool")[0].version == "1.0-1+deb12u2"


@needs_gpg
def test_a_version_that_is_gone_names_those_there_are(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish()
    error = refused(tmp_path, archive, "tool=0.9")
    assert error.code == "E-DEB-GONE"
    assert error.exit_status == 4
    assert error.facts["available"] == ["1.0~rc1-1", "1.0-1", "1.0-1+deb12u2"]
    assert "reprobuild lock --update" in error.hint


@needs_gpg
def test_a_name_that_is_off_names_its_neighbours(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish()
    error = refused(tmp_path, archive, "tool-extr")
    assert error.code == "E-DEB-GONE"
    assert "tool-extra" in error.message


@needs_gpg
def test_a_component_that_is_not_there_is_said_so(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish()
    with pytest.raises(ReprobuildError, match="no non-free for amd64"):
        discovery(tmp_path, config_of(archive)).debs("bookworm", "amd64", ["non-free"], ["tool"])


@needs_gpg
def test_an_index_signed_by_a_stranger_is_refused(
    tmp_path: Path, archive: DebArchive, stranger: Signer
) -> None:
    archive.publish()
    archive.sign(stranger)
    error = refused(tmp_path, archive)
    assert error.code == "E-DEB-UNTRUSTED"
    assert "unknown keys" in error.message


@needs_gpg
def test_an_index_that_was_changed_is_refused(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish()
    path = archive.root / "dists/bookworm/InRelease"
    path.write_bytes(path.read_bytes().replace(b"Origin: Test", b"Origin: Best"))
    assert "does not match" in refused(tmp_path, archive).message


@needs_gpg
def test_an_unsigned_index_is_refused(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish()
    (archive.root / "dists/bookworm/InRelease").write_text(archive.release)
    assert refused(tmp_path, archive).code == "E-DEB-UNTRUSTED"


@needs_gpg
def test_only_what_was_signed_is_read(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish(suffixes=("",))
    path = archive.root / "dists/bookworm/InRelease"
    packages = archive.root / "dists/bookworm/main/binary-amd64/Packages"
    packages.write_bytes(packages.read_bytes().replace(b"two", b"six"))
    evil = f"Suite: bookworm\nSHA256:\n {'0' * 64} 1 main/binary-amd64/Packages\n\n"
    path.write_bytes(evil.encode() + path.read_bytes() + evil.encode())
    # What surrounds the signed text changes nothing: the honest index is what counts.
    assert pins(tmp_path, archive, "tool")[0].version == "1.0-1+deb12u2"


@needs_gpg
def test_a_weak_hash_proves_nothing(tmp_path: Path, archive: DebArchive, key: Signer) -> None:
    archive.publish()
    try:
        archive.sign(key, "--digest-algo", "SHA1")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this gpg makes no SHA-1 signatures: {error}")
    assert refused(tmp_path, archive).code == "E-DEB-UNTRUSTED"


@needs_gpg
def test_one_good_signature_beside_an_unknown_one_is_enough(
    tmp_path: Path, archive: DebArchive
) -> None:
    # Debian signs with several keys; a host may know only one of them.
    with signer(tmp_path / "two") as two:
        two.add_key("b@example.org")
        archive.key = two
        archive.publish()
        archive.sign(two, "-u", "b@example.org", "-u", "a@example.org")
        assert pins(tmp_path, archive, "tool")
        archive.sign(two, "-u", "b@example.org")
        assert refused(tmp_path, archive).code == "E-DEB-UNTRUSTED"


@needs_gpg
def test_a_key_that_has_expired_proves_nothing(tmp_path: Path, archive: DebArchive) -> None:
    with signer(tmp_path / "old", expires="1y", at="20200101T000000") as old:
        archive.key = old
        archive.publish()
        archive.sign(old, "--faked-system-time", "20200201T000000")
        error = refused(tmp_path, archive)
    assert error.code == "E-DEB-UNTRUSTED"
    assert "expired" in error.message


@needs_gpg
def test_armored_and_embedded_keys_work(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish()
    path = tmp_path / "key.asc"
    path.write_text(archive.key.armored)
    assert dearmor(archive.key.armored.encode()) == archive.key.keyring.read_bytes()
    assert pins(tmp_path, archive, "tool", keyrings=(str(path),))
    assert pins(tmp_path, archive, "tool", keyrings=(archive.key.armored,))


@needs_gpg
def test_a_named_fingerprint_is_the_only_one_that_counts(
    tmp_path: Path, archive: DebArchive, stranger: Signer
) -> None:
    archive.publish()
    mine, other = archive.key.fingerprint, stranger.fingerprint
    assert len(mine) == 40
    assert pins(tmp_path, archive, "tool", fingerprints=(other, mine))
    error = refused(tmp_path, archive, fingerprints=(other,))
    assert error.code == "E-DEB-UNTRUSTED"


@needs_gpg
def test_without_a_key_nothing_is_trusted(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish()
    error = refused(tmp_path, archive, keyrings=(str(tmp_path / "none.gpg"),))
    assert error.code == "E-DEB-UNTRUSTED"
    assert "debian-keyring" in error.hint


@needs_gpg
def test_another_suite_under_this_name_is_refused(tmp_path: Path, archive: DebArchive) -> None:
    archive.fields["Codename"] = "bullseye"
    archive.publish()
    error = refused(tmp_path, archive)
    assert error.code == "E-DEB-UNTRUSTED"
    assert "bullseye" in error.message


@needs_gpg
def test_an_expired_index_is_refused_unless_frozen(tmp_path: Path, archive: DebArchive) -> None:
    archive.fields["Valid-Until"] = "Sat, 01 Jan 2022 00:00:00 UTC"
    archive.publish()
    assert "expired" in refused(tmp_path, archive).message
    assert pins(tmp_path, archive, "tool", frozen=True)


@needs_gpg
def test_an_index_other_than_the_signed_one_is_refused(tmp_path: Path, archive: DebArchive) -> None:
    archive.publish(suffixes=(".xz",), declared={"main/binary-amd64/Packages.xz": b"something"})
    assert refused(tmp_path, archive).code == "E-FETCH-MISMATCH"


@needs_gpg
def test_mirrors_come_before_the_host_and_need_no_configuration(
    tmp_path: Path, archive: DebArchive
) -> None:
    archive.publish()
    mirrors = Mirrors(
        debian=((tmp_path / "gone").as_uri(), archive.root.as_uri()),
        debian_keyrings=(str(archive.key.keyring),),
    )
    found = discovery(tmp_path, AptConfig(), mirrors)
    assert found.debs("bookworm", "amd64", ["main"], ["tool"])[0].version == "1.0-1+deb12u2"


def test_no_archive_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ReprobuildError) as caught:
        discovery(tmp_path, AptConfig()).debs("bookworm", "amd64", ["main"], ["tool"])
    assert caught.value.code == "E-FETCH"
    assert "mirrors" in caught.value.hint


def test_one_line_sources_are_read() -> None:
    text = """
# deb http://commented/ bookworm main
deb http://archive.example.org/debian bookworm main contrib  # remark
deb-src http://archive.example.org/debian bookworm main
deb [arch=amd64 signed-by=/k/one.gpg,/k/two.asc check-valid-until=no] https://h/d/ trixie main
deb cdrom:[disk]/ bookworm main
deb [signed-by=4cb50190207b4758a3f73a796ed0e7b82643e131!] http://h/ one main
deb file:/srv/debian sid main
deb http://flat.example/ ./
"""
    assert parse_one_line(text) == [
        Archive("http://archive.example.org/debian", "bookworm"),
        Archive("https://h/d", "trixie", ("/k/one.gpg", "/k/two.asc"), True),
        Archive("http://h", "one", fingerprints=("4CB50190207B4758A3F73A796ED0E7B82643E131",)),
        Archive("file:///srv/debian", "sid"),
    ]


def test_deb822_sources_are_read() -> None:
    text = """Types: deb deb-src
URIs: http://one/debian http://two/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
Enabled: no
URIs: http://off/
Suites: bookworm
Components: main

Types: deb-src
URIs: http://src/
Suites: bookworm
Components: main

Types: deb
URIs: http://three/
Suites: x
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEAA==
 -----END PGP PUBLIC KEY BLOCK-----
"""
    found = parse_deb822(text)
    ring = ("/usr/share/keyrings/debian-archive-keyring.gpg",)
    assert found[:4] == [
        Archive("http://one/debian", "bookworm", ring),
        Archive("http://one/debian", "bookworm-updates", ring),
        Archive("http://two/debian", "bookworm", ring),
        Archive("http://two/debian", "bookworm-updates", ring),
    ]
    assert len(found) == 5
    assert dearmor(found[4].keyrings[0].encode()) == b"\x98\x33\x04\x00"


def test_only_the_suite_itself_is_looked_at() -> None:
    config = AptConfig(
        (
            Archive("http://d/debian", "bookworm"),
            Archive("http://d/debian", "bookworm-updates"),
            Archive("http://d/security", "bookworm-security"),
        )
    )
    assert archives_for("bookworm", Mirrors(), config) == [Archive("http://d/debian", "bookworm")]
    roots = [a.root for a in archives_for("trixie", Mirrors(debian=("file:///m",)), config)]
    assert roots == ["file:///m", "http://d/debian", "http://d/security"]


def test_settings_of_apt_are_read() -> None:
    text = 'Acquire::http::Proxy "http://p:3128";\nAcquire "";\nnonsense\n'
    assert parse_settings(text)["Acquire::http::Proxy"] == "http://p:3128"


@pytest.mark.parametrize(
    "location",
    ["../etc/passwd", "/etc/passwd", "pool//x", "pool/./x", "pool/../x", "", "a b", "a\nb", "x?y"],
)
def test_a_location_stays_below_its_archive(location: str) -> None:
    with pytest.raises(ReprobuildError):
        check_location(location)


@needs_gpg
def test_a_signed_index_cannot_point_outside_either(tmp_path: Path, archive: DebArchive) -> None:
    archive.add("bad", "1", b"x", location="pool/x.deb")
    archive.stanzas["main"][-1] = archive.stanzas["main"][-1].replace(
        "Filename: pool/x.deb", "Filename: ../../../etc/passwd"
    )
    archive.publish()
    with pytest.raises(ReprobuildError, match="no path below"):
        pins(tmp_path, archive, "bad")


@needs_gpg
def test_a_pin_that_the_archive_dropped_names_what_it_has_now(
    tmp_path: Path, archive: DebArchive
) -> None:
    archive.publish()
    (pin,) = pins(tmp_path, archive, "tool=1.0-1")
    (archive.root / pin.location).unlink()
    settings = FetchSettings(tmp_path / "partial", backoff=0.0, attempts=2)
    by_kind = file_fetchers(
        MemoryStore(tmp_path / "m"),
        settings,
        base=tmp_path,
        places=lambda: Places(settings, apt=config_of(archive)),
    )
    with pytest.raises(ReprobuildError) as caught:
        Fetchers(by_kind).fetch(
            FixedOutput("file", filename=pin.filename, sha256=pin.sha256),
            {
                "kind": "deb",
                "input": "tools",
                "suite": "bookworm",
                "architecture": "amd64",
                "location": pin.location,
                "name": pin.name,
                "version": pin.version,
                "size": pin.size,
            },
            Recorder(),
        )
    error = caught.value
    assert error.code == "E-DEB-GONE"
    assert error.facts["available"] == ["1.0~rc1-1", "1.0-1", "1.0-1+deb12u2"]
    assert "reprobuild lock --update tools" in error.hint


def test_the_hosts_configuration_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("apt-config") is None:
        pytest.skip("apt-config is not installed")
    etc = tmp_path / "etc"
    for name in ("sources.list.d", "auth.conf.d", "trusted.gpg.d"):
        (etc / name).mkdir(parents=True)
    (etc / "sources.list").write_text("deb http://one.example/debian bookworm main\n")
    (etc / "sources.list.d" / "two.sources").write_text(
        "Types: deb\nURIs: https://two.example/\nSuites: bookworm\nComponents: main\n"
    )
    (etc / "sources.list.d" / "off.disabled").write_text("deb http://off.example/ bookworm main\n")
    (etc / "auth.conf.d" / "a.conf").write_text(
        "# a remark\nmachine two.example/\nlogin user password wort\n"
        "machine http://three.example:8080 login u password p\n"
    )
    (etc / "trusted.gpg.d" / "x.asc").write_text("key")
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc "{etc}";\nAcquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::https::Proxy "DIRECT";\nAcquire::https::CaInfo "/ca.pem";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    config = read_apt_config()
    assert config.archives == (
        Archive("http://one.example/debian", "bookworm"),
        Archive("https://two.example", "bookworm"),
    )
    assert config.keyrings[0] == str(etc / "trusted.gpg.d" / "x.asc")
    assert config.access.proxies == {"http": "http://proxy.example:3128"}
    assert config.access.verify == "/ca.pem"
    assert config.access.credentials == {
        "https://two.example": ("user", "wort"),
        "http://three.example:8080": ("u", "p"),
    }
    assert "wort" not in repr(config)
