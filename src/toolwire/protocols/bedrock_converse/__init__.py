"""Amazon Bedrock's Converse and ConverseStream."""

from __future__ import annotations

import re

from toolwire.core.codec import Codec, Constraints
from toolwire.protocols.bedrock_converse.errors import read_error, write_error
from toolwire.protocols.bedrock_converse.http import HTTP
from toolwire.protocols.bedrock_converse.members import REQUEST_MEMBERS
from toolwire.protocols.bedrock_converse.models import can_force_tools, supports_provider_tool
from toolwire.protocols.bedrock_converse.names import NAME
from toolwire.protocols.bedrock_converse.quirks import QUIRKS
from toolwire.protocols.bedrock_converse.request import read_request, write_request
from toolwire.protocols.bedrock_converse.response import peek_response, read_response, write_response
from toolwire.protocols.bedrock_converse.stream_reader import StreamReader
from toolwire.protocols.bedrock_converse.stream_writer import StreamWriter
from toolwire.protocols.bedrock_converse.tools import count_tools
from toolwire.schema.repair import convert_to_anthropic_input

CONSTRAINTS = Constraints(
    tools_key="toolConfig",
    instructions_key="system",
    arguments_must_parse=True,
    # Names and ids of the service model; Claude's ids have fewer characters than it allows.
    tool_name_pattern=re.compile(r"[a-zA-Z0-9_-]+"),
    max_tool_name_length=64,
    call_id_pattern=re.compile(r"[a-zA-Z0-9_-]+"),
    max_call_id_length=64,
    result_placement="user",
    merged_roles=frozenset({"user", "assistant"}),
    must_start_with_user=True,
    allows_empty_text=False,
    system_placement="top",
    mid_system_turns="user",
    result_media_kinds=frozenset({"image", "file", "video"}),
    result_error_style="flag",
    seal_slots=frozenset({"reasoning"}),
    seal_error_pattern=re.compile(r"(?i)invalid `?signature`? in `?(?:thinking|reasoning)"),
    token_limit_error_patterns=(
        re.compile(r"max_?tokens: \d+ > (?P<most>\d+), which is the maximum"),
        re.compile(r"(?i)maximum tokens you requested exceeds the model limit of (?P<most>\d+)"),
    ),
    can_force_tools=can_force_tools,
    convert_tool_schema=convert_to_anthropic_input,
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
    read_error=read_error,
    write_error=write_error,
    make_stream_reader=StreamReader,
    make_stream_writer=StreamWriter,
    count_tools=count_tools,
    peek_response=peek_response,
    supports_provider_tool=supports_provider_tool,
    quirks=QUIRKS,
)
