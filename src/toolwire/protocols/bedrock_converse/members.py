"""The members of requests, for whoever decides by a body that goes on as it came."""

from __future__ import annotations

from toolwire.core.request_members import ObjectMembers, RequestMembers, ToolCosts, letter_set, read_spellings
from toolwire.protocols.bedrock_converse.names import FREE_MODEL_FIELDS, REQUEST_KEYS, key_set

_CONVERSE = REQUEST_KEYS | key_set("guardrailConfig performanceConfig promptVariables input")
"""From the service model of botocore 1.44.3 (November 2026); `input` is that of a token count."""

REQUEST_MEMBERS = RequestMembers(
    outermost=_CONVERSE,
    decisive=read_spellings(
        "messages system toolConfig inferenceConfig additionalModelRequestFields promptVariables input"
    ),
    judged=read_spellings(
        """type name tools toolSpec systemTool toolChoice=tool_choice tool toolAddition toolRemoval mcp_servers
        maxTokens=max_tokens uri serverName"""
    ),
    free=key_set("inputSchema schema requestMetadata json arguments parameters properties metadata"),
    free_objects=frozenset({"input"}),
    turns=frozenset({"messages"}),
    declarations=key_set("tools toolAddition"),
    tool_choices=key_set("toolChoice tool_choice mcp_servers"),
    tool_places=key_set("toolConfig"),
    # Web grounding of Nova is billed for each use, and no answer says how often; guardrails by the length of the text.
    # The tier `priority` and optimized latency cost more (AWS's pricing page, November 2026). Tools of Claude that its
    # client runs are settings of the model here (AWS's user guide, "Computer use").
    tool_costs=ToolCosts(
        tokens_only=key_set("custom function computer bash text_editor memory tool_search_tool"),
        members=key_set("guardrailConfig"),
        markers=(b'"toolAddition"',),
        model_settings={"additionalModelRequestFields": FREE_MODEL_FIELDS},
        usual_values={
            "serviceTier": frozenset({b'{"type":"default"}', b'{"type":"flex"}'}),
            "performanceConfig": frozenset({b'{"latency":"standard"}'}),
        },
    ),
    cache_breakpoints=("cachePoint",),
    objects=ObjectMembers(
        names=letter_set(["guardrailIdentifier"]),
        uris=frozenset({"uri"}),
        name_in_uri=lambda uri: uri if uri[:3].lower() == "s3:" else "",
    ),
)
