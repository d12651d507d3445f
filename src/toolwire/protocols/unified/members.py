"""The members of requests, for whoever decides by a body that goes on as it came."""

from __future__ import annotations

from toolwire.core.request_members import ObjectMembers, RequestMembers, read_spellings
from toolwire.protocols.unified.names import REQUEST_KEYS

REQUEST_MEMBERS = RequestMembers(
    outermost=REQUEST_KEYS,
    decisive=read_spellings("model stream tools tool_choice messages system store"),
    # Its reader refuses all other names, so only those are listed that are decided by.
    judged=read_spellings("type name tools tool_calls tool_choice hosted allowed mode file_id max_output_tokens"),
    free=frozenset({"arguments", "parameters", "schema", "metadata", "output"}),
    turns=frozenset({"messages"}),
    declarations=frozenset({"tools"}),
    tool_choices=frozenset({"tool_choice"}),
    tool_places=frozenset({"tools", "tool_choice"}),
    objects=ObjectMembers(),
)
