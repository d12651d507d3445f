"""Bodies as clients pack them, by the content encoding; one that nothing here can do is missing."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

PACKERS: dict[str, Callable[[bytes], bytes]] = {"": bytes, "gzip": gzip.compress}

for _name in ("backports.zstd", "compression.zstd"):  # the second is in the standard library since Python 3.14
    with suppress(ImportError):
        PACKERS["zstd"] = import_module(_name).compress
