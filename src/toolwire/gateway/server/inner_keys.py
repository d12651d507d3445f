"""Keys inside of a body that some servers read differently: `Name` beside `name`, `function_call` beside
`functionCall`. Where rules or limits are applied to a body that goes on in the same protocol, such a key is refused:
the provider could take the one that was not judged.

The outermost keys are checked in every body (`check_body_keys` in `request_body.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.core.json_values import Json, Malformed, Object, Path
from toolwire.gateway.server.request_body import letters_of

_SPELLINGS: tuple[tuple[str, ...], ...] = tuple(
    tuple(row.split())
    for row in """
    type
    name
    function
    functions
    custom
    tools
    tool_calls
    tool_choice
    allowed_tools
    mode
    server_url
    server_label
    connector_id
    functionDeclarations function_declarations
    functionCallingConfig function_calling_config
    allowedFunctionNames allowed_function_names
    functionCall function_call
    functionResponse function_response
    googleSearch google_search
    googleSearchRetrieval google_search_retrieval
    codeExecution code_execution
    urlContext url_context
    computerUse computer_use
    fileSearch file_search
    mcpServers mcp_servers
    file_id
    file_ids
    vector_store_ids
    container
    container_id
    skill_id
    fileData file_data
    fileUri file_uri
    max_tokens
    max_completion_tokens
    max_output_tokens maxOutputTokens
    """.split("\n")
    if row.strip()
)
"""Keys by which rules and limits judge, with all spellings that their protocols know."""
_KNOWN: Mapping[str, tuple[str, ...]] = {letters_of(row[0]): row for row in _SPELLINGS}
_OTHER_SPELLINGS: Mapping[str, str] = {other: row[0] for row in _SPELLINGS for other in row[1:]}
_USUAL_KEYS = frozenset(name for row in _SPELLINGS for name in row) | frozenset(
    """role content text id description parameters input_schema arguments args input output parts tool_use_id
    tool_call_id call_id cache_control status strict summary annotations signature thinking source media_type data
    image_url url detail index encrypted_content is_error title""".split()
)
"""Keys that need no second look."""
_OPAQUE_KEYS = frozenset(
    """arguments args parameters parametersJsonSchema parameters_json_schema input_schema inputSchema schema
    responseSchema response_schema responseJsonSchema response_json_schema properties metadata client_metadata parsed
    parsed_arguments""".split()
)
"""What users' own tools take and give, schemas and notes: their keys are free."""
_OPAQUE_OBJECTS = frozenset({"input", "response", "output"})
"""The same where the value is an object: the input of a call (Anthropic), a function's response (Gemini)."""


def check_inner_keys(body: Json) -> None:
    """Raises Malformed if the body has a key that could be read as a judged one."""
    pending: list[tuple[Path, Json]] = [(None, body)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, list):
            pending += [((path, at), value) for at, value in enumerate(node) if isinstance(value, (dict, list))]
        elif isinstance(node, dict):
            odd = _find_odd_key_in(node)
            if odd is not None:
                what = "some servers take this key for another one, which rules or limits of this gateway judge"
                raise Malformed((path, odd), f"{what}; leave it out")
            for key, value in node.items():
                is_open = key not in _OPAQUE_OBJECTS if isinstance(value, dict) else isinstance(value, list)
                if is_open and key not in _OPAQUE_KEYS:
                    pending.append(((path, key), value))


def _find_odd_key_in(node: Object) -> str | None:
    if not _USUAL_KEYS.issuperset(node):
        for key in node:
            if key not in _USUAL_KEYS and letters_of(key) in _KNOWN:
                return key
    if not _OTHER_SPELLINGS.keys().isdisjoint(node):
        for other, first in _OTHER_SPELLINGS.items():
            if other in node and first in node:
                return other
    return None
