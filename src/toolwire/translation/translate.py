"""The public functions of the library: translate a body or a stream, and helpers for tool loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.ir import EMPTY_MAPPING, Call, Choice, Part, Request, Response, Result, Text, Turn
from toolwire.core.json_values import Body, Malformed, Object, decode_object_or_none, encode_text, parse_object
from toolwire.core.losses import Ledger, Loss
from toolwire.protocols import find_codec
from toolwire.translation.answer_repair import AnswerRepair, plan_repair, repair_response
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options
from toolwire.translation.request_steps.history import place_results
from toolwire.translation.request_steps.turn_content import mark_failed_results
from toolwire.translation.streaming import StreamTranslation

BodyKind = Literal["request", "response", "error"]


class Refused(Exception):
    """Something would have been lost, and the option `strict` does not allow that."""

    def __init__(self, losses: tuple[Loss, ...]) -> None:
        self.losses = tuple(loss for loss in losses if loss.severity == "lost")
        first = self.losses[0]
        super().__init__(
            f"{len(self.losses)} lost; the first is {first.code} at {first.path or 'the body'}: {first.what}"
        )


def translate(
    body: Body,
    kind: BodyKind,
    *,
    source: str,
    target: str,
    request: Body | None = None,
    headers: Mapping[str, str] = EMPTY_MAPPING,
    **options: Any,
) -> Translation:
    """Translate a request, a whole response or an error body.

    Answers and errors go from the provider (`source`) to the client (`target`). Give the client's own request as
    `request`, so that its tool names and kinds can be restored. Further keywords are those of `Options`. Raises
    `Malformed` for input that cannot be read.
    """
    chosen = build_options(options)
    if kind == "request":
        result = Exchange(find_codec(source), find_codec(target), chosen).translate_request(body)
    else:
        exchange = Exchange(find_codec(target), find_codec(source), chosen)
        if request is not None:
            exchange.remember_request(request)
        if kind == "response":
            result = exchange.translate_response(body)
        elif kind == "error":
            result = exchange.translate_error(body, chosen.status, headers)
        else:
            raise ValueError(f"kind must be request, response or error, not {kind!r}")
    if chosen.strict and any(loss.severity == "lost" for loss in result.losses):
        raise Refused(result.losses)
    return result


class Stream(StreamTranslation):
    """Translates a provider's stream for a client: `feed` bytes, then `close`. Arguments as `translate`."""

    def __init__(self, *, source: str, target: str, request: Body | None = None, **options: Any) -> None:
        exchange = Exchange(find_codec(target), find_codec(source), build_options(options))
        if request is not None:
            exchange.remember_request(request)
        super().__init__(exchange)


def build_options(given: Mapping[str, Any]) -> Options:
    """Options from keywords. An unknown keyword raises TypeError with a list of all options."""
    unknown = set(given) - set(Options.__struct_fields__)
    if unknown:
        raise TypeError(f"unknown option {min(unknown)!r}; there are {', '.join(Options.__struct_fields__)}")
    return msgspec.convert(dict(given), Options)


# --- tool loops in one protocol: get the calls of an answer, and write their results ---


class ToolCall(Struct, frozen=True):
    """A tool call of the model."""

    id: str
    name: str
    arguments: str
    """JSON text, or the raw input of a custom tool."""
    namespace: str = ""
    kind: str = "function"
    repairs: tuple[str, ...] = ()
    """What was repaired in it, each as a sentence without its full stop."""

    @property
    def input(self) -> Object:
        """The parsed arguments; `{}` for blank ones. Raises ValueError when they are not a JSON object."""
        value = decode_object_or_none(self.arguments)
        if value is None:
            raise ValueError(f"the arguments of {self.name!r} are not a JSON object: {self.arguments!r}")
        return value


class ToolOutput(Struct, frozen=True):
    """The output of a tool."""

    id: str
    """The id of the call."""
    content: Any
    """Text, or any JSON value."""
    is_error: bool = False


