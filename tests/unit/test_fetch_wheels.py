"""Pinning wheels and sdists: which file, from where, for which target."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.adapters.fetch.pipconfig import (
    PipConfig,
    default_index,
    parse_pip_config,
    read_pip_config,
)
from reprobuild.adapters.fetch.places import Places
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wheeltags import Target, parse_filename
from reprobuild.core.mirrors import Mirrors
from reprobuild.core.pins import FilePin
from reprobuild.errors import ReprobuildError
from support.events import Recorder
from support.webserver import Fault, WebServer, web_server

JSON = "application/vnd.pypi.simple.v1+json"


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def html_index(
    web: WebServer, project: str, files: Mapping[str, bytes], *, hashes: bool = True, at: str = ""
) -> None:
    """A PEP 503 project page and its files."""
    links = []
    for name, body in files.items():
        web.put(f"{at}/files/{name}", body)
        fragment = f"#sha256={sha(body)}" if hashes else ""
        links.append(f'<a href="../../files/{name}{fragment}">{name}</a>')
    page = "<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>"
    web.put(f"{at}/simple/{project}/", page.encode(), content_type="text/html; charset=utf-8")


def json_index(web: WebServer, project: str, files: Mapping[str, bytes], **extra: object) -> None:
    """A PEP 691 project page and its files; `extra` goes into each file's entry."""
    entries = []
    for name, body in files.items():
        web.put(f"/files/{name}", body)
        entries.append(
            {
                "filename": name,
                "url": f"/files/{name}",
                "hashes": {"sha256": sha(body)},
                "size": len(body),
                **extra,
            }
        )
    page = {"meta": {"api-version": "1.1"}, "name": project, "versions": [], "files": entries}
    web.put(f"/simple/{project}/", json.dumps(page).encode(), content_type=JSON)


def discovery(
    tmp_path: Path, config: PipConfig, report: Recorder | None = None, **changes: object
) -> Discovery:
    fields: dict[str, object] = {"backoff": 0.0, "attempts": 2, **changes}
    settings = FetchSettings(tmp_path / "partial", **fields)  # type: ignore[arg-type]
    return Discovery(settings, report=report, places=lambda: Places(settings, pip=config))


def at(web: WebServer) -> PipConfig:
    return PipConfig(indexes=(f"{web.url}/simple",))


WHEELS = {
    "thing-1.0-cp311-cp311-manylinux_2_28_x86_64.whl": b"newer glibc",
    "thing-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": b"older glibc",
    "thing-1.0-cp311-cp311-manylinux_2_39_x86_64.whl": b"glibc of tomorrow",
    "thing-1.0-cp311-cp311-musllinux_1_2_x86_64.whl": b"another libc",
    "thing-1.0-cp312-cp312-manylinux_2_28_x86_64.whl": b"another python",
    "thing-1.0-cp39-abi3-manylinux_2_28_x86_64.whl": b"stable interface",
    "thing-1.0-py3-none-any.whl": b"pure",
    "thing-1.0-cp311-cp311-win_amd64.whl": b"windows",
    "thing-1.0.tar.gz": b"source",
    "thing-1.0.zip": b"zipped source",
    "thing-2.0-py3-none-any.whl": b"another version",
    "other-1.0-cp311-cp311-manylinux_2_28_x86_64.whl": b"another project",
}


@pytest.mark.parametrize("make", [html_index, json_index])
def test_the_best_wheel_is_pinned(web: WebServer, tmp_path: Path, make: object) -> None:
    make(web, "thing", WHEELS)  # type: ignore[operator]
    pin = discovery(tmp_path, at(web)).wheel("Thing", "1.0")
    name = "thing-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert pin == FilePin("thing", "1.0", name, 11, pin.sha256)
    assert pin.sha256.hex == sha(b"newer glibc")


