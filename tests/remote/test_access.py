"""Who is let in, and that nothing secret shows."""

from __future__ import annotations

import datetime
import io
import ipaddress
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fakes.reapi import Manners, Server
from reprobuild.adapters.remote.access import Access, Token, parse_access
from reprobuild.adapters.remote.address import parse_address
from reprobuild.adapters.remote.platform import platform_of
from reprobuild.core.derivation import Hints
from reprobuild.errors import ReprobuildError
from support.remote import Bench

SECRET = "s3cr3t-token-of-ours"


def code_of(call: object) -> ReprobuildError:
    with pytest.raises(ReprobuildError) as caught:
        call()  # type: ignore[operator]
    return caught.value


# -- addresses ----------------------------------------------------------------------------------


def test_addresses_are_taken_apart() -> None:
    one = parse_address("grpc://127.0.0.1:50051,[::1]:7,build.example/main/x")
    assert one.hosts == ("127.0.0.1:50051", "[::1]:7", "build.example:50051")
    assert (one.instance, one.secure) == ("main/x", False)
    assert parse_address("grpcs://build.example").hosts == ("build.example:443",)


@pytest.mark.parametrize(
    "text",
    [
        "http://a:1",
        "a:1",
        "grpc://",
        "grpc://a:x",
        "grpc://a:0",
        "grpc://a:99999",
        "grpc://a:1,a:1",
    ],
)
def test_addresses_that_are_none(text: str) -> None:
    assert code_of(lambda: parse_address(text)).code == "E-USAGE"


def test_an_address_with_credentials_is_refused_and_not_repeated() -> None:
    error = code_of(lambda: parse_address(f"grpcs://me:{SECRET}@build.example"))
    assert error.code == "E-USAGE"
    assert SECRET not in str(error.as_document())


# -- configuration ------------------------------------------------------------------------------


def test_a_servers_own_table_goes_before_the_common_one() -> None:
    table = {"ca": "a", "token-file": "t", "b:1": {"ca": "b", "jobs": 7}}
    assert parse_access(table, "b:1") == Access(ca="b", token_file="t", jobs=7)
    assert parse_access(table, "c:1") == Access(ca="a", token_file="t")


@pytest.mark.parametrize(
    "table",
    [7, {"ca": 1}, {"tokenfile": "x"}, {"jobs": "7"}, {"jobs": -1}, {"credential-helper": "x"},
     {"properties": {"a": 1}}, {"b:1": 7}],
)  # fmt: skip
def test_configuration_that_is_off(table: object) -> None:
    assert code_of(lambda: parse_access(table, "b:1")).code == "E-CONFIG"


def test_platform_properties() -> None:
    hints = Hints(memory=3 * 2**30 + 1, cores=4)
    assert platform_of(hints, {}) == {"OSFamily": "linux", "ISA": "x86-64"}
    wanted = {"memory": "{memory_mib}", "cores": "{cores}", "pool": "big", "ISA": ""}
    assert platform_of(hints, wanted) == {
        "OSFamily": "linux", "memory": "3073", "cores": "4", "pool": "big",
    }  # fmt: skip
    own = Hints(platform=(("gpu", "sm_120"), ("pool", "small")))
    assert platform_of(own, {"pool": "big"})["pool"] == "small"
    assert platform_of(own, {})["gpu"] == "sm_120"


# -- tokens -------------------------------------------------------------------------------------


def token_file(tmp_path: Path, text: str = SECRET) -> Path:
    path = tmp_path / "token"
    path.write_text(text + "\n")
    return path


def test_a_token_from_a_file_that_changes(tmp_path: Path) -> None:
    path = token_file(tmp_path)
    token = Token(Access(token_file=str(path)), "127.0.0.1:1", secure=False)
    assert token.metadata() == [("authorization", f"Bearer {SECRET}")]
    path.write_text("another")
    assert token.metadata() == [("authorization", "Bearer another")]
    path.unlink()
    error = code_of(token.metadata)
    assert (error.code, error.facts["file"]) == ("E-REMOTE-ACCESS", str(path))


@pytest.mark.parametrize(
    "answer",
    [f'{{"headers": {{"Authorization": ["Bearer {SECRET}"]}}}}', SECRET],
    ids=["protocol", "plain"],
)
def test_a_token_from_a_helper(tmp_path: Path, answer: str) -> None:
    helper = tmp_path / "helper"
    helper.write_text(
        f'#!/bin/sh\ncat > {tmp_path}/asked\necho "$@" > {tmp_path}/words\n'
        f"cat <<'X'\n{answer}\nX\n"
    )
    helper.chmod(0o755)
    token = Token(Access(helper=(str(helper),)), "build.example:443", secure=True)
    assert token.metadata() == [("authorization", f"Bearer {SECRET}")]
    assert (tmp_path / "asked").read_text() == '{"uri": "https://build.example:443/"}'
    assert (tmp_path / "words").read_text() == "get\n"


@pytest.mark.parametrize("text", ["exit 1", "echo", "echo '{}'", "echo two words"])
def test_a_helper_that_fails_says_no_secret(tmp_path: Path, text: str) -> None:
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\necho {SECRET} >&2\n{text}\n")
    helper.chmod(0o755)
    error = code_of(Token(Access(helper=(str(helper),)), "h:1", secure=True).metadata)
    assert error.code == "E-REMOTE-ACCESS"
    assert SECRET not in str(error.as_document())


