"""OpenAI Responses: `POST /v1/responses`."""

from __future__ import annotations

import re

from toolwire.protocols.openai_responses.details.state import KEEPING
from toolwire.protocols.openai_responses.errors import read_error, write_error
from toolwire.protocols.openai_responses.http import HTTP
from toolwire.protocols.openai_responses.models import QUIRKS, hosts
from toolwire.protocols.openai_responses.names import KINDS, NAME
from toolwire.protocols.openai_responses.request import read_request, write_request
from toolwire.protocols.openai_responses.response import glance, read_response, write_response
from toolwire.protocols.openai_responses.stream_read import StreamReader
from toolwire.protocols.openai_responses.stream_write import StreamWriter
from toolwire.room import Room, Rules
from toolwire.schema import object_only

ROOM = Room(
    name=NAME,
    rules=Rules(
        name_pattern=re.compile(r"[a-zA-Z0-9_-]+"),
        name_limit=128,
        id_limit=64,
        tool_kinds=KINDS,
        namespaces=True,
        tools_in_turns=True,
        results="turns",
        system="both",
        result_media=frozenset({"image", "file"}),
        result_error="text",
        json_word=True,
        dialect=object_only,
        seals=frozenset({"reasoning"}),
        seal_refusals=re.compile(r"\binvalid_encrypted_content\b"),
        limit_refusals=(
            re.compile(r"'max_output_tokens'.{0,60}?Expected a value <= (?P<most>\d+)"),
            re.compile(r"supports at most (?P<most>\d+) (?:completion|output) tokens"),
        ),
        reasoning_leads=True,
        phases=True,
        turns_key="input",
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
    glance=glance,
    keeping=KEEPING,
    hosts=hosts,
    quirks=QUIRKS,
)
