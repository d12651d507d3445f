"""The Messages protocol of Anthropic."""

from __future__ import annotations

import re

from toolwire.core.codec import Codec, Constraints
from toolwire.protocols.anthropic.errors import read_error, write_error
from toolwire.protocols.anthropic.http import HTTP
from toolwire.protocols.anthropic.members import REQUEST_MEMBERS
from toolwire.protocols.anthropic.models import (
    MID_SYSTEM_MODELS,
    can_force_tools,
    family,
    is_claude,
    supports_provider_tool,
)
from toolwire.protocols.anthropic.names import NAME
from toolwire.protocols.anthropic.platforms import PLATFORMS
from toolwire.protocols.anthropic.quirks import QUIRKS
from toolwire.protocols.anthropic.request import read_request, write_request
from toolwire.protocols.anthropic.response import peek_response, read_response, write_response
from toolwire.protocols.anthropic.stream_reader import StreamReader
from toolwire.protocols.anthropic.stream_writer import StreamWriter
from toolwire.protocols.anthropic.tools import SEARCH_TYPE, refuses_tool
from toolwire.schema.repair import convert_to_anthropic_input

CONSTRAINTS = Constraints(
    instructions_key="system",
    arguments_must_parse=True,
    tool_name_pattern=re.compile(r"[a-zA-Z0-9_-]+"),
    max_tool_name_length=128,
    call_id_pattern=re.compile(r"[a-zA-Z0-9_-]+"),
    max_call_id_length=64,
    tool_kinds=frozenset({"function"}),
    result_placement="user",
    merged_roles=frozenset({"user", "assistant"}),
    must_start_with_user=True,
    allows_empty_text=False,
    system_placement="top",
    mid_system_turns="by_model",
    mid_system_turn_models=MID_SYSTEM_MODELS,
    result_media_kinds=frozenset({"image", "file"}),
    result_error_style="flag",
    seal_slots=frozenset({"reasoning"}),
    seal_error_pattern=re.compile(r"[Ii]nvalid `signature` in `thinking` block"),
    token_limit_error_patterns=(re.compile(r"max_tokens: \d+ > (?P<most>\d+), which is the maximum"),),
    needs_signed_reasoning=True,
    binds_reasoning_to_tools=lambda model: family(model).binds_prefix,
    can_force_tools=can_force_tools,
    tool_search_types=(SEARCH_TYPE,),
    convert_tool_schema=convert_to_anthropic_input,
    refuses_tool=refuses_tool,
    judged_members=lambda model: frozenset({"tools"} if is_claude(model) else ()),
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
    estimates_input=True,
    peek_response=peek_response,
    supports_provider_tool=supports_provider_tool,
    quirks=QUIRKS,
    platforms=PLATFORMS,
)