def test_the_order_of_the_index_does_not_matter(web: WebServer, tmp_path: Path) -> None:
    json_index(web, "thing", dict(reversed(WHEELS.items())))
    pin = discovery(tmp_path, at(web)).wheel("thing", "1.0")
    assert pin.filename == "thing-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("python", "glibc", "body"),
    [
        ("3.11", 28, b"newer glibc"),
        ("3.11", 27, b"older glibc"),
        ("3.11", 39, b"glibc of tomorrow"),
        ("3.12", 36, b"another python"),
        ("3.10", 36, b"stable interface"),
        ("3.10", 12, b"pure"),
        ("3.8", 36, b"pure"),
    ],
)
def test_the_target_decides(
    web: WebServer, tmp_path: Path, python: str, glibc: int, body: bytes
) -> None:
    json_index(web, "thing", WHEELS)
    pin = discovery(tmp_path, at(web)).wheel("thing", "1.0", python=python, glibc=glibc)
    assert pin.sha256.hex == sha(body)


def test_the_order_of_tags_is_that_of_packaging_here() -> None:
    """Against the library's own list, wherever this machine happens to be such a target."""
    from packaging.tags import sys_tags

    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    libc, _, version = os.confstr("CS_GNU_LIBC_VERSION").partition(" ")  # type: ignore[union-attr]
    if libc != "glibc" or os.uname().machine != "x86_64" or sys.implementation.name != "cpython":
        pytest.skip("this interpreter is no CPython on x86-64 glibc")
    ours = list(Target(minor, int(version.split(".")[1])).ranks)
    theirs = list(sys_tags())
    assert set(ours) == set(theirs)
    # A plain linux_x86_64 says nothing of the glibc it needs; packaging moved it to the front
    # once. Here it comes after what promises more.
    plain = "linux_x86_64"
    assert [t for t in ours if t.platform != plain] == [t for t in theirs if t.platform != plain]
    assert [t.platform for t in ours if t.abi == ours[0].abi][-1] == plain


def test_a_higher_build_tag_wins_and_then_the_name(web: WebServer, tmp_path: Path) -> None:
    files = {f"thing-1.0-{n}-py3-none-any.whl": f"build {n}".encode() for n in (1, 10, 9)}
    json_index(web, "thing", {"thing-1.0-py3-none-any.whl": b"none", **files})
    pin = discovery(tmp_path, at(web)).wheel("thing", "1.0")
    assert pin.sha256.hex == sha(b"build 10")


def test_the_version_must_match_whole(web: WebServer, tmp_path: Path) -> None:
    json_index(web, "thing", {"thing-1.0+cpu-py3-none-any.whl": b"local"})
    with pytest.raises(ReprobuildError) as caught:
        discovery(tmp_path, at(web)).wheel("thing", "1.0")
    assert caught.value.code == "E-PACKAGE-MISSING"
    assert caught.value.facts["available"] == ["1.0+cpu"]
    assert discovery(tmp_path, at(web)).wheel("thing", "1.0+cpu").size == 5


def test_two_spellings_of_a_version_are_one(web: WebServer, tmp_path: Path) -> None:
    json_index(web, "thing", {"thing-1.0.0-py3-none-any.whl": b"x"})
    assert discovery(tmp_path, at(web)).wheel("thing", "1.0").filename.startswith("thing-1.0.0")


def test_requires_python_is_minded(web: WebServer, tmp_path: Path) -> None:
    json_index(web, "thing", {"thing-1.0-py3-none-any.whl": b"x"}, **{"requires-python": ">=3.12"})
    with pytest.raises(ReprobuildError, match=r"no wheel of thing 1\.0 runs"):
        discovery(tmp_path, at(web)).wheel("thing", "1.0")
    assert discovery(tmp_path, at(web)).wheel("thing", "1.0", python="3.12").size == 1


def test_no_fitting_wheel_names_what_there_is(web: WebServer, tmp_path: Path) -> None:
    json_index(web, "thing", {"thing-1.0-cp311-cp311-win_amd64.whl": b"x"})
    with pytest.raises(ReprobuildError, match="win_amd64") as caught:
        discovery(tmp_path, at(web)).wheel("thing", "1.0")
    assert caught.value.code == "E-PACKAGE-MISSING"


