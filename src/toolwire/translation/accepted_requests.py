"""Which requests their provider takes as its own clients send them, as far as is known: they pass unread.

A request is judged by a few of its members (`Constraints.judged_members`), without its turns. Agents send the same
tools with every turn, so what was judged once is remembered by its bytes.
"""

from __future__ import annotations

from toolwire.core.codec import Codec, Members
from toolwire.core.json_values import Malformed, Object, decode
from toolwire.core.losses import Ledger
from toolwire.translation.mistaken_protocol import describe_shape
from toolwire.translation.request_steps.tools import rename_tools
from toolwire.translation.request_steps.turn_content import request_features

MAX_BYTES = 4 * 1024 * 1024
"""Of all members that are remembered."""

_Key = tuple[str, str, frozenset[tuple[str, bytes]]]
_judged: dict[_Key, bool] = {}
_sizes: list[int] = []


def is_accepted(codec: Codec, model: str, members: Members, judged: frozenset[str]) -> bool:
    """Is nothing in these members known to be refused by the model's own server?"""
    found = judged.intersection(members)
    if not found:
        return True
    key = (codec.name, model, frozenset(zip(found, map(bytes, map(members.__getitem__, found)), strict=True)))
    known = _judged.get(key)
    return _judge(codec, key) if known is None else known


def _judge(codec: Codec, key: _Key) -> bool:
    _, model, given = key
    size = sum([len(value) for _, value in given])
    if sum(_sizes) + size > MAX_BYTES:
        forget_requests()
    body: Object = {"model": model, codec.constraints.turns_key: []}
    try:
        body |= {name: decode(value) for name, value in given}
        accepted = not _find_changes(codec, body)
    except Malformed:
        accepted = not describe_shape(codec, body)  # of other mistakes the provider says what is wrong
    except RecursionError:
        accepted = True
    if size <= MAX_BYTES:
        _judged[key] = accepted
        _sizes.append(size)
    return accepted


def _find_changes(codec: Codec, body: Object) -> tuple[str, ...]:
    """The codes of what must be changed in a body without turns."""
    request, ledger = codec.read_request(body), Ledger(codec.name, codec.name)
    request, _ = rename_tools(request, codec.constraints, ledger, request_features(request))
    codec.write_request(request, ledger)
    return ledger.codes


def forget_requests() -> None:
    """Judge all requests again."""
    _judged.clear()
    _sizes.clear()
