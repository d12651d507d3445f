"""Gemma 4 (`<|tool_call>call:NAME{k:<|"|>v<|"|>,n:3}<tool_call|>`) and FunctionGemma
(`<start_function_call>call:NAME{k:<escape>v<escape>}<end_function_call>`).

Both have literals of their own: text stands raw between two delimiters, keys are bare words. A server that drops
special tokens leaves `call:NAME{k:v}`, where only the schema tells the values apart.
"""

from __future__ import annotations

import json
import re
from typing import Final

from msgspec import Struct

from toolwire.call_repair.near_json import LITERALS
from toolwire.call_repair.typed_text import read_typed_text
from toolwire.core.json_values import Json, Object
from toolwire.schema.keywords import object_or_empty
from toolwire.tool_formats.found_calls import add_repair, make_call, make_json_call, parameter_schemas
from toolwire.tool_formats.frame import Frame, Situation, TextCall, ToolFormat
from toolwire.tool_formats.json_bodies import end_of_object
from toolwire.tool_formats.json_text import skip_blanks
from toolwire.tool_formats.tag_text import (
    MAX_TAG_LENGTH,
    NeedsTextError,
    end_of_match,
    frame_reader,
    is_cut_here,
    require_whole_match,
    require_whole_tag,
    require_whole_word,
)

_MAX_DEPTH: Final = 64

_OPENING: Final = r"(?:<\|tool_call>|<start_function_call>)\s*"
_HEAD: Final = re.compile(rf"(?:{_OPENING})?(?P<call>call)?:?\s*(?P<name>[^\s{{}}()<>]{{1,200}})\s*(?P<bracket>[{{(])")
_OPEN_HEAD: Final = re.compile(rf"(?:{_OPENING})?(?:call)?:?\s*[^\s{{}}()<>]{{0,200}}\s*\Z")
_match_delimiter = re.compile(r'<\|"\|>|<escape>').match
_match_json_string = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL).match
_match_word = re.compile(r"[^\s,:{}\[\]()<>\"]+(?: +[^\s,:{}\[\]()<>\"]+)*").match
_match_key = re.compile(r"[^\s,:={}\[\]()<>\"]+").match
_is_number = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.(?:\Z|[0-9]++))?(?:[eE][+-]?[0-9]++)?").fullmatch
_EXTRA_BRACKETS: Final = re.compile(r"[\s}]*+")
_CLOSING: Final = re.compile(rf"{_EXTRA_BRACKETS.pattern}(?:<tool_call\|>|<end_function_call>)")
_LINE_END: Final = re.compile(r"[ \t]*(?:\n|\Z|(?=call:))")
_SPACES: Final = re.compile(r"[ \t]*")
_MARKS: Final = ("}", ")", "<tool_call|>", "<end_function_call>")
_BRACKETS: Final = {"{": "}", "[": "]", "(": ")"}


class _UnreadableError(Exception):
    """It is no value of this format."""


class _Body(Struct, frozen=True):
    """The arguments between the brackets of a call."""

    end: int
    values: Object = {}
    json: str | None = None
    repairs: tuple[str, ...] = ()


# --- frames ---------------------------------------------------------------------------------------------------------


@frame_reader
def _read_marked_frame(text: str, start: int, situation: Situation) -> Frame | None:
    """A call between the tokens of its format."""
    call, end = _read_call(text, start, situation)
    closing = _CLOSING.match(text, end)
    if call is None or closing:
        return Frame(closing.end(), (call,)) if call and closing else None
    require_whole_tag(text, end_of_match(_EXTRA_BRACKETS, text, end), situation)
    return (
        None
        if is_cut_here(text, end, situation)
        else Frame(end, (add_repair(call, "the end of the call was missing"),))
    )


@frame_reader
def _read_bare_frame(text: str, start: int, situation: Situation) -> Frame | None:
    """A call whose tokens the server dropped. It must end its line."""
    call, end = _read_call(text, start, situation)
    if call is None:
        return None
    call = add_repair(call, "the marks around the call were missing")
    closing = _CLOSING.match(text, end)
    if closing:
        return Frame(closing.end(), (call,))
    require_whole_word(
        ("<tool_call|>", "<end_function_call>", "call:"), text, end_of_match(_SPACES, text, end), situation
    )
    return Frame(end, (call,)) if _LINE_END.match(text, end) and not is_cut_here(text, end, situation) else None


def _read_call(text: str, start: int, situation: Situation) -> tuple[TextCall | None, int]:
    """The call that begins here, and where it ends, without its closing mark."""
    head = _HEAD.match(text, start)
    if head is None:
        require_whole_match(_OPEN_HEAD, text, start, situation)
        require_whole_tag(text, start, situation)
        return None, start
    name = _find_name(head["name"], situation)
    body = _read_body(text, head.start("bracket"), parameter_schemas(situation, name), situation) if name else None
    if name is None or body is None:
        return None, start
    repairs = body.repairs if head["call"] else ("the word `call` was missing", *body.repairs)
    if body.json is not None:
        return make_json_call(situation, name, body.json, repairs), body.end
    return make_call(situation, name, body.values, repairs), body.end


def _find_name(name: str, situation: Situation) -> str | None:
    """The name as it stands, or the last part of `google:mcp:NAME`."""
    for meant in (name, name.rpartition(":")[2]):
        if situation.tools.find_tool(meant) is not None:
            return meant
    return None


# --- arguments ------------------------------------------------------------------------------------------------------


