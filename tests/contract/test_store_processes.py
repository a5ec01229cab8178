"""Other processes take a share of many short files: same result, whatever becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reprobuild.adapters.store import crew, parts, taking
from reprobuild.adapters.store import verify as verify_module
from reprobuild.adapters.store.capture import Keeping
from reprobuild.adapters.store.crew import Crew
from reprobuild.adapters.store.process import Process
from reprobuild.adapters.store.staging import Staging
from reprobuild.adapters.store.store import LocalStore
from reprobuild.adapters.store.taker import Naming
from reprobuild.adapters.store.treedigest import tree_digest
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from support.stores import blob_path, flip

DIRECTORIES, FILES = 30, 20


@pytest.fixture
def content(tmp_path: Path) -> Path:
    """Short files, some alike, some executable, and all else that a tree can hold."""
    top = tmp_path / "content"
    for number in range(DIRECTORIES):
        place = top / f"d{number % 7}" / f"e{number}"
        place.mkdir(parents=True)
        for file in range(FILES):
            path = place / f"f{file}"
            path.write_bytes(b"%d\n" % (number * file % 97) * file)
            path.chmod(0o755 if file % 5 == 0 else 0o644)
    (top / "long").write_bytes(bytes(range(256)) * 4096)
    (top / "d3" / "long").write_bytes(bytes(range(255)) * 512)
    (top / "d1" / "link").symlink_to("nowhere")
    os.mkdir(os.fsencode(top) + b"/\xff\xfe")
    (top / "d2" / os.fsdecode(b"\xe9")).write_bytes(b"no UTF-8")
    return top


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Processes come early, also where there is one core; none may be left."""
    monkeypatch.setattr(taking, "WORTH", 40 * taking.OVERHEAD)
    monkeypatch.setattr(verify_module, "_WORTH", 4 * 2**16)
    monkeypatch.setattr(crew, "spare_cores", lambda: 2)
    before = sorted(os.listdir("/proc/self/fd"))
    yield
    assert sorted(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What processes answered."""
    answers: list[Any] = []
    real = Process.answers

    def seen(self: Process, *, wait: bool) -> list[Any]:
        found = real(self, wait=wait)
        answers.extend(found)
        return found

    monkeypatch.setattr(Process, "answers", seen)
    return answers


def plain(content: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tree's digest, found alone."""
    with monkeypatch.context() as patch:
        patch.setattr(taking, "WORTH", 2**62)
        return tree_digest(content).hex


def captured(content: Path, home: Path) -> str:
    """The tree in a new store, which must be whole, and hold what the directory holds."""
    with LocalStore.open(home, create=True) as store:
        tree = store.capture(content)
        store.barrier()
        report = store.verify(jobs=1)
        assert report.problems == []
        made = store.materialise(tree)
        for path in content.rglob("*"):
            there = made / path.relative_to(content)
            if path.is_file():
                assert there.read_bytes() == path.read_bytes()
                assert bool(there.stat().st_mode & 0o100) == bool(path.stat().st_mode & 0o100)
    assert list((home / "tmp").iterdir()) == []
    return tree.hex


def test_the_digest_is_the_same(
    content: Path, answered: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tree_digest(content).hex == plain(content, monkeypatch)
    assert answered and None not in answered


def test_all_content_comes_into_the_store(
    content: Path, tmp_path: Path, answered: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert captured(content, tmp_path / "store") == plain(content, monkeypatch)
    assert answered and None not in answered
    assert any(handed[0] for _, _, handed in answered)
    # Once more: what is here is found, costs no write, and is made durable with its name.
    answered.clear()
    shards: list[str] = []
    real = Staging._sync_directories

    def sync(self: Staging, directories: Iterable[str]) -> None:
        wanted = list(directories)
        shards.extend(wanted)
        real(self, wanted)

    monkeypatch.setattr(Staging, "_sync_directories", sync)
    assert captured(content, tmp_path / "store") == plain(content, monkeypatch)
    assert answered and not any(handed[0] for _, _, handed in answered)
    found = {path for _, _, handed in answered for path in handed[1]}
    assert found and found <= set(shards)
    assert {path.name for path in (tmp_path / "store" / "blobs").iterdir()} == {
        shard.rpartition("/")[2] for shard in shards if "/blobs/" in shard
    }


def test_a_blob_that_rotted_is_not_confirmed(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        store.capture(content)
        store.barrier()
    for blob in (tmp_path / "store" / "blobs").rglob("*"):
        if blob.is_file() and blob.stat().st_size:
            flip(blob)
    with (
        LocalStore.open(tmp_path / "store") as store,
        pytest.raises(ReprobuildError) as error,
    ):
        store.capture(content)
    assert error.value.code == "E-STORE-DAMAGED"


@pytest.mark.parametrize("when", [1, 2])
def test_one_that_is_killed_costs_nothing_but_time(
    when: int, content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Process.ask
    asked = 0

    def ask(self: Process, request: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == when:
            os.kill(self._pid, signal.SIGKILL)
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        real(self, request)

    monkeypatch.setattr(Process, "ask", ask)
    assert captured(content, tmp_path / "store") == plain(content, monkeypatch)
    assert asked >= when


CAPTURE = """\
import sys
from pathlib import Path
from reprobuild.adapters.store import crew, taking
from reprobuild.adapters.store.store import LocalStore
taking.WORTH = 40 * taking.OVERHEAD
crew.spare_cores = lambda: 2
with LocalStore.open(Path(sys.argv[1]), create=True) as store:
    while True:
        store.capture(Path(sys.argv[2]))
        store.close()
        print("once", flush=True)
"""


@pytest.mark.parametrize("after", [0.0, 0.01, 0.05])
def test_it_ends_with_the_one_that_started_it(after: float, content: Path, tmp_path: Path) -> None:
    home = tmp_path / "store"
    with subprocess.Popen(
        [sys.executable, "-c", CAPTURE, str(home), str(content)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not (others := children.read_text().split()):
            time.sleep(0.001)
        time.sleep(after)
        process.kill()
    deadline = time.monotonic() + 60
    while any(_lives(other) for other in others) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(_lives(other) for other in others)
    with LocalStore.open(home) as store:
        assert store.verify(jobs=1).problems == []
        while list((home / "tmp").iterdir()) and time.monotonic() < deadline:
            store.gc()  # one that was started since holds its place until it ends
        assert list((home / "tmp").iterdir()) == []
        store.capture(content)
        store.barrier()
        assert store.verify(jobs=1).problems == []


ORPHAN = """\
import os, signal, sys
from pathlib import Path
from reprobuild.adapters.store import crew, process, taking
from reprobuild.adapters.store.store import LocalStore
taking.WORTH = 40 * taking.OVERHEAD
crew.spare_cores = lambda: 1
def ask(self, request):
    os.kill(self._pid, signal.SIGSTOP)
    print(self._pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
process.Process.ask = ask
with LocalStore.open(Path(sys.argv[1]), create=True) as store:
    store.capture(Path(sys.argv[2]))
"""


def test_collection_leaves_a_session_to_the_last_that_writes_there(
    content: Path, tmp_path: Path
) -> None:
    home = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN, str(home), str(content)], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    other = int(done.stdout)
    with LocalStore.open(home) as store:
        try:
            assert _lives(str(other))
            kept = list((home / "tmp").glob("*/apart-*"))
            assert len(kept) == 1
            store.gc()
            assert list((home / "tmp").glob("*/apart-*")) == kept
        finally:
            os.kill(other, signal.SIGCONT)
        deadline = time.monotonic() + 60
        while list((home / "tmp").iterdir()) and time.monotonic() < deadline:
            store.gc()
        assert list((home / "tmp").iterdir()) == []


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_none_can_be_started(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for executable in ("", str(tmp_path / "absent"), "/bin/false"):
        monkeypatch.setattr(sys, "executable", executable)
        assert tree_digest(content).hex == plain(content, monkeypatch)


def test_one_that_cannot_write_leaves_it_to_us(
    content: Path, tmp_path: Path, answered: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Keeping.apart

    def apart(self: Keeping) -> tuple[object, int]:
        made, lock = real(self)
        assert isinstance(made, tuple)
        root, prefix, seen = made
        return (root, prefix + "absent/", seen), lock

    monkeypatch.setattr(Keeping, "apart", apart)
    assert captured(content, tmp_path / "store") == plain(content, monkeypatch)
    assert answered and all(answer is None for answer in answered)


def test_a_directory_that_is_another_one_is_an_error(
    content: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Crew.offer

    def offer(self: Crew, piece: Any, request: Any, weight: int) -> bool:
        frame = piece[0]
        if frame.name == b"e20":
            place = next(content.glob("*/e20"))
            place.rename(place.with_name("other"))
            place.symlink_to("other")
        return real(self, piece, request, weight)

    monkeypatch.setattr(Crew, "offer", offer)
    with pytest.raises(ReprobuildError) as error:
        tree_digest(content)
    assert error.value.code == "E-OUTPUT-CHANGED"


def test_a_file_that_is_gone_is_named(content: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Crew.offer

    def offer(self: Crew, piece: Any, request: Any, weight: int) -> bool:
        piece[1].append(b"absent")
        asked.append(os.fsdecode(piece[0].name))
        return real(self, piece, request, weight)

    asked: list[str] = []
    monkeypatch.setattr(Crew, "offer", offer)
    with pytest.raises(ReprobuildError) as error:
        tree_digest(content)
    assert error.value.code == "E-OUTPUT-READ"
    assert error.value.facts["path"] == str(next(content.glob(f"*/{asked[0]}")) / "absent")


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Long files for the most part, more than a part takes."""
    top = tmp_path / "long"
    for number in range(120):
        place = top / f"d{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"f{number}").write_bytes(number.to_bytes(4, "big") * (50_000 + number % 50))
        (place / f"s{number}").write_bytes(b"%d" % number)
    return top


def test_long_files_are_given_away(
    long: Path, tmp_path: Path, answered: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert captured(long, tmp_path / "store") == plain(long, monkeypatch)
    assert answered and None not in answered
    given = [names for _, entries, _ in answered for names in entries]
    assert len(given) > 20 and all(name.startswith(b"f") for name in given)


def test_a_long_file_that_nobody_has_time_for_is_taken_here(
    long: Path, answered: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Crew, "offer", lambda *_: False)
    assert tree_digest(long).hex == plain(long, monkeypatch)
    assert not answered


def test_a_long_file_that_changes_there_is_an_error(
    long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Crew.offer

    def offer(self: Crew, piece: Any, request: Any, weight: int) -> bool:
        frame, names, _ = piece
        path = long / os.fsdecode(frame.name) / os.fsdecode(names[0])
        path.unlink()  # the directory is another one then, for the other process and for this one
        return real(self, piece, request, weight)

    monkeypatch.setattr(Crew, "offer", offer)
    with pytest.raises(ReprobuildError) as error:
        tree_digest(long)
    assert error.value.code == "E-OUTPUT-CHANGED"


def test_the_limit_holds_for_long_files(long: Path, tmp_path: Path, answered: list[Any]) -> None:
    size = sum(path.stat().st_size for path in long.rglob("*") if path.is_file())
    with LocalStore.open(tmp_path / "store", create=True) as store:
        with pytest.raises(ReprobuildError) as error:
            store.capture(long, limit=size - 1)
        assert error.value.code == "E-OUTPUT-SIZE"
        answered.clear()
        store.capture(long, limit=size)
    assert answered and None not in answered


def test_files_that_only_claim_their_size_are_not_given_to_everybody(
    tmp_path: Path, answered: list[Any]
) -> None:
    top = tmp_path / "sparse"
    top.mkdir()
    for number in range(60):
        (top / f"a{number}").write_bytes(bytes(1000))
    for number in range(8):
        with (top / f"b{number}").open("wb") as file:
            file.truncate(50 * 2**20)
    with LocalStore.open(tmp_path / "store", create=True) as store:
        with pytest.raises(ReprobuildError) as error:
            store.capture(top, limit=60 * 2**20)
        assert error.value.code == "E-OUTPUT-SIZE"
        written = sum(p.stat().st_size for p in (store.path / "tmp").rglob("*") if p.is_file())
        assert written <= 61 * 2**20


def test_a_directory_that_changes_after_the_walk_saw_it(
    long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = long / "d0"
    names = sorted(os.fsencode(name) for name in os.listdir(place))
    root = os.open(long, os.O_RDONLY)
    try:
        info = place.stat()
        identity = info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns
        walk = taking.Taking(str(long), Naming())
        frame = taking.Frame(b"d0", info, None)
        parts.take_part(walk, frame, root, (b"d0",), identity, names)
        assert sorted(frame.entries) == names
        real = taking.Taking.files

        def files(self: taking.Taking, *words: Any) -> None:
            real(self, *words)
            (place / "f0").rename(place / "f0-before")

        monkeypatch.setattr(taking.Taking, "files", files)
        with pytest.raises(ReprobuildError) as error:
            parts.take_part(walk, frame, root, (b"d0",), identity, names)
        assert error.value.code == "E-OUTPUT-CHANGED"
    finally:
        os.close(root)


def test_the_limit_holds(content: Path, tmp_path: Path) -> None:
    size = sum(path.stat().st_size for path in content.rglob("*") if path.is_file())
    with LocalStore.open(tmp_path / "store", create=True) as store:
        with pytest.raises(ReprobuildError) as error:
            store.capture(content, limit=size - 1)
        assert error.value.code == "E-OUTPUT-SIZE"
        store.capture(content, limit=size)


def test_verification_says_the_same(content: Path, tmp_path: Path, answered: list[Any]) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        store.capture(content)
        store.barrier()
        blobs = sorted(p for p in (store.path / "blobs").rglob("*") if p.is_file())
        whole = store.verify(jobs=2)
        assert whole.problems == [] and whole.blobs == len(blobs)
        assert answered and None not in answered
        for blob in blobs[::9]:
            flip(blob) if blob.stat().st_size else blob.unlink()
        for blob in blobs[4::9]:
            blob.chmod(0o600)
        blobs[1].rename(blobs[1].with_name("stray"))
        long = blob_path(store, Digest.of(bytes(range(256)) * 4096))
        if long.stat().st_size == 2**20 and long not in blobs[::9]:
            flip(long)
        assert any(str(long) == problem.path for problem in store.verify(jobs=2).problems)
        assert store.verify(jobs=2) == store.verify(jobs=1)
        kinds = {problem.kind for problem in store.verify(jobs=2).problems}
        assert kinds >= {"damaged", "mode", "misplaced", "missing"}
