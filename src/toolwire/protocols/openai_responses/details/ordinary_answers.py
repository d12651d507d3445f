"""Ordinary whole answers, straight from bytes and to bytes: texts and calls of functions, and an end with counts.

For any other these functions say None, and the careful way, which they shorten but never bend, takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from msgspec import Raw, Struct
from msgspec.json import Decoder

from toolwire import resent
from toolwire.ir import NOTHING, Call, Choice, Finish, Part, Response, Stray, Text, Usage
from toolwire.protocols.openai_responses.details.ordinary import is_plain
from toolwire.protocols.openai_responses.details.output import stem
from toolwire.protocols.openai_responses.names import ECHOED, NAME, REQUEST, RESPONSE, TEMPLATE
from toolwire.protocols.openai_responses.response import PLAIN, answer_id, asks_for_thought, effective
from toolwire.reading import placed, says_something
from toolwire.room import Context
from toolwire.wire import NOT_DECODED, Json, Object, encode

# --- reading --------------------------------------------------------------------------------------------------------

_Done = Literal["completed", "in_progress"] | None
"""What says nothing of an item."""


class _Said(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["output_text"]
    text: str
    annotations: tuple[()] | None = None
    logprobs: tuple[()] | None = None


class _Message(Struct, tag_field="type", tag="message", forbid_unknown_fields=True, gc=False):
    content: list[_Said]
    id: str | None = None
    status: _Done = None
    role: Json = None
    phase: str | None = None


class _Called(Struct, tag_field="type", tag="function_call", forbid_unknown_fields=True, gc=False):
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: _Done = None
    namespace: str | None = None


class _Taken(Struct, gc=False):
    cached_tokens: int | float | None = None
    cache_write_tokens: int | float | None = None


class _Given(Struct, gc=False):
    reasoning_tokens: int | float | None = None


class _Counts(Struct, forbid_unknown_fields=True, gc=False):
    input_tokens: int | float
    output_tokens: int | float
    total_tokens: int | float | None = None
    input_tokens_details: _Taken | None = None
    output_tokens_details: _Given | None = None


_keys = Decoder(dict[str, Raw]).decode
_text = Decoder(str).decode
_number = Decoder(int | float | None).decode
_status = Decoder(Literal["completed", "complete"]).decode
_items = Decoder(list[_Message | _Called]).decode
_counts = Decoder(_Counts | None).decode
_any = Decoder().decode

_TOLD = frozenset({"id", "model", "created_at", "status", "output", "usage"})
_SHORT = 4096
"""A shorter body holds no number that is too long to be read."""

_at = partial(placed, NAME)
_ANSWER_AT, _USAGE_AT = _at(None), _at((None, "usage"))
_MOST_ITEMS = 32
_ITEMS_AT = [_at(((None, "output"), number)) for number in range(_MOST_ITEMS)]
_NONE_TAKEN, _NONE_GIVEN = _Taken(), _Given()


def read_ordinary(data: bytes) -> Response | None:
    try:
        if not data.isascii():
            data.decode()  # nobody looks into what is skipped
        body = _keys(data)
        if not _TOLD.issubset(body):
            return None
        status, items, counts = _status(body["status"]), _items(body["output"]), _counts(body["usage"])
        id, model, created = _text(body["id"]), _text(body["model"]), _number(body["created_at"])
        others = [] if RESPONSE.issuperset(body) else [key for key in body if key not in RESPONSE]
        strays = [Stray(None, key) for key in others if says_something(_any(body[key]))]
        if len(data) > _SHORT:
            for key in RESPONSE.intersection(body) - _TOLD:
                _any(body[key])
    except NOT_DECODED:
        return None
    usage = None if counts is None else _read_counts(counts)
    if len(items) > _MOST_ITEMS or type(created) is float or (usage is None and counts is not None):
        return None
    found: list[Stray] = []
    parts = _read_items(items, found)
    finish = Finish("calls" if Call in map(type, parts) else "stop", status)
    choices = (Choice(0, tuple(parts), finish),)
    return Response(id, model, created, choices, usage, None, _ANSWER_AT, (*found, *strays))


def _read_items(items: list[_Message | _Called], strays: list[Stray]) -> list[Part]:
    parts: list[Part] = []
    for item, origin in zip(items, _ITEMS_AT, strict=False):
        path = origin.path
        if type(item) is _Called:
            if item.id is not None:
                strays.append(Stray(path, "id", "id-rewritten"))
            id, name, namespace = item.call_id, item.name, item.namespace or ""
            call = Call(
                id, name, item.arguments, "function", namespace, item.id or "", None, None, False, False, origin
            )
            parts.append(call)
        elif type(item) is _Message:
            if item.phase is not None:
                strays.append(Stray(path, "phase"))
            for number, said in enumerate(item.content):
                parts.append(Text(said.text, (), None, None, _at(((path, "content"), number))))
    return parts


def _read_counts(counts: _Counts) -> Usage | None:
    taken, given = counts.input_tokens_details or _NONE_TAKEN, counts.output_tokens_details or _NONE_GIVEN
    told = (
        counts.input_tokens,
        counts.output_tokens,
        taken.cached_tokens,
        taken.cache_write_tokens,
        given.reasoning_tokens,
        counts.total_tokens,
    )
    return None if float in map(type, told) else Usage(*told, _USAGE_AT)  # type: ignore[arg-type]


# --- writing --------------------------------------------------------------------------------------------------------

_OWN = frozenset({"id", "created_at", "completed_at", "model", "output", "usage"})
"""What an answer says for itself; all else is a constant, or repeats the request."""
_HEARD = REQUEST | ECHOED | {"include", "stream_options"}
"""Keys of requests for which forms are kept."""
_MOST_FORMS = 64


class _Form(Struct, frozen=True):
    """How answers are told to requests that have certain keys."""

    blank: Object
    """Every key in its place. Constants that stand in a row ride in the first of them, spelled."""
    repeats: tuple[str, ...]
    """The keys of the request that are told back."""


_FORMS: dict[tuple[str, ...], _Form] = {}
"""By the keys of a request: one kind of client says the same every time."""


class _SaidText(Struct, gc=False):
    type: str
    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class _SaidMessage(Struct, gc=False):
    id: str
    type: str
    status: str
    role: str
    content: tuple[_SaidText]


class _MadeCall(Struct, gc=False):
    type: str
    id: str
    status: str
    call_id: str
    name: str
    arguments: str


class _Input(Struct, gc=False):
    cached_tokens: int
    cache_write_tokens: int


class _Output(Struct, gc=False):
    reasoning_tokens: int


class _Used(Struct, gc=False):
    input_tokens: int
    input_tokens_details: _Input
    output_tokens: int
    output_tokens_details: _Output
    total_tokens: int


def write_ordinary(response: Response, context: Context) -> bytes | None:
    choices, usage, request = response.choices, response.usage, context.request
    if len(choices) != 1 or usage is None or response.failure is not None:
        return None
    finish = choices[0].finish
    if (finish is not None and finish.kind not in PLAIN) or (request is not None and asks_for_thought(request)):
        return None
    id = answer_id(response.id, context.seed)
    items = _write_parts(choices[0].parts, stem(id))
    origin = None if request is None else request.origin
    out = _repeating(NOTHING if origin is None or origin.protocol != NAME else origin.wire)
    if items is None or out is None:
        return None
    created, done, model = response.created, context.now, response.model
    if created is None:
        created = done
    elif created > done:
        done = created
    if not model and request is not None:
        model = request.model
    out["id"], out["created_at"], out["completed_at"], out["model"] = id, created, done, model
    out["output"], out["usage"] = items, _write_usage(usage)
    return encode(out)


def _repeating(wire: Mapping[str, Json]) -> Object | None:
    """The whole answer but for what it says for itself."""
    keys = tuple(wire)
    form = _FORMS.get(keys) or _new_form(keys)
    if form is None:
        return None
    out = form.blank.copy()
    for key in form.repeats:
        said = wire[key]
        if said is None:
            return None
        out[key] = resent.told(said, NAME, effective) if said and key == "tools" else said
    return out


def _new_form(keys: tuple[str, ...]) -> _Form | None:
    if not _HEARD.issuperset(keys):
        return None
    said = ECHOED.intersection(keys)
    blank: Object = {}
    ridden = ""
    for key, value in {**TEMPLATE, "status": "completed", **dict.fromkeys(said)}.items():
        if key in said or key in _OWN:
            blank[key], ridden = None, ""
        elif ridden:
            blank[ridden] = Raw(bytes(blank[ridden]) + b"," + encode({key: value})[1:-1])
        else:
            blank[key], ridden = Raw(encode(value)), key
    if len(_FORMS) >= _MOST_FORMS:
        _FORMS.clear()
    _FORMS[keys] = form = _Form(blank, tuple(said))
    return form


def _write_parts(parts: tuple[Part, ...], within: str) -> list[_SaidMessage | _MadeCall] | None:
    """The items of an answer. `within`: the stem of their ids."""
    if not within:
        return None
    items: list[_SaidMessage | _MadeCall] = []
    spoke = False
    for part in parts:
        if type(part) is Text:
            # Neighbouring texts share an item.
            if spoke or part.citations or part.seal is not None:
                return None
            text = _SaidText("output_text", part.text)
            id = f"msg_{within}_{len(items)}"
            items.append(_SaidMessage(id, "message", "completed", "assistant", (text,)))
            spoke = True
        elif type(part) is Call and is_plain(part):
            id = f"fc_{within}_{len(items)}"
            items.append(_MadeCall("function_call", id, "completed", part.id, part.name, part.arguments))
            spoke = False
        else:
            return None
    return items


def _write_usage(usage: Usage) -> _Used:
    taken, given, total = usage.input, usage.output, usage.total
    if total is None:
        total = taken + given
    before = _Input(usage.cache_read or 0, usage.cache_write or 0)
    return _Used(taken, before, given, _Output(usage.reasoning or 0), total)
