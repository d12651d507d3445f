"""Makes the call of an offered tool from a name and arguments that were found in text."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.call_repair.arguments import mend_arguments
from toolwire.call_repair.inner_quotes import read_inner_quotes
from toolwire.call_repair.near_json import read_arguments
from toolwire.core.json_values import Object, encode_text
from toolwire.schema.keywords import object_or_empty
from toolwire.tool_formats.frame import Frame, Piece, Situation, TextCall, Waiting
from toolwire.tool_formats.json_text import find_value_end
from toolwire.tool_formats.reasoning_marks import strip_end_tokens


def make_call(
    situation: Situation, name: str, arguments: Object, repairs: tuple[str, ...] = (), id: str = "", text: str = ""
) -> TextCall | None:
    """The call with these arguments; None if no such tool is offered. `text` is their JSON, where they came as such."""
    tool = situation.tools.find_tool(name)
    if tool is None:
        return None
    mended = mend_arguments(arguments, situation.tools.parameters(tool))
    text = text if text and not mended.repairs else encode_text(mended.value)
    renamed = () if tool == name else (f"the name `{name}` was read as `{tool}`",)
    return TextCall(tool, text, id, (*renamed, *repairs, *mended.repairs))


def make_json_call(
    situation: Situation, name: str, arguments: str, repairs: tuple[str, ...] = (), id: str = ""
) -> TextCall | None:
    """The call with the arguments that this text means; None if it cannot be read, or no such tool is offered."""
    tool = situation.tools.find_tool(name)
    if tool is None:
        return None
    read = read_arguments(arguments) or read_inner_quotes(arguments, situation.tools.parameters(tool))
    if read is None:
        return None
    return make_call(situation, name, read.value, (*repairs, *read.repairs), id, read.text)


def read_json_frame(
    text: str, at: int, name: str, situation: Situation, repairs: tuple[str, ...] = (), id: str = ""
) -> Frame | Waiting | None:
    """The call whose arguments are the JSON object that begins here. Without an end it is all that is left of the
    answer."""
    end = find_value_end(text, at)
    if end < 0 and (not situation.is_end or situation.was_cut):
        return None if situation.is_end else Waiting(("}",))
    body = text[at:end] if end >= 0 else strip_end_tokens(text[at:])
    call = make_json_call(situation, name, body, repairs, id)
    return None if call is None else Frame(end if end >= 0 else len(text), (call,))


def add_repair(call: TextCall, repair: str) -> TextCall:
    return replace(call, repairs=(repair, *call.repairs))


def make_closed_frame(end: int, pieces: list[Piece]) -> Frame | None:
    """The frame of a section with its closing mark; None without a call."""
    return Frame(end, tuple(pieces)) if any(isinstance(piece, TextCall) for piece in pieces) else None


def make_open_frame(end: int, pieces: list[Piece], repair: str = "the end of the calls was missing") -> Frame | None:
    """The frame of a section without its closing mark, until its last call, which ends here. Text after that call is
    text of the answer."""
    last = max((at for at, piece in enumerate(pieces) if isinstance(piece, TextCall)), default=-1)
    kept = pieces[: last + 1]
    if repair and kept and isinstance(call := kept[-1], TextCall):
        kept[-1] = add_repair(call, repair)
    return make_closed_frame(end, kept)


def parameter_schemas(situation: Situation, name: str) -> Object:
    """The schemas of a tool's parameters by their names; {} for a tool that is not offered."""
    tool = situation.tools.find_tool(name)
    return {} if tool is None else object_or_empty(situation.tools.parameters(tool).get("properties"))
