"""The events that tell all of an answer, at its beginning and at its end. Most of it nobody speaks of, and one kind of
client says the same keys every time: so forms of it are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from operator import itemgetter

from msgspec import Struct

from toolwire.protocols.openai_responses.details.stream_frames import frame
from toolwire.protocols.openai_responses.names import TEMPLATE
from toolwire.wire import Json, Object, encode

_CHANGING = ("status", "completed_at", "error", "incomplete_details", "output", "usage")
"""What changes in an answer until its end."""
_changing = itemgetter(*_CHANGING)
_GAP = b"\0"
"""Stands for a gap in JSON, where no other such byte can be."""


class Form(Struct, frozen=True):
    """How answers are told of which certain keys are said."""

    said: Callable[[Object], tuple[Json, ...]]
    """Takes what is said, in the order of the gaps."""
    announced: bytes
    """Both events of the beginning, each with gaps for its number and for what is said."""
    ended: bytes
    """The event of the end, with gaps for its kind, twice, for its number, and for what is said and what changed."""
    merged: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]
    """Puts both of these into the order of the gaps."""

    def end(self, number: int, said: tuple[bytes, ...], response: Object) -> bytes:
        status = response["status"].encode()
        changed = tuple(map(encode, _changing(response)))
        return self.ended % (status, status, number, *self.merged(said + changed))


@lru_cache(maxsize=64)
def form_of(said: tuple[str, ...]) -> Form:
    keys = tuple(dict.fromkeys((*TEMPLATE, *said)))
    ordered = [key for key in keys if key in said]
    told = [*ordered, *_CHANGING]
    begun, ended = _spelled(keys, said), _spelled(keys, told)
    announced = _around("response.created", begun) + _around("response.in_progress", begun)
    merged = itemgetter(*[told.index(key) for key in keys if key in told])
    return Form(itemgetter(*ordered), announced, _around("response.%b", ended), merged)


def _spelled(keys: Collection[str], gaps: Collection[str]) -> bytes:
    """All keys of an answer, with gaps for some of their values."""
    spelled = [encode(key) + b":" + (_GAP if key in gaps else encode(TEMPLATE[key])) for key in keys]
    return (b"{%b}" % b",".join(spelled)).replace(b"%", b"%%").replace(_GAP, b"%b")


def _around(kind: str, response: bytes) -> bytes:
    return frame(kind, '"response":\0').replace(_GAP, response)
