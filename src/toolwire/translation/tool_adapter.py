"""The adapter contract: take the calls out of an answer, put their results into the conversation, in one protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import Codec
from toolwire.core.ir import Call, Part, Request, Response, Result, Text, Turn
from toolwire.core.json_values import Malformed, Object, decode_object_or_none, encode_text
from toolwire.core.losses import Ledger
from toolwire.protocols import find_codec
from toolwire.translation.body import Body, parse_object
from toolwire.translation.options import Options


class ToolCall(Struct, frozen=True):
    """A call as the model made it; `arguments` is its JSON text, or the raw input of a freeform tool."""

    id: str
    name: str
    arguments: str
    namespace: str = ""
    kind: str = "function"

    @property
    def input(self) -> Object:
        """The arguments, parsed. Blank ones are an empty object; broken ones raise ValueError with the raw text."""
        value = decode_object_or_none(self.arguments)
        if value is None:
            raise ValueError(f"the arguments of {self.name!r} are no JSON object: {self.arguments!r}")
        return value


class ToolOutput(Struct, frozen=True):
    """What the tool answered: text, or anything that JSON can say."""

    id: str
    content: Any
    is_error: bool = False


def parse_tool_calls(protocol: str, response: Body, *, strict: bool = False) -> list[ToolCall]:
    """The tool calls of an answer, in their order.

    `strict` demands that the answer also ends with the protocol's own reason for calls; by default the calls count,
    because real providers often end them with another reason.
    """
    place = find_codec(protocol)
    answer = _read_response(place, response)
    calls = []
    for choice in answer.choices[:1]:
        accepted = not strict or (
            choice.finish is not None and choice.finish.kind in place.constraints.call_finish_kinds
        )
        calls += [part for part in choice.parts if isinstance(part, Call) and accepted]
    return [ToolCall(call.id, call.name, call.arguments, call.namespace, call.kind) for call in calls]


def build_tool_results(
    protocol: str, response: Body | Sequence[ToolCall], outputs: Sequence[ToolOutput]
) -> list[Object]:
    """What to append to the history, in the protocol's own shape: the assistant's turn, then the results.

    Given calls instead of an answer, the results alone.
    """
    place = find_codec(protocol)
    turns: tuple[Turn, ...] = ()
    if isinstance(response, (list, tuple)) and all(isinstance(call, ToolCall) for call in response):
        calls = [Call(call.id, call.name, call.arguments, call.kind, call.namespace) for call in response]
    else:
        answer = _read_response(place, response)  # type: ignore[arg-type]
        parts = answer.choices[0].parts if answer.choices else ()
        calls = [part for part in parts if isinstance(part, Call)]
        turns = (Turn("assistant", parts),)
    results = _build_results(calls, outputs)
    if place.constraints.result_placement == "user":
        turns += (Turn("user", results),) if results else ()
    else:
        turns += tuple(Turn("tool", (result,)) for result in results)
    body = place.write_request(Request(turns=turns), Ledger("", place.name))
    written: list[Object] = body[place.constraints.turns_key]
    return written


def _build_results(calls: list[Call], outputs: Sequence[ToolOutput]) -> tuple[Part, ...]:
    known = {call.id: call for call in calls}
    given = {output.id for output in outputs}
    unknown = next((output.id for output in outputs if output.id not in known), None)
    if unknown is not None:
        raise Malformed(None, f"no call has the id {unknown!r}; there are {', '.join(known) or 'none'}")
    missing = next((id for id in known if id not in given), None)
    if missing is not None:
        raise Malformed(None, f"the call {missing!r} has no output; every call of a turn needs one")
    return tuple(_build_result(known[output.id], output) for output in outputs)


def _build_result(call: Call, output: ToolOutput) -> Result:
    text = isinstance(output.content, str)
    words = output.content if text else encode_text(output.content)
    value = None if text else output.content
    id = call.id if not call.id.startswith(MADE_UP_ID_PREFIX) else ""
    return Result(id, (Text(words),), output.is_error or None, call.name, call.kind, call.namespace, value=value)


MADE_UP_ID_PREFIX = "call_tw"
"""How ids begin that were made up for a wire that sent none."""


def _read_response(codec: Codec, response: Body) -> Response:
    answer = codec.read_response(parse_object(response, Options()))
    choices = tuple(replace(choice, parts=_add_missing_ids(choice.parts)) for choice in answer.choices)
    return replace(answer, choices=choices)


def _add_missing_ids(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Calls that came without an id get one, so that their outputs can name them; it is not written back."""
    made = {
        n: ids.derive_id(MADE_UP_ID_PREFIX, n, part.name)
        for n, part in enumerate(parts)
        if isinstance(part, Call) and not part.id
    }
    return tuple(
        replace(part, id=made[n]) if n in made and isinstance(part, Call) else part for n, part in enumerate(parts)
    )
