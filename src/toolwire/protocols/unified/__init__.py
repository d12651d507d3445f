"""The unified protocol: one schema for tool calling with every provider, and strict toward its clients."""

import re

from toolwire.protocols.unified.errors import read_error, write_error
from toolwire.protocols.unified.http import HTTP
from toolwire.protocols.unified.names import ID_LIMIT, NAME, NAME_LIMIT
from toolwire.protocols.unified.request import read_request, write_request
from toolwire.protocols.unified.response import read_response, write_response
from toolwire.protocols.unified.stream_read import StreamReader
from toolwire.protocols.unified.stream_write import StreamWriter
from toolwire.room import Room, Rules
from toolwire.schema import object_only

ROOM = Room(
    name=NAME,
    rules=Rules(
        name_pattern=re.compile(r"[A-Za-z0-9_]+"),
        name_limit=NAME_LIMIT,
        # Any id is legal here, because `write_id` escapes it: so the provider's own comes back without state.
        id_pattern=re.compile(r"(?s).+"),
        id_limit=ID_LIMIT,
        results="turns",
        joins=frozenset({"assistant"}),
        system="both",
        result_media=frozenset({"image", "file", "audio", "video"}),
        result_error="flag",
        dialect=object_only,
        seals=frozenset({"reasoning", "call", "text"}),
    ),
    http=HTTP,
    read_request=read_request,
    write_request=write_request,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
    stream_reader=StreamReader,
    stream_writer=StreamWriter,
    hosts=lambda tool, model, functions: True,
)
