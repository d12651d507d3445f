"""Makes the call of an offered tool from a name and arguments that were found in text."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.call_repair.arguments import mend_arguments
from toolwire.call_repair.inner_quotes import read_inner_quotes
from toolwire.call_repair.near_json import ReadArguments, read_arguments
from toolwire.core.json_values import Object, encode_text
from toolwire.schema.keywords import object_or_empty
from toolwire.tool_formats.frame import Frame, Piece, Situation, TextCall, Waiting
from toolwire.tool_formats.json_text import find_value_end
from toolwire.tool_formats.reasoning_marks import strip_end_tokens


def make_call(
    situation: Situation, name: str, arguments: Object, repairs: tuple[str, ...] = (), id: str = ""
) -> TextCall | None:
    """The call with these arguments; None if no such tool is offered."""
    return _make_mended_call(situation, name, ReadArguments(arguments, "", repairs), id)


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
    return _make_mended_call(situation, name, ReadArguments(read.value, read.text, (*repairs, *read.repairs)), id)


def _make_mended_call(situation: Situation, name: str, read: ReadArguments, id: str) -> TextCall | None:
    tool = situation.tools.find_tool(name)
    if tool is None:
        return None
    mended = mend_arguments(read.value, situation.tools.parameters(tool))
    text = read.text if read.text and not mended.repairs else encode_text(mended.value)
    renamed = () if tool == name else (f"the name `{name}` was read as `{tool}`",)
    return TextCall(tool, text, id, (*renamed, *read.repairs, *mended.repairs))


def find_json_object(text: str, at: int, situation: Situation) -> tuple[str, int] | Waiting | None:
    """The JSON object that begins here, and where it ends. Without an end it is all that is left of the answer."""
    end = find_value_end(text, at)
    if end >= 0:
        return text[at:end], end
    if not situation.is_end:
        return Waiting(("}",))
    return None if situation.was_cut else (strip_end_tokens(text[at:]), len(text))


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
