"""File descriptors, of which every connection needs one: how many there may be, and what to say when none is left."""

from __future__ import annotations

import errno
import os
from importlib.util import find_spec

SELECT_LIMIT = 512
"""Windows has no limit of open files, but the loop waits with `select`, for at most so many sockets."""
_HAS_LIMITS = find_spec("resource") is not None
if _HAS_LIMITS:
    import resource

DESCRIPTOR_HINT = "raise the limit of open files: `ulimit -n`, LimitNOFILE= in systemd, `--ulimit nofile=` in Docker"
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


def descriptor_limit() -> int:
    if not _HAS_LIMITS:
        return SELECT_LIMIT
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_descriptor_limit() -> None:
    """Use all that the system allows this process. The usual limit of 1,024 is one for programs that use `select`."""
    if not _HAS_LIMITS:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):  # macOS reports a limit that it does not allow
        return


def is_exhausted(number: int | None) -> bool:
    """Does this errno say that no descriptor is left?"""
    return number in _EXHAUSTED


def has_free_descriptor() -> bool:
    """Resolving a name or reading certificates fails in many ways when no descriptor is left, so this tries it out."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return not is_exhausted(error.errno)
    return True
