"""Without the extra `remote`: said before anything is fetched or built for a server."""

from __future__ import annotations

import shlex
import sys
import threading
from pathlib import Path

import pytest

from reprobuild.adapters.remote import stubs
from reprobuild.adapters.remote.service import Remote
from reprobuild.adapters.store.scanmemo import SqliteScanMemo
from reprobuild.adapters.store.store import LocalStore
from reprobuild.errors import ReprobuildError
from reprobuild.ports import NullReporter


@pytest.mark.parametrize("absent", ["grpc", "buildstream"])
def test_an_address_is_refused(
    absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stubs, "find_spec", lambda name: None if name == absent else object())
    memo = SqliteScanMemo(tmp_path / "memo.sqlite")
    with LocalStore.open(tmp_path / "store", create=True) as store:
        remote = Remote(store, memo, {}, NullReporter(), threading.Event())
        for call in (remote.executor, remote.cache):
            with pytest.raises(ReprobuildError) as error:
                call("grpc://127.0.0.1:1")
            assert error.value.code == "E-TOOL-MISSING"
            python = shlex.quote(sys.executable)  # the one that looked, not a `pip` of another
            assert error.value.hint == f"{python} -m pip install 'reprobuild[remote]'"
            with pytest.raises(ReprobuildError) as error:
                call("http://127.0.0.1:1")
            assert error.value.code == "E-USAGE"
    memo.close()
