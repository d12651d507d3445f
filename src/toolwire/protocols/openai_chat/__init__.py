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
    # The vendor's own words, and those of servers that speak its protocol.
    limit_refusals=(
        re.compile(r"supports at most (?P<most>\d+) (?:completion|output) tokens"),
        re.compile(r"max_(?:completion_)?tokens.{0,40}?(?:less than or equal to|<=) `?(?P<most>\d+)"),
        re.compile(r"range of max_tokens is \[\d+, ?(?P<most>\d+)\]"),
        re.compile(
            r"maximum context length is (?P<window>\d+) tokens.{0,80}?(?:request has |\()(?P<used>\d+) (?:input|in the)"
        ),
    ),
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
