"""The embedded model: it answers in any protocol without asking anybody, and the same request always the same way.

It calls the tools that the user's text resembles, with arguments made of that text, and tells what the results say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire import estimate
from toolwire.events import ArgumentsDelta, Event, ResponseFailed, ResponseStart, TextDelta
from toolwire.failures import kind_of_status
from toolwire.fold import unfold
from toolwire.gateway.loopback import said
from toolwire.gateway.loopback.invented import arguments, value
from toolwire.gateway.loopback.offered import heard
from toolwire.gateway.loopback.picked import Picked, picked
from toolwire.ids import EMPTY_ENVELOPE, digest, made
from toolwire.ir import (
    NOTHING,
    Call,
    Choice,
    Failure,
    Finish,
    Part,
    Reasoning,
    Request,
    Response,
    Seal,
    Settings,
    Text,
    Usage,
    forget,
)
from toolwire.loss import Ledger
from toolwire.room import Context, Room
from toolwire.wire import Malformed, as_object, decode, encode, encode_text

NAME = "loopback"

MOST_CHOICES = 8


class Answered(Struct, frozen=True):
    """What goes out: a body in one piece, or a stream in a piece for every event."""

    status: int
    content_type: str
    pieces: tuple[bytes, ...]
    headers: Mapping[str, str] = NOTHING


def answer(room: Room, body: bytes, model: str, stream: bool, now: int, salt: str = "") -> Answered:
    """The answer to a request of this room, under the name that the client asked for. The same request gets the same
    ids, unless a salt says that each answer is one of its own."""
    try:
        request = room.read_request(as_object(decode(body), None))
    except Malformed as error:
        return _refused(room, Failure("invalid", str(error), 400))
    except RecursionError:
        return _refused(room, Failure("invalid", "the JSON is nested too deeply", 400))
    heeded = said.heed(request)
    rehearsal = _rehearsed(heeded.text)
    if isinstance(rehearsal, Failure) and not (stream and rehearsal.code == BROKEN):
        return _refused(room, rehearsal)
    asked = replace(heeded, text=_REHEARSAL.sub("", heeded.text).strip()) if rehearsal else heeded
    seed = digest(repr(forget(request.turns)) + salt, 24)
    response = replace(respond(request, asked, room, seed), model=model, created=now)
    context = Context(request, now, seed)
    if not stream:
        whole = encode(room.write_response(response, Ledger(room.name, room.name), context))
        return Answered(200, "application/json", (whole[: len(whole) // 2] if rehearsal == CUT else whole,))
    events = list(_in_pieces(response))
    if isinstance(rehearsal, Failure):
        events[len(events) // 2 :] = [ResponseFailed(rehearsal)]
    pieces = tuple(_streamed(room, events, context))
    return Answered(200, room.http.stream_type, pieces[: len(pieces) // 2] if rehearsal == CUT else pieces)


def _refused(room: Room, failure: Failure) -> Answered:
    sent = room.write_error(failure)
    return Answered(sent.status, "application/json", (encode(sent.body),), sent.headers)


# --- rehearsals -----------------------------------------------------------------------------------------------------

_REHEARSAL = re.compile(
    r"\bloopback:\s*(?:fail\s+(?P<status>[45]\d\d)(?:\s+retry after\s+(?P<wait>\d{1,6}(?:\.\d{1,3})?))?"
    r"|(?P<word>overflow|cut|break)\b)",
    re.IGNORECASE,
)
CUT = "cut"
BROKEN = "loopback_broken"
_FAILURES: Mapping[str, Failure] = {
    "overflow": Failure("context", "prompt is too long: loopback was told to say so", 400),
    "break": Failure("server", "loopback was told to break in the middle", 500, BROKEN),
}


def _rehearsed(text: str) -> Failure | str | None:
    """The failure that the user's text orders."""
    order = _REHEARSAL.search(text)
    if order is None:
        return None
    if order["word"]:
        return _FAILURES.get(order["word"].lower(), CUT)
    status, wait = int(order["status"]), order["wait"]
    message = f"loopback was told to fail with {status}"
    return Failure(kind_of_status(status), message, status, retry_after=float(wait) if wait else None)


# --- the answer -----------------------------------------------------------------------------------------------------


def respond(request: Request, asked: said.Heed, room: Room, seed: str) -> Response:
    """What the model says to a request; ids are made of the seed."""
    settings = request.settings
    calls = _calls(request, asked)
    count = min(settings.count or 1, MOST_CHOICES)
    choices = tuple(_choice(request, asked, calls, room, f"{seed}|{index}", index) for index in range(count))
    spoken = sum(map(_tokens, choices))
    thought = sum(len(part.text) for one in choices for part in one.parts if isinstance(part, Reasoning)) // 4
    usage = Usage(estimate.tokens(request), spoken, reasoning=thought or None)
    return Response("", request.model, None, choices, usage)


