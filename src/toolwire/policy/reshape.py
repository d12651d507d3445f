"""Conversions of parameters between client and model: a pair of inverse functions, and the model's schema.

A name has the client's form first: with `shell-text` the client takes `["bash", "-lc", "ls"]` and the model writes
`ls`. A value of an unexpected form is not changed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from itertools import permutations
from types import MappingProxyType

from msgspec import Struct

from toolwire.core.json_values import Json, Malformed, Object, decode, encode_text

DEFAULT_SHELL = ("bash", "-lc")
_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/zsh"})


class Conversion(Struct, frozen=True):
    """How one parameter is converted."""

    to_model: Callable[[Json], Json]
    to_client: Callable[[Json], Json]
    schema: Object
    """The schema of the model's form, without a description."""
    description: str
    """What it does, for the reference."""
    joined_parameter: str = ""
    """A second parameter of the client that is joined into the model's one: `to_model` takes a pair."""
    split_parameter: str = ""
    """A second parameter of the model that is split off the client's one: `to_model` gives a pair."""


def _is_text_list(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _argv_to_text(value: Json) -> Json:
    """`["bash", "-lc", "ls"]` as `ls`; any other argument vector quoted for a shell."""
    if not _is_text_list(value) or not value:
        return value
    if len(value) == 3 and value[0] in _SHELLS and value[1] in ("-lc", "-c"):
        return value[2]
    return shlex.join(value)


def _text_to_argv(value: Json) -> Json:
    return [*DEFAULT_SHELL, value] if isinstance(value, str) else value


def _join_with(separator: str) -> Callable[[Json], Json]:
    return lambda value: separator.join(value) if _is_text_list(value) else value


def _split_at(separator: str) -> Callable[[Json], Json]:
    def split(value: Json) -> Json:
        if not isinstance(value, str):
            return value
        return [item.strip() if separator == "," else item for item in value.split(separator)] if value else []

    return split


def _wrap_in_list(value: Json) -> Json:
    return value if isinstance(value, list) else [value]


def _unwrap_single(value: Json) -> Json:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _parse_json_text(value: Json) -> Json:
    if not isinstance(value, str):
        return value
    try:
        return decode(value)
    except Malformed:
        return value


def _multiply_by(factor: int) -> Callable[[Json], Json]:
    def multiply(value: Json) -> Json:
        return value if isinstance(value, bool) or not isinstance(value, (int, float)) else value * factor

    return multiply


def _divide_by(factor: int) -> Callable[[Json], Json]:
    def divide(value: Json) -> Json:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return value
        return value // factor if isinstance(value, int) and value % factor == 0 else value / factor

    return divide


_URL = re.compile(r"https?://[^\s<>\"'`]+")
URL_PARAMETER = "url"
_PARAGRAPH_BREAK = "\n\n"


def _split_off_url(value: Json) -> Json:
    """A text, and the URL in it."""
    found = _URL.search(value) if isinstance(value, str) else None
    if found is None:
        return [value, None]
    url = found[0].rstrip(".,;:!?)]}")
    return [value.removesuffix(f"{_PARAGRAPH_BREAK}{url}"), url]


def _join_url(pair: Json) -> Json:
    """A question and a URL as one text."""
    question, url = pair
    if not isinstance(url, str) or (isinstance(question, str) and url in question):
        return question
    return f"{question}{_PARAGRAPH_BREAK}{url}" if isinstance(question, str) and question else url


_STEP_STATES = ["pending", "in_progress", "completed"]
_CONTENT_KEY, _ACTIVE_FORM_KEY = "content", "activeForm"
"""Claude Code's `TodoWrite` wants the text of a step twice, the second time in the form "doing it"."""
_TEXT_SCHEMA: Object = {"type": "string"}


def _plan_conversion(client_key: str, model_key: str) -> Conversion:
    """A list of steps, each with a text and a status. The keys are the client's and the model's key of the text."""
    step: Object = {
        "type": "object",
        "properties": {model_key: _TEXT_SCHEMA, "status": {"type": "string", "enum": _STEP_STATES}},
    }
    step["properties"] |= {_ACTIVE_FORM_KEY: _TEXT_SCHEMA} if model_key == _CONTENT_KEY else {}
    step["required"] = [*step["properties"]]
    description = f"the client has a plan whose steps have `{client_key}`, the model one whose steps have `{model_key}`"
    return Conversion(
        _rename_step_key(client_key, model_key),
        _rename_step_key(model_key, client_key),
        {"type": "array", "items": step},
        description,
    )


def _rename_step_key(old: str, new: str) -> Callable[[Json], Json]:
    def step(item: Json) -> Json:
        if not isinstance(item, dict) or old not in item:
            return item
        renamed = {new: item[old], **({"status": item["status"]} if "status" in item else {})}
        return {**renamed, _ACTIVE_FORM_KEY: item[old]} if new == _CONTENT_KEY else renamed

    return lambda value: [step(item) for item in value] if isinstance(value, list) else value


_LIST_SCHEMA: Object = {"type": "array", "items": {"type": "string"}}
_NUMBER_SCHEMA: Object = {"type": "number"}
_ANY_SCHEMA: Object = {}

CONVERSIONS: Mapping[str, Conversion] = MappingProxyType(
    {
        "shell-text": Conversion(
            _argv_to_text, _text_to_argv, _TEXT_SCHEMA, 'the client has ["bash", "-lc", COMMAND], the model COMMAND'
        ),
        "text-shell": Conversion(
            _text_to_argv, _argv_to_text, _LIST_SCHEMA, 'the client has COMMAND, the model ["bash", "-lc", COMMAND]'
        ),
        "list-text": Conversion(
            _join_with("\n"), _split_at("\n"), _TEXT_SCHEMA, "the client has a list of texts, the model its lines"
        ),
        "text-list": Conversion(
            _split_at("\n"), _join_with("\n"), _LIST_SCHEMA, "the client has lines, the model a list of texts"
        ),
        "csv": Conversion(
            _join_with(","), _split_at(","), _TEXT_SCHEMA, "the client has a list of texts, the model them with commas"
        ),
        "list-one": Conversion(
            _unwrap_single, _wrap_in_list, _ANY_SCHEMA, "the client has a list, the model its only item"
        ),
        "one-list": Conversion(
            _wrap_in_list, _unwrap_single, {"type": "array"}, "the client has one value, the model a list of it"
        ),
        "json-text": Conversion(
            encode_text, _parse_json_text, _TEXT_SCHEMA, "the client has a value, the model its JSON as text"
        ),
        **{
            f"{client_key}-{model_key}": _plan_conversion(client_key, model_key)
            for client_key, model_key in permutations(("step", "content", "description"), 2)
        },
        "request-page": Conversion(
            _split_off_url,
            _join_url,
            _TEXT_SCHEMA,
            "the client has one request, the model a question and a `url`",
            split_parameter=URL_PARAMETER,
        ),
        "page-request": Conversion(
            _join_url,
            _split_off_url,
            _TEXT_SCHEMA,
            "the client has a question and a `url`, the model one request",
            joined_parameter=URL_PARAMETER,
        ),
        "seconds-milliseconds": Conversion(
            _multiply_by(1000), _divide_by(1000), _NUMBER_SCHEMA, "the client has seconds, the model milliseconds"
        ),
        "milliseconds-seconds": Conversion(
            _divide_by(1000), _multiply_by(1000), _NUMBER_SCHEMA, "the client has milliseconds, the model seconds"
        ),
    }
)


def convert_schema(client_schema: Json, conversion: Conversion) -> Json:
    """The schema of a parameter as the model sees it."""
    if not isinstance(client_schema, dict):
        return dict(conversion.schema)
    labels = {key: client_schema[key] for key in ("title", "description") if key in client_schema}
    if conversion.schema is _ANY_SCHEMA:
        inner = client_schema.get("items")
        return {**inner, **labels} if isinstance(inner, dict) else labels
    if conversion.schema.keys() == {"type"} and conversion.schema["type"] == "array":
        inner = {key: value for key, value in client_schema.items() if key not in labels}
        return {"type": "array", "items": inner, **labels}
    return {**conversion.schema, **labels}
