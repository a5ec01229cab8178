"""Downloading one file through everything that a network does to it."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import Http
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wanted import Place, Wanted
from reprobuild.core.digest import Sha256
from reprobuild.errors import ReprobuildError
from support.events import Recorder
from support.webserver import Fault, Resource, WebServer, web_server

BODY = random.Random(7).randbytes(1_500_000)
DIGEST = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


def settings(tmp_path: Path, **changes: object) -> FetchSettings:
    fields: dict[str, object] = {"backoff": 0.0, "read_timeout": 10.0, "attempts": 4, **changes}
    return FetchSettings(tmp_path / "partial", **fields)  # type: ignore[arg-type]


@pytest.fixture
def downloads(tmp_path: Path) -> Downloader:
    return Downloader(Http(settings(tmp_path)))


def wanted(size: int = len(BODY), digest: str = DIGEST) -> Wanted:
    return Wanted("thing.bin", Sha256(digest), size)


def obtain(downloads: Downloader, *urls: str, what: Wanted | None = None) -> bytes:
    with downloads.obtain(what or wanted(), [Place(u) for u in urls], Recorder()) as path:
        return path.read_bytes()


def left(downloads: Downloader) -> list[str]:
    return sorted(p.name for p in downloads.settings.partial_dir.iterdir())


def served(web: WebServer, *faults: Fault, always: Fault | None = None) -> tuple[Resource, str]:
    resource = web.put("/thing.bin", BODY, faults=list(faults), always=always)
    return resource, f"{web.url}/thing.bin"


def test_a_plain_download_leaves_nothing_behind(web: WebServer, downloads: Downloader) -> None:
    _, url = served(web)
    assert obtain(downloads, url) == BODY
    assert left(downloads) == []


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_in_trouble_is_asked_again(
    web: WebServer, downloads: Downloader, status: int
) -> None:
    _, url = served(web, Fault("status", status), Fault("status", status))
    assert obtain(downloads, url) == BODY
    assert len(web.seen) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_refusal_is_final(web: WebServer, downloads: Downloader, status: int) -> None:
    _, url = served(web, always=Fault("status", status))
    with pytest.raises(ReprobuildError) as caught:
        obtain(downloads, url)
    assert caught.value.code == "E-FETCH"
    assert str(status) in caught.value.message
    assert caught.value.facts.get("gone") is (True if status in (404, 410) else None)
    assert len(web.seen) == 1
    assert left(downloads) == []


def test_trouble_that_does_not_end_is_reported(web: WebServer, downloads: Downloader) -> None:
    _, url = served(web, always=Fault("status", 503))
    with pytest.raises(ReprobuildError, match="503"):
        obtain(downloads, url)
    assert len(web.seen) == 4


def test_a_cut_body_goes_on_where_it_was_cut(web: WebServer, downloads: Downloader) -> None:
    _, url = served(web, Fault("cut", 400_000), Fault("reset"), Fault("cut", 500_000))
    assert obtain(downloads, url) == BODY
    ranges = [seen.headers.get("Range") for seen in web.seen]
    assert ranges[0] is None
    assert ranges[1] == "bytes=400000-"
    assert ranges[3] == "bytes=900000-"


def test_a_later_run_resumes_what_an_earlier_one_left(
    web: WebServer, downloads: Downloader
) -> None:
    resource, url = served(web, *[Fault("cut", 300_000)] * 4)
    with pytest.raises(ReprobuildError) as caught:
        obtain(downloads, url)
    assert caught.value.code == "E-FETCH"
    assert left(downloads) == [DIGEST]
    assert (downloads.settings.partial_dir / DIGEST).read_bytes() == BODY[:1_200_000]
    web.seen.clear()
    resource.faults.clear()
    assert obtain(downloads, url) == BODY
    assert [seen.headers.get("Range") for seen in web.seen] == ["bytes=1200000-"]
    assert left(downloads) == []


def test_a_server_that_ignores_range_starts_over(web: WebServer, downloads: Downloader) -> None:
    _, url = served(web, Fault("cut", 400_000), Fault("whole"))
    assert obtain(downloads, url) == BODY


def test_content_that_changed_between_pieces_starts_over(
    web: WebServer, downloads: Downloader
) -> None:
    resource, url = served(web, Fault("cut", 400_000))
    resource.body, resource.etag = b"x" * len(BODY), '"old"'

    class Swap(Recorder):
        def emit(self, event: str, **fields: object) -> None:
            resource.body, resource.etag = BODY, '"new"'

    with downloads.obtain(wanted(), [Place(url)], Swap()) as path:
        assert path.read_bytes() == BODY
    assert web.seen[1].headers["If-Range"] == '"old"'


@pytest.mark.parametrize("size", [len(BODY), -1])
def test_a_spoilt_partial_file_is_not_trusted(
    web: WebServer, downloads: Downloader, size: int
) -> None:
    _, url = served(web)
    directory = downloads.settings.partial_dir
    directory.mkdir()
    (directory / DIGEST).write_bytes(b"not the beginning")
    assert obtain(downloads, url, what=wanted(size)) == BODY


@pytest.mark.parametrize("size", [len(BODY), -1])
def test_a_partial_file_that_is_too_long_is_dropped(
    web: WebServer, downloads: Downloader, size: int
) -> None:
    _, url = served(web)
    directory = downloads.settings.partial_dir
    directory.mkdir()
    (directory / DIGEST).write_bytes(BODY + b"more")
    assert obtain(downloads, url, what=wanted(size)) == BODY


def test_a_whole_partial_file_needs_no_network(downloads: Downloader) -> None:
    directory = downloads.settings.partial_dir
    directory.mkdir()
    (directory / DIGEST).write_bytes(BODY)
    assert obtain(downloads) == BODY


def test_wrong_content_names_both_digests_and_is_dropped(
    web: WebServer, downloads: Downloader
) -> None:
    other = b"y" * len(BODY)
    web.put("/thing.bin?token=geheim", other)
    with pytest.raises(ReprobuildError) as caught:
        obtain(downloads, f"{web.url}/thing.bin?token=geheim")
    error = caught.value
    assert error.code == "E-FETCH-MISMATCH"
    assert error.exit_status == 4
    assert DIGEST in error.message
    assert hashlib.sha256(other).hexdigest() in error.message
    assert "geheim" not in error.message + str(error.facts)
    assert left(downloads) == []
    assert len(web.seen) == 1


def test_the_next_place_makes_good_for_a_wrong_one(web: WebServer, downloads: Downloader) -> None:
    web.put("/stale", b"z" * len(BODY))
    _, url = served(web)
    report = Recorder()
    with downloads.obtain(wanted(), [Place(f"{web.url}/stale"), Place(url)], report) as path:
        assert path.read_bytes() == BODY
    assert [event["text"] for event in report.named("note")] == [
        f"thing.bin: {web.url}/stale gave other content"
    ]


def test_a_place_goes_on_where_another_was_cut(web: WebServer, downloads: Downloader) -> None:
    web.put("/flaky", BODY, always=Fault("cut", 200_000), faults=[])
    web.resources["/flaky"].faults = [Fault("cut", 200_000)] + [Fault("status", 500)] * 9
    _, url = served(web)
    assert obtain(downloads, f"{web.url}/flaky", url) == BODY
    assert web.requests("/thing.bin")[0].headers["Range"] == "bytes=200000-"


@pytest.mark.parametrize("size", [0, 1, 700_000, len(BODY) - 1, len(BODY) + 1, 3_000_000])
@pytest.mark.parametrize("framing", ["length", "chunked", "unframed"])
def test_content_of_another_size_is_named_and_dropped(
    web: WebServer, downloads: Downloader, size: int, framing: str
) -> None:
    body = (BODY * 2)[:size]
    web.put("/other", body, always=None if framing == "length" else Fault(framing))
    with pytest.raises(ReprobuildError) as caught:
        obtain(downloads, f"{web.url}/other")
    if framing != "unframed" or size > len(BODY):
        assert caught.value.code == "E-FETCH-MISMATCH"
        assert caught.value.facts["got"] == f"sha256:{hashlib.sha256(body).hexdigest()}"
        assert caught.value.facts["got_size"] == size
        assert left(downloads) == []
    else:  # without a length, the end of a body and its loss look the same
        assert caught.value.code == "E-FETCH"


@pytest.mark.parametrize("declared", [True, False])
def test_far_more_than_the_pinned_size_is_cut_short(
    web: WebServer, downloads: Downloader, declared: bool
) -> None:
    if declared:
        headers = (("Content-Length", str(10**15)),)
        web.put("/big", b"", always=Fault("endless", headers=headers))
    else:
        web.put("/big", b"", always=Fault("endless"))
    with pytest.raises(ReprobuildError) as caught:
        obtain(downloads, f"{web.url}/big")
    assert caught.value.code == "E-FETCH-MISMATCH"
    assert "bytes or more" in caught.value.message
    assert left(downloads) == []


def test_an_endless_body_ends(web: WebServer, tmp_path: Path) -> None:
    web.put("/endless", b"", always=Fault("endless"))
    downloads = Downloader(Http(settings(tmp_path, max_size=1_000_000)))
    with pytest.raises(ReprobuildError) as caught:
        obtain(downloads, f"{web.url}/endless", what=wanted(-1))
    assert caught.value.code == "E-FETCH-MISMATCH"
    with pytest.raises(ReprobuildError, match="more than 1000000 bytes"):
        downloads.obtain_unknown("endless", [Place(f"{web.url}/endless")], Recorder())
    assert left(downloads) == []


def test_a_body_that_stalls_counts_as_cut(web: WebServer, tmp_path: Path) -> None:
    _, url = served(web, Fault("stall", 200_000))
    downloads = Downloader(Http(settings(tmp_path, read_timeout=0.3)))
    assert obtain(downloads, url) == BODY
    assert web.seen[1].headers["Range"] == "bytes=200000-"  # all that had come


def test_a_redirect_is_followed(web: WebServer, downloads: Downloader) -> None:
    served(web)
    web.put("/moved", b"", always=Fault("redirect", location="/thing.bin"))
    assert obtain(downloads, f"{web.url}/moved") == BODY


def test_redirects_in_a_circle_end(web: WebServer, downloads: Downloader) -> None:
    web.put("/round", b"", always=Fault("redirect", location="/round"))
    with pytest.raises(ReprobuildError, match="too many redirects"):
        obtain(downloads, f"{web.url}/round")


def test_an_unreachable_host_is_said_so(downloads: Downloader) -> None:
    with web_server() as gone:
        url = f"http://user:geheim@{gone.host}/x"
    with pytest.raises(ReprobuildError) as caught:
        obtain(downloads, url)
    assert caught.value.code == "E-FETCH"
    assert "refused" in caught.value.message
    assert "geheim" not in caught.value.message + str(caught.value.facts)


def test_offline_asks_nobody_but_reads_files(web: WebServer, tmp_path: Path) -> None:
    _, url = served(web)
    downloads = Downloader(Http(settings(tmp_path, offline=True)))
    with pytest.raises(ReprobuildError) as caught:
        obtain(downloads, url)
    assert caught.value.code == "E-OFFLINE"
    assert caught.value.exit_status == 8
    assert "thing.bin" in caught.value.message
    assert web.seen == []
    local = tmp_path / "mirror.bin"
    local.write_bytes(BODY)
    assert obtain(downloads, local.as_uri(), url) == BODY


def test_credentials_in_a_url_are_sent_and_not_shown(web: WebServer, downloads: Downloader) -> None:
    web.put("/thing.bin", BODY, authorization="Basic dXNlcjpnZUBoZWlt")
    assert obtain(downloads, f"http://user:ge%40heim@{web.host}/thing.bin") == BODY
    with pytest.raises(ReprobuildError) as caught:
        obtain(downloads, f"http://user:falsch@{web.host}/thing.bin")
    assert "falsch" not in caught.value.message + str(caught.value.facts) + caught.value.hint


def test_a_block_that_fails_keeps_the_file_for_next_time(
    web: WebServer, downloads: Downloader
) -> None:
    _, url = served(web)
    with pytest.raises(KeyError), downloads.obtain(wanted(), [Place(url)], Recorder()):
        raise KeyError
    assert left(downloads) == [DIGEST]
    assert obtain(downloads) == BODY


def test_several_at_once_are_safe(web: WebServer, tmp_path: Path) -> None:
    _, url = served(web, Fault("cut", 100_000), Fault("cut", 100_000))
    results: list[bytes] = []

    def one() -> None:
        results.append(obtain(Downloader(Http(settings(tmp_path))), url))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [BODY] * 6
    assert list((tmp_path / "partial").iterdir()) == []


def test_what_is_kept_is_not_fetched_twice(web: WebServer, downloads: Downloader) -> None:
    _, url = served(web)
    digest, size = downloads.obtain_unknown("thing", [Place(url)], Recorder())
    assert (digest, size) == (Sha256(DIGEST), len(BODY))
    assert obtain(downloads) == BODY
    assert len(web.seen) == 1


def test_cancelling_ends_a_pause(web: WebServer, tmp_path: Path) -> None:
    _, url = served(web, always=Fault("status", 503, headers=(("Retry-After", "600"),)))
    options = settings(tmp_path, longest_pause=600.0)
    threading.Timer(0.2, options.cancel.set).start()
    with pytest.raises(ReprobuildError) as caught:
        obtain(Downloader(Http(options)), url)
    assert caught.value.code == "E-INTERRUPTED"


def test_progress_is_told_sparingly(web: WebServer, downloads: Downloader) -> None:
    _, url = served(web)
    report = Recorder()
    with downloads.obtain(wanted(), [Place(url)], report):
        pass
    events = report.named("fetch-progress")
    assert events[-1] == {"name": "thing.bin", "done": len(BODY), "total": len(BODY)}
    assert len(events) <= 1 + len(BODY) // (256 * 1024)


class NoPause(threading.Event):
    """Nobody waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@pytest.mark.parametrize("of_known", [True, False])
def test_a_long_pause_is_no_silence(of_known: bool, web: WebServer, tmp_path: Path) -> None:
    later = Fault("status", 503, headers=(("Retry-After", "30"),))
    served(web, Fault("status", 500), later, Fault("status", 502))
    url = web.url.replace("//", "//user:secret@") + "/thing.bin"
    report = Recorder()
    options = settings(tmp_path, backoff=0.75, cancel=NoPause(), reporter=report)
    downloads = Downloader(Http(options))
    if of_known:
        assert obtain(downloads, url) == BODY
    else:
        assert downloads.obtain_unknown("thing.bin", [Place(url)], Recorder()) == (
            Sha256(DIGEST),
            len(BODY),
        )
    notes = [str(event["text"]) for event in report.named("note")]
    assert [note.partition(": ")[0] for note in notes] == [f"{web.url}/thing.bin"] * 2
    assert "HTTP status 503" in notes[0] and "again in 30 s (3 of 4 attempts)" in notes[0]
    assert "HTTP status 502" in notes[1] and "again in 3 s (4 of 4 attempts)" in notes[1]