def test_a_token_does_not_go_in_the_clear(tmp_path: Path) -> None:
    access = Access(token_file=str(token_file(tmp_path)))
    assert code_of(lambda: Token(access, "build.example:1", secure=False)).code == "E-REMOTE-ACCESS"
    Token(access, "127.0.0.1:1", secure=False)


def test_a_server_that_wants_a_token(tmp_path: Path) -> None:
    path = token_file(tmp_path)
    server = Server(Manners(token=SECRET)).start()
    good = Bench([server], access=Access(token_file=str(path)))
    bad = Bench([server])
    try:
        assert good.made(good.run(good.action("x"))) == b"one\nx"
        path.write_text("rotten " + SECRET[::-1])
        error = code_of(lambda: good.run(good.action("y")))
        assert error.code == "E-REMOTE-ACCESS"
        assert SECRET[::-1] not in str(error.as_document())
        assert code_of(lambda: bad.run(bad.action("x"))).code == "E-REMOTE-ACCESS"
    finally:
        good.close()
        bad.close()


def test_a_token_that_got_old_is_asked_for_once_more(tmp_path: Path) -> None:
    helper, count = tmp_path / "helper", tmp_path / "count"
    helper.write_text(f"#!/bin/sh\necho x >> {count}\necho token$(wc -l < {count})\n")
    helper.chmod(0o755)
    server = Server(Manners(token="token1")).start()
    bench = Bench([server], access=Access(helper=(str(helper),)))
    try:
        bench.run(bench.action("x"))
        server.manners.token = "token2"
        assert bench.made(bench.run(bench.action("x", fresh=True))) == b"one\nx"
    finally:
        bench.close()


def test_no_secret_in_process_lists(tmp_path: Path) -> None:
    """Neither arguments nor environment hold it, and no event does."""
    server = Server(Manners(token=SECRET)).start()
    bench = Bench([server], access=Access(token_file=str(token_file(tmp_path))))
    try:
        bench.run(bench.action("x"))
        assert SECRET.encode() not in Path("/proc/self/cmdline").read_bytes()
        assert SECRET not in str(dict(os.environ))
        assert SECRET not in str(bench.report.events)
        assert SECRET.encode() not in bench.log
    finally:
        bench.close()


# -- TLS ----------------------------------------------------------------------------------------


@dataclass
class Certificates:
    """A certificate authority with a server and a client."""

    home: Path

    def __post_init__(self) -> None:
        self._key, self._authority = self._make("authority", None, None)
        self._make("server", self._authority, self._key)
        self._make("client", self._authority, self._key)

    def _make(
        self, name: str, issuer: x509.Certificate | None, signer: ec.EllipticCurvePrivateKey | None
    ) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(
                x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(signer or key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        self.path(f"{name}.pem").write_bytes(made.public_bytes(pem))
        self.path(f"{name}.key").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return key, made

    def path(self, name: str) -> Path:
        return self.home / name

    def server(self) -> object:
        pair = (self.path("server.key").read_bytes(), self.path("server.pem").read_bytes())
        return grpc.ssl_server_credentials([pair], self.path("authority.pem").read_bytes(), True)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def secure(certificates: Certificates) -> Iterator[Server]:
    server = Server(Manners(token=SECRET), credentials=certificates.server()).start()
    yield server
    server.stop()


def test_tls_with_a_client_certificate_and_a_token(
    secure: Server, certificates: Certificates, tmp_path: Path
) -> None:
    access = Access(
        ca=str(certificates.path("authority.pem")),
        certificate=str(certificates.path("client.pem")),
        key=str(certificates.path("client.key")),
        token_file=str(token_file(tmp_path)),
    )
    bench = Bench([secure], access=access)
    try:
        assert bench.made(bench.run(bench.action("x"))) == b"one\nx"
    finally:
        bench.close()


@pytest.mark.parametrize("lacks", ["ca", "certificate"])
def test_without_the_right_certificates_nobody_gets_in(
    secure: Server, certificates: Certificates, tmp_path: Path, lacks: str
) -> None:
    access = Access(
        ca="" if lacks == "ca" else str(certificates.path("authority.pem")),
        certificate="" if lacks == "certificate" else str(certificates.path("client.pem")),
        key="" if lacks == "certificate" else str(certificates.path("client.key")),
        token_file=str(token_file(tmp_path)),
    )
    bench = Bench([secure], access=access, patience=0.5)
    try:
        assert code_of(lambda: bench.run(bench.action("x"))).code == "E-REMOTE-LOST"
        assert secure.calls == []
    finally:
        bench.close()


def test_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    server = Server(port=1)
    bench = Bench([server], access=Access(ca=str(tmp_path / "none.pem")))
    server.credentials = object()
    try:
        error = code_of(lambda: bench.executor.run(bench.action("x"), io.BytesIO(), bench.cancel))
        assert (error.code, error.facts["file"]) == ("E-REMOTE-ACCESS", str(tmp_path / "none.pem"))
    finally:
        bench.close()
