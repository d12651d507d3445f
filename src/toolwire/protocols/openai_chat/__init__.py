"""OpenAI Chat Completions, and the many servers that are compatible with it."""

from __future__ import annotations

import re

from toolwire.core.codec import Codec, Constraints
from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.tokens import is_openai_model, openai_max_tools
from toolwire.protocols.openai_chat.errors import read_failure, write_error
from toolwire.protocols.openai_chat.http import HTTP
from toolwire.protocols.openai_chat.members import REQUEST_MEMBERS
from toolwire.protocols.openai_chat.models import JUDGED_MEMBERS, QUIRKS, supports_model, supports_provider_tool
from toolwire.protocols.openai_chat.names import NAME, TOOL_SHAPES
from toolwire.protocols.openai_chat.platforms import PLATFORMS
from toolwire.protocols.openai_chat.request import peek_request, read_request, write_request
from toolwire.protocols.openai_chat.response import peek_response, read_response, write_response
from toolwire.protocols.openai_chat.stream_reader import StreamReader
from toolwire.protocols.openai_chat.stream_writer import StreamWriter
from toolwire.protocols.openai_chat.tools import count_tools, nest_tool_choice
from toolwire.schema.repair import convert_to_openai_parameters, convert_to_openai_strict, openai_refuses_tool

CONSTRAINTS = Constraints(
    tool_name_pattern=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    max_tool_name_length=64,
    call_id_pattern=re.compile(r"[!-~]+"),
    max_call_id_length=40,
    tool_kinds=frozenset(TOOL_SHAPES),
    result_placement="turns",
    merged_roles=frozenset({"assistant"}),
    system_placement="turns",
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
    # Messages of OpenAI, vLLM, DashScope and others.
    token_limit_error_patterns=(
        re.compile(r"supports at most (?P<most>\d+) (?:completion|output) tokens"),
        re.compile(r"max_(?:completion_)?tokens.{0,40}?(?:less than or equal to|<=) `?(?P<most>\d+)"),
        re.compile(r"range of max_tokens is \[\d+, ?(?P<most>\d+)\]"),
        re.compile(
            r"maximum context length is (?P<window>\d+) tokens.{0,80}?(?:request has |\()(?P<used>\d+) (?:input|in the)"
        ),
    ),
)

CODEC = Codec(
    name=NAME,
    constraints=CONSTRAINTS,
    http=HTTP,
    request_members=REQUEST_MEMBERS,
    read_request=read_request,
    write_request=write_request,
    read_response=read_response,
    write_response=write_response,
    read_error=read_failure,
    write_error=write_error,
    make_stream_reader=StreamReader,
    make_stream_writer=StreamWriter,
    peek_request=peek_request,
    rewrite_unusual=nest_tool_choice,
    count_tools=count_tools,
    peek_response=peek_response,
    supports_model=supports_model,
    supports_provider_tool=supports_provider_tool,
    quirks=QUIRKS,
    platforms=PLATFORMS,
)