def test_no_such_project(web: WebServer, tmp_path: Path) -> None:
    with pytest.raises(ReprobuildError) as caught:
        discovery(tmp_path, at(web)).wheel("thing", "1.0")
    assert caught.value.code == "E-PACKAGE-MISSING"


@pytest.mark.parametrize("version", ["", ">=1.0", "one", "1.0 ; evil"])
def test_a_version_must_be_one(web: WebServer, tmp_path: Path, version: str) -> None:
    with pytest.raises(ReprobuildError, match="no version"):
        discovery(tmp_path, at(web)).wheel("thing", version)


def test_the_source_archive_is_pinned(web: WebServer, tmp_path: Path) -> None:
    json_index(web, "thing", WHEELS)
    pin = discovery(tmp_path, at(web)).sdist("thing", "1.0")
    assert (pin.filename, pin.sha256.hex) == ("thing-1.0.tar.gz", sha(b"source"))


def test_a_yanked_release_is_pinned_with_a_warning(web: WebServer, tmp_path: Path) -> None:
    json_index(web, "thing", {"thing-1.0-py3-none-any.whl": b"x"}, yanked="broken")
    report = Recorder()
    assert discovery(tmp_path, at(web), report).wheel("thing", "1.0").size == 1
    assert "yanked" in str(report.named("note"))


def test_what_the_index_does_not_say_is_computed(web: WebServer, tmp_path: Path) -> None:
    html_index(web, "thing", {"thing-1.0-py3-none-any.whl": b"silent"}, hashes=False)
    pin = discovery(tmp_path, at(web)).wheel("thing", "1.0")
    assert (pin.size, pin.sha256.hex) == (6, sha(b"silent"))


def test_a_hash_that_the_file_does_not_have_is_refused(web: WebServer, tmp_path: Path) -> None:
    html_index(web, "thing", {"thing-1.0-py3-none-any.whl": b"x"})  # a hash, but no size
    web.put("/files/thing-1.0-py3-none-any.whl", b"y")
    with pytest.raises(ReprobuildError) as caught:
        discovery(tmp_path, at(web)).wheel("thing", "1.0")
    assert caught.value.code == "E-FETCH-MISMATCH"


def test_directories_are_searched(tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "thing-1.0-py3-none-any.whl").write_bytes(b"linked")
    (links / "thing-broken.whl").write_bytes(b"?")
    for config, mirrors in (
        (PipConfig((), (str(links),)), Mirrors()),
        (PipConfig((), (links.as_uri(),)), Mirrors()),
        (PipConfig((), ()), Mirrors(wheels=(links.as_uri(),))),
    ):
        pin = discovery(tmp_path, config, mirrors=mirrors, offline=True).wheel("thing", "1.0")
        assert (pin.size, pin.sha256.hex) == (6, sha(b"linked"))


def test_an_index_of_files_works_without_a_network(tmp_path: Path) -> None:
    body = b"filed"
    project = tmp_path / "simple" / "thing"
    project.mkdir(parents=True)
    (tmp_path / "files").mkdir()
    name = "thing-1.0-py3-none-any.whl"
    (tmp_path / "files" / name).write_bytes(body)
    (project / "index.html").write_text(
        f'<a href="../../files/{name}#sha256={sha(body)}">{name}</a>'
    )
    config = PipConfig(((tmp_path / "simple").as_uri(), (tmp_path / "absent").as_uri()))
    pin = discovery(tmp_path, config, offline=True).wheel("thing", "1.0")
    assert (pin.size, pin.sha256.hex) == (5, sha(body))
    assert not (tmp_path / "partial").exists()


def test_a_silent_index_is_no_reason_to_choose_elsewhere(web: WebServer, tmp_path: Path) -> None:
    json_index(web, "thing", {"thing-1.0-py3-none-any.whl": b"x"})
    web.put("/down/thing/", b"", always=Fault("status", 503))
    config = PipConfig((f"{web.url}/simple", f"{web.url}/down"))
    with pytest.raises(ReprobuildError) as caught:
        discovery(tmp_path, config).wheel("thing", "1.0")
    assert caught.value.code == "E-FETCH"
    assert "/down" in caught.value.message


