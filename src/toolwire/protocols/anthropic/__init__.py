"""The Messages protocol of Anthropic."""

from __future__ import annotations

import re

from toolwire.protocols.anthropic.details.quirks import QUIRKS
from toolwire.protocols.anthropic.details.schemas import rooted
from toolwire.protocols.anthropic.errors import read_error, write_error
from toolwire.protocols.anthropic.http import HTTP
from toolwire.protocols.anthropic.models import MID_SYSTEM_MODELS, family, forces, hosts
from toolwire.protocols.anthropic.names import NAME
from toolwire.protocols.anthropic.request import read_request, write_request
from toolwire.protocols.anthropic.response import glance, read_response, write_response
from toolwire.protocols.anthropic.stream_read import StreamReader
from toolwire.protocols.anthropic.stream_write import StreamWriter
from toolwire.room import Room, Rules

RULES = Rules(
    name_pattern=re.compile(r"[a-zA-Z0-9_-]+"),
    name_limit=128,
    id_pattern=re.compile(r"[a-zA-Z0-9_-]+"),
    id_limit=64,
    tool_kinds=frozenset({"function"}),
    results="user",
    joins=frozenset({"user", "assistant"}),
    starts_with_user=True,
    empty_text=False,
    system="top",
    mid_system="model",
    mid_system_models=MID_SYSTEM_MODELS,
    result_media=frozenset({"image", "file"}),
    result_error="flag",
    seals=frozenset({"reasoning"}),
    seal_refusals=re.compile(r"[Ii]nvalid `signature` in `thinking` block"),
    limit_refusals=(re.compile(r"max_tokens: \d+ > (?P<most>\d+), which is the maximum"),),
    signed_reasoning=True,
    binds_reasoning=lambda model: family(model).binds_prefix,
    forces=forces,
    dialect=rooted,
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
    hosts=hosts,
    quirks=QUIRKS,
)