def parse_tool_calls(
    protocol: str,
    response: Body,
    *,
    strict: bool = False,
    request: Body | None = None,
    tool_format: str = "auto",
    repair_calls: bool = True,
) -> list[ToolCall]:
    """The tool calls of an answer, in order.

    With `strict`, an answer whose finish reason is not the protocol's reason for calls has none. By default the finish
    reason is ignored, because many servers send another one.

    With the `request` that offered the tools, calls that the model wrote as text are found, and names and arguments
    are repaired; `tool_format` and `repair_calls` are those of `Options`.
    """
    codec = find_codec(protocol)
    answer = codec.read_response(parse_object(response))
    repairs: Iterator[list[str]] = iter(())
    if request is not None:
        options = Options(tool_format=tool_format, repair_calls=repair_calls)
        plan = plan_repair(codec.read_request(parse_object(request)), options)
        if plan is not None:
            repair = AnswerRepair(plan, Ledger(codec.name, codec.name), "", frozenset())
            answer = repair_response(answer, repair)
            repairs = iter(repair.repairs_by_call.values())
    choice = _first_choice(answer)
    finish = choice.finish
    if strict and (finish is None or finish.kind not in codec.constraints.call_finish_kinds):
        return []
    calls = [part for part in choice.parts if isinstance(part, Call)]
    return [
        ToolCall(call.id, call.name, call.arguments, call.namespace, call.kind, tuple(next(repairs, ())))
        for call in calls
    ]


class ToolMessages(list[Object]):
    """The messages of `build_tool_results`: a list, with what could not be said in the protocol."""

    losses: tuple[Loss, ...] = ()


def build_tool_results(
    protocol: str, response: Body | Sequence[ToolCall], outputs: Sequence[ToolOutput]
) -> ToolMessages:
    """The messages to append to the history: the assistant's turn, then the results.

    Given a list of calls instead of a response, the results only. A failed output is marked as the gateway marks it: by
    the protocol's own flag, or at the start of its text, which `losses` of the list reports.
    """
    codec = find_codec(protocol)
    turns: tuple[Turn, ...] = ()
    if isinstance(response, (list, tuple)) and all(isinstance(call, ToolCall) for call in response):
        calls = [Call(call.id, call.name, call.arguments, call.kind, call.namespace) for call in response]
    else:
        parts = _first_choice(codec.read_response(parse_object(response))).parts  # type: ignore[arg-type]
        calls = [part for part in parts if isinstance(part, Call)]
        turns = (Turn("assistant", parts),)
    results = _build_results(calls, outputs)
    if results:
        turns += tuple(place_results(results, (), codec.constraints))
    ledger = Ledger("", codec.name)
    request = Request(turns=turns)
    if any(output.is_error for output in outputs):
        request = mark_failed_results(request, codec.constraints, ledger)
    messages = ToolMessages(codec.write_request(request, ledger)[codec.constraints.turns_key])
    messages.losses = tuple(loss for loss in ledger.losses if loss.severity != "added")  # to the rest of a request
    return messages


def _build_results(calls: list[Call], outputs: Sequence[ToolOutput]) -> tuple[Part, ...]:
    known = {call.id: call for call in calls}
    given = {output.id for output in outputs}
    unknown = next((output.id for output in outputs if output.id not in known), None)
    if unknown is not None:
        raise Malformed(None, f"no call has the id {unknown!r}; there are {', '.join(known) or 'none'}")
    missing = next((id for id in known if id not in given), None)
    if missing is not None:
        raise Malformed(None, f"the call {missing!r} has no output; every call of a turn needs one")
    results: list[Result] = []
    for output in outputs:
        call, value, failed = known[output.id], output.content, output.is_error or None
        content = (Text(value if isinstance(value, str) else encode_text(value)),)
        id = "" if call.id.startswith(MADE_UP_ID_PREFIX) else call.id
        value = None if isinstance(value, str) else value
        results.append(Result(id, content, failed, call.name, call.kind, call.namespace, value=value))
    return tuple(results)


MADE_UP_ID_PREFIX = "call_tw"
"""The prefix of ids that are made up where the provider sent none (Gemini)."""


def _first_choice(response: Response) -> Choice:
    """The first choice. Calls without an id get one, so that outputs can name them; it is not written back."""
    choice = response.choices[0] if response.choices else Choice(0, ())
    parts = tuple(
        replace(part, id=ids.derive_id(MADE_UP_ID_PREFIX, number, part.name))
        if isinstance(part, Call) and not part.id
        else part
        for number, part in enumerate(choice.parts)
    )
    return replace(choice, parts=parts)
