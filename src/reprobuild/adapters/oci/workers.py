"""A few threads and the calls that they make.

What `concurrent.futures` does, without its imports: logging and what that needs are a tenth of what
a process that makes a layer imports, and until all is imported one core has nothing to do.
"""

from __future__ import annotations

import threading
from _queue import Empty, SimpleQueue  # queue imports more than this
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """A call that some thread makes, sooner or later."""

    __slots__ = ("_call", "_ended", "_error", "_got")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._got: list[T] = []
        self._error: BaseException | None = None
        self._ended = threading.Lock()
        self._ended.acquire()

    def make(self) -> None:
        """Makes the call. What it raises is raised where it is waited for, not here."""
        call, self._call = self._call, None
        assert call is not None
        with self:
            self._got.append(call())

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._error = error
        self._ended.release()
        return True

    def result(self) -> T:
        """Waits for what the call returns, which is handed out once; raises what it raised."""
        self._ended.acquire()
        if self._error is not None:
            raise self._error
        return self._got.pop()


class Workers:
    """`count` threads at most, named `name`, which take calls in the order they come.

    Leaving the `with` drops the calls that no thread has begun, and returns when all have ended.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._calls: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            while True:
                self._calls.get_nowait()
        except Empty:
            pass
        for _thread in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def do(self, call: Callable[[], T]) -> Call[T]:
        """Has a call made by one of the threads."""
        made = Call(call)
        self._calls.put(made)
        if len(self._threads) < self._count:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return made

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()
            del call  # what it holds is not kept while the next one is waited for
