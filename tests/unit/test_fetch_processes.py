"""Several processes, a process that dies, and a disk that fills up, on one download."""

from __future__ import annotations

import errno
import hashlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.fetch import download
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.filetree import store_file
from reprobuild.adapters.fetch.http import Http
from reprobuild.adapters.fetch.partial import open_partial
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wanted import Place, Wanted
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Sha256
from reprobuild.errors import ReprobuildError
from support.events import Recorder
from support.webserver import Fault, WebServer, web_server

BODY = random.Random(3).randbytes(1_000_000)
DIGEST = hashlib.sha256(BODY).hexdigest()
WANTED = Wanted("thing.bin", Sha256(DIGEST), len(BODY))

CHILD = """
import sys
from pathlib import Path
from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.wanted import Place, Wanted
from reprobuild.adapters.fetch.http import Http
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.core.digest import Sha256
from reprobuild.ports import NullReporter

partial, url, digest, size = sys.argv[1:]
downloads = Downloader(Http(FetchSettings(Path(partial), backoff=0.0, attempts=3)))
wanted = Wanted("thing.bin", Sha256(digest), int(size))
with downloads.obtain(wanted, [Place(url)], NullReporter()) as path:
    print(len(path.read_bytes()))
"""


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


def child(partial: Path, url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(partial), url, DIGEST, str(len(BODY))],
        stdout=subprocess.PIPE,
    )


def here(partial: Path) -> Downloader:
    return Downloader(Http(FetchSettings(partial, backoff=0.0, attempts=2, read_timeout=10.0)))


def test_what_a_killed_process_left_is_resumed(web: WebServer, tmp_path: Path) -> None:
    web.put("/thing.bin", BODY, faults=[Fault("stall", 600_000)])
    partial = tmp_path / "partial"
    process = child(partial, f"{web.url}/thing.bin")
    left = partial / DIGEST
    for _ in range(1000):
        if left.exists() and left.stat().st_size >= 500_000:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    size = left.stat().st_size
    assert 500_000 <= size < len(BODY)
    with here(partial).obtain(WANTED, [Place(f"{web.url}/thing.bin")], Recorder()) as path:
        assert path.read_bytes() == BODY
    assert web.seen[-1].headers["Range"] == f"bytes={size}-"
    assert list(partial.iterdir()) == []


def test_processes_take_turns(web: WebServer, tmp_path: Path) -> None:
    web.put("/thing.bin", BODY, faults=[Fault("cut", 300_000), Fault("cut", 300_000)])
    processes = [child(tmp_path / "partial", f"{web.url}/thing.bin") for _ in range(4)]
    outputs = [process.communicate()[0].strip() for process in processes]
    assert outputs == [str(len(BODY)).encode()] * 4
    assert [process.returncode for process in processes] == [0] * 4
    assert list((tmp_path / "partial").iterdir()) == []


class _FullDisk:
    """A file that takes `room` bytes."""

    def __init__(self, inner: BinaryIO, room: int, code: int) -> None:
        self.inner = inner
        self.room = room
        self.code = code

    def write(self, data: bytes) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(self.code, "no room")
        return self.inner.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def __enter__(self) -> _FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.inner.close()


@pytest.mark.parametrize(
    ("code", "expected", "status"),
    [
        (errno.ENOSPC, "E-DISK-FULL", 10),
        (errno.EDQUOT, "E-DISK-FULL", 10),
        (errno.EIO, "E-FETCH", 4),
    ],
)
def test_a_disk_that_fails_is_said_and_the_rest_resumed(
    web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: str,
    status: int,
) -> None:  # fmt: skip
    web.put("/thing.bin", BODY)
    downloads = here(tmp_path / "partial")

    def full(path: Path) -> BinaryIO:
        return cast(BinaryIO, _FullDisk(open_partial(path), 300_000, code))

    with monkeypatch.context() as patched:
        patched.setattr(download, "open_partial", full)
        with (
            pytest.raises(ReprobuildError) as caught,
            downloads.obtain(WANTED, [Place(f"{web.url}/thing.bin")], Recorder()),
        ):
            pass
    assert caught.value.code == expected
    assert caught.value.exit_status == status
    with downloads.obtain(WANTED, [Place(f"{web.url}/thing.bin")], Recorder()) as path:
        assert path.read_bytes() == BODY
    assert "Range" in web.seen[-1].headers


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    downloads = here(tmp_path / "file" / "partial")
    with (
        pytest.raises(ReprobuildError) as caught,
        downloads.obtain(WANTED, [Place("http://127.0.0.1:1/")], Recorder()),
    ):
        pass
    assert caught.value.code == "E-FETCH"
    assert str(tmp_path / "file") in caught.value.message


def test_a_file_that_changes_after_its_verification_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "thing.bin"
    path.write_bytes(b"changed meanwhile")
    store = MemoryStore(tmp_path / "materialised")
    fixed = FixedOutput("file", filename="thing.bin", sha256=Sha256(DIGEST))
    with pytest.raises(ReprobuildError) as caught:
        store_file(store, path, fixed)
    assert caught.value.code == "E-FETCH-MISMATCH"
    assert store.trees == {}