def _read_body(text: str, at: int, schemas: Object, situation: Situation) -> _Body | None:
    """The arguments in brackets: literals of the format, else JSON, else bare text by the schema."""
    try:
        values, end = _read_object(text, at, 0, schemas)
    except NeedsTextError:
        if situation.is_end:
            return None
        raise
    except _UnreadableError:
        pass
    else:
        return _Body(end, values, None, () if text[at] == "{" else ("the arguments stood in round brackets",))
    json_end = end_of_object(text, at)
    if json_end is not None:
        return _Body(json_end, {}, text[at:json_end], ("the arguments were JSON",))
    return _read_bare_body(text, at, schemas, situation)


def _read_bare_body(text: str, at: int, schemas: Object, situation: Situation) -> _Body | None:
    """`{content:hello, world,path:a.txt}`: a value goes on until the next known key, or the bracket that closes."""
    end = _find_bracket_end(text, at)
    if end is None:
        if situation.is_end:
            return None
        raise NeedsTextError(_MARKS)
    inner = text[at + 1 : end - 1]
    keys = "|".join(re.escape(key) for key in sorted(schemas, key=len, reverse=True))
    places = list(re.finditer(rf"(?:^|,)\s*({keys})\s*:", inner)) if keys else []
    names = [place[1] for place in places]
    if not places or places[0].start() > 0 or len({*names}) < len(names):
        return None
    ends = [place.start() for place in places[1:]] + [len(inner)]
    values: Object = {}
    for place, stop in zip(places, ends, strict=True):
        values[place[1]] = read_typed_text(inner[place.end() : stop].strip(), object_or_empty(schemas[place[1]]))
    return _Body(end, values, None, ("the values had no quotes",))


def _find_bracket_end(text: str, at: int) -> int | None:
    depth = 0
    opening, closing = text[at], _BRACKETS[text[at]]
    for found in re.compile(f"[{re.escape(opening + closing)}]").finditer(text, at):
        depth += 1 if found[0] == opening else -1
        if depth == 0:
            return found.end()
    return None


# --- literals -------------------------------------------------------------------------------------------------------


def _read_object(text: str, at: int, depth: int, schemas: Object) -> tuple[Object, int]:
    """The pairs in brackets, and where they end."""
    closing = _BRACKETS[text[at]]
    values: Object = {}
    at = _skip(text, at + 1)
    while text[at] != closing:
        key, at = _read_key(text, at)
        at = _skip(text, at)
        if text[at] not in ":=" or key in values:
            raise _UnreadableError
        at = _skip(text, at + 1)
        values[key], at = _read_literal(text, at, depth + 1, object_or_empty(schemas.get(key)))
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        elif text[at] != closing:
            raise _UnreadableError
    return values, at + 1


def _read_key(text: str, at: int) -> tuple[str, int]:
    if _match_delimiter(text, at) or text[at] == '"':
        return _read_text(text, at)
    found = _match_key(text, at)
    if found is None:
        raise _no_literal(text, at)
    return found[0], found.end()


def _read_literal(text: str, at: int, depth: int, schema: Object) -> tuple[Json, int]:
    if depth > _MAX_DEPTH:
        raise _UnreadableError
    if _match_delimiter(text, at):
        value, end = _read_text(text, at)
        # FunctionGemma writes numbers between its delimiters too.
        return read_typed_text(value, schema) if text.startswith("<escape>", at) else value, end
    if text[at] == '"':
        return _read_text(text, at)
    if text[at] == "{":
        return _read_object(text, at, depth, object_or_empty(schema.get("properties")))
    if text[at] == "[":
        return _read_list(text, at, depth, schema)
    found = _match_word(text, at)
    if found is None:
        raise _no_literal(text, at)
    word = found[0]
    _skip(text, found.end())
    if word not in LITERALS and not _is_number(word):
        raise _UnreadableError
    # Gemma 4 writes `108.` for 108.0.
    return LITERALS[word] if word in LITERALS else json.loads(f"{word}0" if word[-1] == "." else word), found.end()


def _read_list(text: str, at: int, depth: int, schema: Object) -> tuple[list[Json], int]:
    items = object_or_empty(schema.get("items"))
    values: list[Json] = []
    at = _skip(text, at + 1)
    while text[at] != "]":
        value, at = _read_literal(text, at, depth + 1, items)
        values.append(value)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        elif text[at] != "]":
            raise _UnreadableError
    return values, at + 1


def _read_text(text: str, at: int) -> tuple[str, int]:
    """Raw text between delimiters, or a JSON string."""
    delimiter = _match_delimiter(text, at)
    if delimiter:
        end = text.find(delimiter[0], delimiter.end())
        if end < 0:
            raise NeedsTextError(_MARKS)
        return text[delimiter.end() : end], end + len(delimiter[0])
    found = _match_json_string(text, at)
    if found is None:
        raise NeedsTextError(_MARKS)
    try:
        value = json.loads(found[0], strict=False)
    except ValueError:
        raise _UnreadableError from None
    return str(value), found.end()


def _skip(text: str, at: int) -> int:
    at = skip_blanks(text, at)
    if at == len(text):
        raise NeedsTextError(_MARKS)
    return at


def _no_literal(text: str, at: int) -> Exception:
    """What stands here is no literal, or the first half of a delimiter."""
    rest = text[at : at + MAX_TAG_LENGTH]
    is_half = any(delimiter.startswith(rest) for delimiter in ('<|"|>', "<escape>"))
    return NeedsTextError(_MARKS) if is_half else _UnreadableError()


FORMATS: Final = (
    ToolFormat("gemma4", ("<|tool_call>",), _read_marked_frame),
    ToolFormat("functiongemma", ("<start_function_call>",), _read_marked_frame),
    ToolFormat("gemma4", ("call:",), _read_bare_frame, "line"),
)
