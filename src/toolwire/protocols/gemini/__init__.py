"""Google Gemini, generateContent."""

from __future__ import annotations

import re

from toolwire.core.codec import Codec, Constraints
from toolwire.protocols.gemini.errors import read_error, write_error
from toolwire.protocols.gemini.http import HTTP
from toolwire.protocols.gemini.members import REQUEST_MEMBERS
from toolwire.protocols.gemini.models import QUIRKS, supports_provider_tool
from toolwire.protocols.gemini.names import NAME
from toolwire.protocols.gemini.platforms import PLATFORMS
from toolwire.protocols.gemini.request import open_config, peek_request, read_request, write_request
from toolwire.protocols.gemini.response import peek_response, read_response, write_response
from toolwire.protocols.gemini.stream_reader import StreamReader
from toolwire.protocols.gemini.stream_writer import StreamWriter
from toolwire.protocols.gemini.tools import JUDGED_MEMBERS, convert_tool_schema, count_tools, refuses_tool

CODEC = Codec(
    name=NAME,
    constraints=Constraints(
        tool_name_pattern=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*"),
        result_placement="user",
        merged_roles=frozenset({"user", "assistant"}),
        must_start_with_user=True,
        system_placement="top",
        mid_system_turns="user",
        result_media_kinds=frozenset({"image", "file"}),
        result_error_style="flag",
        seal_slots=frozenset({"call", "text", "reasoning"}),
        seal_error_pattern=re.compile(r"(?i)\b(invalid|corrupted) thought.signature"),
        token_limit_error_patterns=(
            re.compile(r"maxOutputTokens.{0,80}?\bto (?P<below>\d+) \(exclusive\)"),
            re.compile(r"(?i)max_?output_?tokens.{0,40}?(?:less than or equal to|<=|at most) (?P<most>\d+)"),
        ),
        seal_vendor="google",
        convert_tool_schema=convert_tool_schema,
        refuses_tool=refuses_tool,
        judged_members=lambda _model: JUDGED_MEMBERS,
        max_tools=lambda _model: 512,
        call_finish_kinds=frozenset({"stop", "calls"}),
        turns_key="contents",
        instructions_key="systemInstruction",
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
    rewrite_unusual=open_config,
    count_tools=count_tools,
    peek_response=peek_response,
    supports_provider_tool=supports_provider_tool,
    quirks=QUIRKS,
    platforms=PLATFORMS,
)
