"""A cache for the results of a method, which does not keep the method's object alive."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast
from weakref import WeakMethod

Method = TypeVar("Method", bound=Callable[..., Any])


def cache_method(method: Method, size: int) -> Method:
    """`lru_cache` for a bound method, to be kept in an attribute of its object. With `lru_cache` alone the object and
    its cache would hold each other, and stay until the garbage collector looks at all that is old: in a gateway, which
    replaces such objects when its configuration changes, it seldom does."""
    find_method = WeakMethod(method)

    def call_method(*values: object) -> object:
        found = find_method()
        assert found is not None  # its object holds the cache that calls this
        return found(*values)

    return cast("Method", lru_cache(size)(call_method))
