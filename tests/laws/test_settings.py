"""A setting is reported as lost only where the result differs from what was asked for."""

from __future__ import annotations

import pytest

from toolwire.protocols import CODECS
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

KEEPING = ("openai-responses", "openai-chat")
"""Protocols with a setting for storing the answer."""
OTHERS = sorted(set(CODECS) - set(KEEPING) - {"unified"})


@pytest.mark.parametrize("target", OTHERS)
@pytest.mark.parametrize(("store", "lost"), [(b"false", []), (b"true", ["/store"])])
def test_who_keeps_nothing_does_as_it_was_told(target: str, store: bytes, lost: list[str]) -> None:
    body = b'{"model": "m", "input": "Hi.", "store": %b}' % store
    said = Exchange(CODECS["openai-responses"], CODECS[target], Options(model="m")).translate_request(body)
    assert [loss.path for loss in said.ledger.losses if "store" in loss.what] == lost
