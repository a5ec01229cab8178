"""Parts of an object that are made when they are first asked for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from functools import cached_property as made_once
else:

    class made_once:
        """`functools.cached_property`, without importing that; all threads get the same one."""

        def __init__(self, make):
            self._make = make
            self.__doc__ = make.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, owner, kind=None):
            if owner is None:
                return self
            return owner.__dict__.setdefault(self._name, self._make(owner))


__all__ = ["made_once"]