def test_offline_names_what_is_missing(web: WebServer, tmp_path: Path) -> None:
    with pytest.raises(ReprobuildError) as caught:
        discovery(tmp_path, at(web), offline=True).wheel("thing", "1.0")
    assert caught.value.code == "E-OFFLINE"
    assert "thing 1.0" in caught.value.message
    assert web.seen == []


def test_index_credentials_go_to_the_index_alone(web: WebServer, tmp_path: Path) -> None:
    with web_server() as elsewhere:
        body = b"private"
        name = "thing-1.0-py3-none-any.whl"
        elsewhere.put(f"/{name}", body)
        page = f'<a href="{elsewhere.url}/{name}">{name}</a><a href="/near.whl">near.whl</a>'
        secret = "Basic dXNlcjpnZWhlaW0="
        web.put("/simple/thing/", page.encode(), content_type="text/html", authorization=secret)
        config = PipConfig((f"http://user:geheim@{web.host}/simple",))
        assert discovery(tmp_path, config).wheel("thing", "1.0").sha256.hex == sha(body)
        assert web.seen[0].headers["Authorization"] == secret
        assert "Authorization" not in elsewhere.seen[0].headers
    wrong = PipConfig((f"http://user:falsch@{web.host}/simple",))
    with pytest.raises(ReprobuildError) as caught:
        discovery(tmp_path, wrong).wheel("thing", "1.0")
    assert "falsch" not in caught.value.message + str(caught.value.facts) + repr(wrong.proxy)


def test_index_mirrors_are_tried_first(web: WebServer, tmp_path: Path) -> None:
    json_index(web, "thing", {"thing-1.0-py3-none-any.whl": b"x"})
    mirrors = Mirrors(rules=(("https://index.invalid/", (f"{web.url}/",)),))
    config = PipConfig(("https://index.invalid/simple",))
    assert discovery(tmp_path, config, mirrors=mirrors).wheel("thing", "1.0").size == 1


# -- what pip is configured for -----------------------------------------------------------------


def test_pip_options_override_by_section() -> None:
    config = parse_pip_config(
        "global.index-url='https://global/simple'\n"
        "global.find-links='/one\\n/two'\n"
        "global.extra-index-url='file:///a https://b/simple'\n"
        "install.index-url='https://install/simple'\n"
        "download.index-url='https://download/simple'\n"
        ":env:.trusted-host='h1 h2:8080'\n"
        ":env:.cert='/ca.pem'\n"
        "nonsense\nglobal.broken='\n"
    )
    assert config == PipConfig(
        ("https://download/simple", "file:///a", "https://b/simple"),
        ("/one", "/two"),
        cert="/ca.pem",
        trusted_hosts=("h1", "h2:8080"),
    )


def test_pip_without_configuration_uses_its_default() -> None:
    assert parse_pip_config("").indexes == (default_index(),)
    assert parse_pip_config("global.no-index='true'").indexes == ()


def test_without_a_pip_its_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "variable.example")
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    config = read_pip_config()
    assert config.indexes[0] == "https://variable.example/simple"
    assert config.trusted_hosts == ("variable.example",)


def test_the_real_pip_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "pip", "--version"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this interpreter has no pip")
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://u:p@file.example/simple\nfind-links =\n    /one\n    /two\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://extra.example/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    config = read_pip_config()
    assert config.indexes == (
        "https://u:p@file.example/simple",
        "https://extra.example/simple",
    )
    assert config.find_links == ("/one", "/two")


@pytest.mark.parametrize(
    "filename",
    ["thing", "thing.whl", "thing-1.0.whl", "thing-1.0-py3.whl", "thing-x-py3-none-any.whl",
     "thing-1.0.tar.bz2", "thing-1.0.exe", ".whl", "-1.0.tar.gz", "thing-.tar.gz"],
)  # fmt: skip
def test_names_that_are_off_are_passed_over(filename: str) -> None:
    assert parse_filename(filename) is None
