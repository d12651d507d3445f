"""OpenAI Chat Completions, and the many servers that speak it with an accent."""

from __future__ import annotations

import re

from toolwire.protocols.openai_chat.details.quirks import QUIRKS
from toolwire.protocols.openai_chat.errors import read_error, write_error
from toolwire.protocols.openai_chat.http import HTTP
from toolwire.protocols.openai_chat.models import hosts, takes
from toolwire.protocols.openai_chat.names import NAME
from toolwire.protocols.openai_chat.request import read_request, write_request
from toolwire.protocols.openai_chat.response import glance, read_response, write_response
from toolwire.protocols.openai_chat.stream_read import StreamReader
from toolwire.protocols.openai_chat.stream_write import StreamWriter
from toolwire.room import Room, Rules
from toolwire.schema import object_only

RULES = Rules(
    name_pattern=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    name_limit=64,
    id_pattern=re.compile(r"[!-~]+"),
    id_limit=40,
    tool_kinds=frozenset({"function", "custom"}),
    results="turns",
    joins=frozenset({"assistant"}),
    system="turns",
    result_error="text",
    json_word=True,
    dialect=object_only,
)

ROOM = Room(
    name=NAME,
    rules=RULES,
    http=HTTP,
    read_request=read_request,
    write_request=write_request,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
    stream_reader=StreamReader,
    stream_writer=StreamWriter,
    glance=glance,
    takes=takes,
    hosts=hosts,
    quirks=QUIRKS,
)
