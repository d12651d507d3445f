"""OpenAI Responses: `POST /v1/responses`."""

from __future__ import annotations

import re

from toolwire.core.codec import Codec, Constraints
from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.tokens import is_openai_model, openai_max_tools
from toolwire.protocols.openai_responses.errors import read_error, write_error
from toolwire.protocols.openai_responses.http import HTTP
from toolwire.protocols.openai_responses.members import REQUEST_MEMBERS
from toolwire.protocols.openai_responses.models import JUDGED_MEMBERS, QUIRKS, supports_provider_tool
from toolwire.protocols.openai_responses.names import NAME, SHAPE_BY_KIND
from toolwire.protocols.openai_responses.platforms import PLATFORMS
from toolwire.protocols.openai_responses.request import flatten_tool_choice, peek_request, read_request, write_request
from toolwire.protocols.openai_responses.response import peek_response, read_response, write_response
from toolwire.protocols.openai_responses.stream_reader import StreamReader
from toolwire.protocols.openai_responses.stream_writer import StreamWriter
from toolwire.protocols.openai_responses.tools import count_tools
from toolwire.schema.repair import convert_to_openai_parameters, convert_to_openai_strict, openai_refuses_tool

CODEC = Codec(
    name=NAME,
    constraints=Constraints(
        arguments_must_parse=True,
        tool_name_pattern=re.compile(r"[a-zA-Z0-9_-]+"),
        max_tool_name_length=128,
        max_call_id_length=64,
        tool_kinds=frozenset(SHAPE_BY_KIND),
        has_namespaces=True,
        takes_async_calls=True,
        allows_tools_in_turns=True,
        result_placement="turns",
        system_placement="both",
        result_media_kinds=frozenset({"image", "file"}),
        result_error_style="text",
        has_refusal_parts=True,
        json_mode_needs_word=True,
        convert_tool_schema=convert_to_openai_parameters,
        convert_strict_schema=convert_to_openai_strict,
        refuses_tool=openai_refuses_tool,
        judged_members=lambda model: JUDGED_MEMBERS if is_openai_model(model) else frozenset(),
        convert_format_schema=lambda schema, model: (
            convert_to_openai_parameters(schema) if is_openai_model(model) else ConvertedSchema(schema)
        ),
        max_tools=openai_max_tools,
        tool_search_types=("tool_search",),
        seal_slots=frozenset({"reasoning"}),
        seal_error_pattern=re.compile(r"\binvalid_encrypted_content\b"),
        token_limit_error_patterns=(
            re.compile(r"'max_output_tokens'.{0,60}?Expected a value <= (?P<most>\d+)"),
            re.compile(r"supports at most (?P<most>\d+) (?:completion|output) tokens"),
        ),
        needs_part_after_reasoning=True,
        keeps_unsealed_reasoning="stored",
        has_turn_phases=True,
        turns_key="input",
        instructions_key="instructions",
    ),
    http=HTTP,
    request_members=REQUEST_MEMBERS,
    read_request=read_request,
    write_request=write_request,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
    make_stream_reader=StreamReader,
    make_stream_writer=StreamWriter,
    peek_request=peek_request,
    rewrite_unusual=flatten_tool_choice,
    count_tools=count_tools,
    peek_response=peek_response,
    supports_provider_tool=supports_provider_tool,
    quirks=QUIRKS,
    platforms=PLATFORMS,
)
