"""The unified protocol: one schema for tool calling with every provider, and strict toward its clients."""

import re

from toolwire.core.codec import Codec, Constraints
from toolwire.protocols.unified.errors import read_error, write_error
from toolwire.protocols.unified.http import HTTP
from toolwire.protocols.unified.members import REQUEST_MEMBERS
from toolwire.protocols.unified.names import ID_LIMIT, NAME, NAME_LIMIT
from toolwire.protocols.unified.request import read_request, write_request
from toolwire.protocols.unified.response import read_response, write_response
from toolwire.protocols.unified.stream_reader import StreamReader
from toolwire.protocols.unified.stream_writer import StreamWriter
from toolwire.schema.object_root import ensure_object_root

CODEC = Codec(
    name=NAME,
    constraints=Constraints(
        instructions_key="system",
        tool_name_pattern=re.compile(r"[A-Za-z0-9_]+"),
        max_tool_name_length=NAME_LIMIT,
        # Any id is accepted, because `write_call_id` escapes it reversibly.
        call_id_pattern=re.compile(r"(?s).+"),
        max_call_id_length=ID_LIMIT,
        result_placement="turns",
        takes_async_calls=True,
        merged_roles=frozenset({"assistant"}),
        system_placement="both",
        result_media_kinds=frozenset({"image", "file", "audio", "video"}),
        result_error_style="flag",
        convert_tool_schema=ensure_object_root,
        seal_slots=frozenset({"reasoning", "call", "text"}),
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
    supports_provider_tool=lambda tool, model, functions: True,
)
