"""Events as JSON lines, where they cannot be written."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from reprobuild.adapters.report.jsonlines import JsonLines


def test_what_cannot_be_written_is_known() -> None:
    events = JsonLines("/dev/full")
    assert events.lost == ""
    for number in range(3):
        events.emit("note", text=str(number))
    assert events.lost == "--events /dev/full: No space left on device; the rest is missing"


def test_after_half_a_line_there_is_no_more(tmp_path: Path) -> None:
    """A reader finds whole lines, and at most one that is cut at the end."""
    path = tmp_path / "events"
    events = JsonLines(str(path))
    events.emit("note", text="whole")
    size = path.stat().st_size
    child = os.fork()
    if child == 0:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
        events.emit("note", text="cut")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        events.emit("note", text="later")
        os._exit(0 if "File too large" in events.lost else 1)
    assert os.waitpid(child, 0)[1] == 0
    first, rest = path.read_bytes().split(b"\n")
    assert json.loads(first)["text"] == "whole"
    assert len(rest) == 10


def test_a_reader_that_goes_away_loses_nothing() -> None:
    read, write = os.pipe()
    events = JsonLines(str(write))
    os.close(read)
    events.emit("note", text="x")
    assert events.lost == ""
    os.close(write)


def test_a_descriptor_that_does_not_wait_is_waited_for() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    events = JsonLines(str(write))
    os.close(write)
    lines: list[str] = []

    def take() -> None:
        with os.fdopen(read) as stream:
            lines.extend(stream)

    reader = threading.Thread(target=take)
    texts = [str(number) * 1000 for number in range(500)]
    for text in texts[:20]:  # a pipe holds 65536 bytes
        events.emit("note", text=text)
    reader.start()
    for text in texts[20:]:
        events.emit("note", text=text)
    os.close(events._descriptor)
    reader.join(20)
    assert [json.loads(line)["text"] for line in lines] == texts
    assert events.lost == ""