def _choice(request: Request, asked: said.Heed, calls: list[Picked], room: Room, seed: str, index: int) -> Choice:
    parts: list[Part] = []
    if _thinks(request.settings):
        slots = room.rules.seals
        # Whoever would refuse thinking without a seal gets one that says that there is nothing behind it.
        seal = Seal(room.name, EMPTY_ENVELOPE) if "reasoning" in slots and "call" not in slots else None
        parts.append(Reasoning(said.thought(asked, [one.tool for one in calls]), "summary", seal=seal))
    if calls:
        made_calls = [_call(one, made("call_", seed, position)) for position, one in enumerate(calls)]
        return Choice(index, (*parts, *made_calls), Finish("calls"))
    text, finish = _ended(_text(request, asked), request.settings)
    return Choice(index, (*parts, Text(text)), finish)


def _tokens(choice: Choice) -> int:
    lengths = (len(part.arguments if isinstance(part, Call) else getattr(part, "text", "")) for part in choice.parts)
    return sum(length // 4 + 1 for length in lengths)


def _thinks(settings: Settings) -> bool:
    asked = settings.thinking
    if asked is None or asked.mode == "off" or asked.effort == "none" or asked.show == "none" or asked.budget == 0:
        return False
    return asked.mode in ("on", "auto") or bool(asked.effort) or bool(asked.budget)


def _text(request: Request, asked: said.Heed) -> str:
    form = request.settings.format
    if form is None or form.kind == "text":
        return said.reply(asked, [tool.name for tool in asked.tools])
    if form.kind == "schema" and form.schema is not None:
        return encode_text(value(form.schema, heard(asked.known)))
    return encode_text({"model": NAME, "answer": said.reply(asked, [])})


def _ended(text: str, settings: Settings) -> tuple[str, Finish]:
    """The text up to a stop sequence, or as long as it may be."""
    met = [(text.find(stop), stop) for stop in settings.stop or () if stop and stop in text]
    finish = Finish("stop")
    if met:
        end, stop = min(met)
        text, finish = text[:end], Finish("sequence", sequence=stop)
    most = settings.max_tokens
    if most is not None and len(text) > 4 * most:
        text, finish = text[: 4 * max(most, 0)], Finish("length")
    return text, finish


# --- calls ----------------------------------------------------------------------------------------------------------


def _calls(request: Request, asked: said.Heed) -> list[Picked]:
    """The calls to be made now; none when the results are there, or when the text resembles no tool."""
    choice = request.choice
    mode = choice.mode if choice is not None else "auto"
    tools = [tool for tool in asked.tools if tool.name not in asked.called or asked.loaded]
    if mode == "none" or not asked.open:
        return []
    if choice is not None and choice.tools:
        # Names are looked for without their kind: some wires have one word for all kinds.
        wanted = {(one.namespace, one.name) for one in choice.tools} | {("", one.name) for one in choice.tools}
        kinds = {one.kind for one in choice.tools if not one.name}
        tools = [t for t in tools if (t.namespace, t.name) in wanted or ("", t.name) in wanted or t.kind in kinds]
    must = mode in ("required", "one") or (choice is not None and choice.required)
    if asked.results and not must and not asked.loaded:
        return []
    return picked(tools, heard(asked.known), must, request.settings.parallel is not False)


def _call(one: Picked, id: str) -> Call:
    tool = one.tool
    if tool.kind == "custom":
        return Call(id, tool.name, _freeform(one), tool.kind, tool.namespace)
    return Call(id, tool.name, encode_text(arguments(tool.parameters, one.offer)), tool.kind, tool.namespace)


def _freeform(one: Picked) -> str:
    """Raw input for a tool that takes any text: what stands in a fence, in backticks or in quotes, else all of it."""
    found = (value for kind in ("fenced", "code", "quoted") for value in one.offer.of(kind))
    return next(found, one.offer.text.strip() or "example")


# --- streams --------------------------------------------------------------------------------------------------------


def _streamed(room: Room, events: list[Event], context: Context) -> Iterator[bytes]:
    writer = room.stream_writer(Ledger(room.name, room.name), context)
    for event in events:
        if written := writer.write(event):
            yield written
    if rest := writer.close():
        yield rest


_TEXT_PIECES = re.compile(r"\s*\S+\s*$|\s*\S+|\s+$")
_FRAGMENT = 12


def _in_pieces(response: Response) -> Iterator[Event]:
    """The events of an answer, with its text in words and its arguments in fragments, as real models send them."""
    usage = response.usage
    for event in unfold(response):
        if isinstance(event, TextDelta):
            for piece in _TEXT_PIECES.findall(event.text):
                yield TextDelta(event.index, piece)
        elif isinstance(event, ArgumentsDelta):
            for start in range(0, len(event.text), _FRAGMENT):
                yield ArgumentsDelta(event.index, event.text[start : start + _FRAGMENT])
        elif isinstance(event, ResponseStart) and usage is not None:
            yield replace(event, usage=Usage(usage.input))
        else:
            yield event
