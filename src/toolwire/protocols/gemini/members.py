"""The members of requests, for whoever decides by a body that goes on as it came."""

from __future__ import annotations

import re

from toolwire.core.request_members import ObjectMembers, RequestMembers, ToolCosts, letter_set, read_spellings
from toolwire.protocols.gemini.names import REQUEST_KEYS, KnownKeys

_GOOGLE = KnownKeys(
    *REQUEST_KEYS.camel_keys,
    *"""safetySettings cachedContent labels store continuationToken modelArmorConfig outputConfig
    generateContentRequest""".split(),
)
"""From the requests that google-genai 3.1.0 writes for `generate_content` and `count_tokens`."""

_FORWARDED = KnownKeys(
    *"""content model taskType title outputDimensionality autoTruncate embedContentConfig requests instances parameters
    labels contents ttl expireTime displayName fileName customMetadata chunkingConfig file mimeType systemInstruction
    tools toolConfig batch input generationConfig responseFormat responseMimeType responseModalities store background
    previousInteractionId stream serviceTier""".split()
)
"""From those for embeddings, images, videos, tokens, caches, files, stores, batches and interactions, without `agent`,
which chooses a model."""


def _both_spellings(table: str) -> str:
    """The table with the snake_case spelling beside each name."""
    camel = KnownKeys(*table.split())
    snake = {name: other for other, name in camel.camel_by_snake.items()}
    return " ".join(f"{name}={snake[name]}" if name in snake else name for name in table.split())


_FILE = re.compile(
    r"(?:https?://(?:[^/?#]*googleapis[^?#]*|[^?#]*/v[0-9][a-z0-9]*)/)?(files/[A-Za-z0-9_-]+)/?(?:[:?#].*)?",
    re.IGNORECASE | re.DOTALL,
)


def name_in_uri(uri: str) -> str:
    """The name of a file at Google, or that of one in a bucket of the account."""
    found = _FILE.fullmatch(uri)
    if found is not None:
        return found[1]
    scheme = uri[:8].lower()
    return uri if scheme.startswith("gs:") or ("://" not in uri and not scheme.startswith("data:")) else ""


def read_model(name: str) -> str:
    if name.startswith(("publishers/", "projects/")):  # Vertex
        return name.rpartition("/models/")[2]
    return name.removeprefix("models/")


_USUAL_TIERS = frozenset(
    b'"%b"' % tier
    for name in (b"unspecified", b"standard", b"flex")  # `types.ServiceTier` of google-genai 3.1.0
    for tier in (name, b"SERVICE_TIER_" + name.upper())
)
_TOOL_LISTS = frozenset({"tools", "functions", "functionDeclarations", "function_declarations"})
_OBJECT_NAMES = letter_set("fileIds cachedContent fileSearchStoreName fileSearchStoreNames datastore ragCorpus".split())

REQUEST_MEMBERS = RequestMembers(
    outermost=_GOOGLE.all_keys,
    forwarded=_FORWARDED.all_keys,
    # The model of a store of files.
    passing_rules=frozenset({"embeddingModel", "embedding_model"}),
    decisive=read_spellings(
        _both_spellings(
            "model stream tools toolConfig contents systemInstruction cachedContent generationConfig requests store"
        )
    ),
    judged=read_spellings(
        _both_spellings(
            """type name function functions tools mode functionDeclarations functionCallingConfig allowedFunctionNames
            functionCall functionResponse googleSearch googleSearchRetrieval codeExecution urlContext computerUse
            fileSearch mcpServers fileData fileUri"""
        )
        + " maxOutputTokens=max_output_tokens file_id"
    ),
    free=KnownKeys(
        *"""args arguments parameters parametersJsonSchema schema responseSchema responseJsonSchema inputSchema
        properties metadata""".split()
    ).all_keys,
    free_objects=frozenset({"response", "output"}),
    has_settings=lambda node: "instances" in node,  # on Vertex `parameters` can name a bucket
    inner_requests="requests",
    read_model=read_model,
    turns=frozenset({"contents", "input"}),
    declarations=_TOOL_LISTS,
    tool_choices=KnownKeys("toolConfig", "toolChoice", "functionCall", "mcpServers").all_keys,
    tool_places=frozenset({"tools", "toolConfig", "tool_config"}),
    stored_tools={"cachedContent": str, "cached_content": str},
    # From ai.google.dev/gemini-api/docs/pricing and its page on file search (copies of 2026, looked up in November):
    # pages, code and searches in files cost their tokens, and a client uses the computer itself. Google Search and Maps
    # cost money for each query or each prompt, by the model, and the usage does not say how many there were. Priority
    # inference costs more. Model Armor is billed by its own tokens (cloud.google.com/security/products/model-armor).
    tool_costs=ToolCosts(
        tokens_only=frozenset("web_fetch code_execution file_search computer mcpServers".split()),
        members=frozenset({"modelArmorConfig", "model_armor_config"}),
        usual_values=dict.fromkeys(("serviceTier", "service_tier"), _USUAL_TIERS),
    ),
    objects=ObjectMembers(
        names=_OBJECT_NAMES,
        forwarded_names=_OBJECT_NAMES | letter_set(["previousInteractionId"]),
        # For the file that a store imports. `filename` is what a client calls its own file.
        forwarded_files=frozenset({"fileName", "file_name"}),
        uris=frozenset({"fileuri"}),
        name_in_uri=name_in_uri,
    ),
)
