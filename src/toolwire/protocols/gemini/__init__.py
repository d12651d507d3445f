"""Google Gemini, generateContent."""

from __future__ import annotations

import re

from toolwire.protocols.gemini.details.quirks import QUIRKS
from toolwire.protocols.gemini.details.schemas import argument_dialect
from toolwire.protocols.gemini.errors import read_error, write_error
from toolwire.protocols.gemini.http import HTTP
from toolwire.protocols.gemini.models import hosts
from toolwire.protocols.gemini.names import NAME
from toolwire.protocols.gemini.request import read_request, write_request
from toolwire.protocols.gemini.response import glance, read_response, write_response
from toolwire.protocols.gemini.stream_read import StreamReader
from toolwire.protocols.gemini.stream_write import StreamWriter
from toolwire.room import Room, Rules

ROOM = Room(
    name=NAME,
    rules=Rules(
        name_pattern=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*"),
        results="user",
        joins=frozenset({"user", "assistant"}),
        starts_with_user=True,
        system="top",
        mid_system="user",
        result_media=frozenset({"image", "file"}),
        result_error="flag",
        seals=frozenset({"call", "text", "reasoning"}),
        seal_refusals=re.compile(r"(?i)\b(invalid|corrupted) thought.signature"),
        limit_refusals=(
            re.compile(r"maxOutputTokens.{0,80}?\bto (?P<below>\d+) \(exclusive\)"),
            re.compile(r"(?i)max_?output_?tokens.{0,40}?(?:less than or equal to|<=|at most) (?P<most>\d+)"),
        ),
        vendor="google",
        dialect=argument_dialect,
        call_finishes=frozenset({"stop", "calls"}),
        turns_key="contents",
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
    hosts=hosts,
    quirks=QUIRKS,
)
