"""Where servers differ: bodies bent to what they take. A body is never changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.loss import Ledger
from toolwire.protocols.anthropic.details.cache import marked_last
from toolwire.room import Quirk
from toolwire.wire import Object


def block_cache(body: Object, _model: str, _ledger: Ledger) -> Object:
    return marked_last(body)


QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "block-cache": Quirk(
            about="knows cache breakpoints on blocks only, none for the whole request", body=block_cache
        ),
        "no-hosted-tools": Quirk(about="runs no tools itself: no search, no fetch, no code", rules={"hosted": False}),
    }
)
