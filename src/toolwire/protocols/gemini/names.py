"""The name of the protocol, the keys it knows in both spellings, and the tables that reader and writer share.

Source: the Python SDK `google-genai` 3.1.0, the protos of `google-ai-generativelanguage` 0.12.1 and Vertex AI's
discovery document of 2026-11-06, looked up in November 2026."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolwire.core.ir import FinishKind, Role
from toolwire.core.json_values import Object
from toolwire.core.provenance import OriginChecks

NAME = "gemini"

_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def to_snake_case(key: str) -> str:
    return _INNER_CAPITAL.sub(r"_\1", key).lower()


def to_camel_case(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(map(str.capitalize, others))


class KnownKeys:
    """The keys of one type of object. Google accepts each in camelCase and in snake_case, and clients mix them."""

    __slots__ = ("all_keys", "camel_by_snake", "camel_keys")

    def __init__(self, *keys: str) -> None:
        self.camel_keys = frozenset(keys)
        self.camel_by_snake = {to_snake_case(key): key for key in keys if to_snake_case(key) != key}
        self.all_keys = self.camel_keys.union(self.camel_by_snake)

    def __call__(self, node: Object) -> Object:
        """The node with its known keys in camelCase; the same object if they already are."""
        if self.camel_keys.issuperset(node) or self.camel_by_snake.keys().isdisjoint(node):
            return node
        return {self.camel_by_snake.get(key, key): value for key, value in node.items()}

    def select_unknown(self, node: Object) -> Object:
        return {key: value for key, value in node.items() if key not in self.all_keys}


# --- nodes ----------------------------------------------------------------------------------------------------------

CONTENT_KEYS = KnownKeys("parts", "role")
TEXT_KEYS = KnownKeys("text", "thought", "thoughtSignature")
CALL_KEYS = KnownKeys("id", "name", "args")
PARTIAL_ARGUMENT_KEYS = KnownKeys("jsonPath", "stringValue", "numberValue", "boolValue", "nullValue", "willContinue")
INNER_KEYS = {
    "functionCall": KnownKeys("id", "name", "args", "partialArgs", "willContinue"),
    "functionResponse": KnownKeys("id", "name", "response", "parts"),
    "inlineData": KnownKeys("mimeType", "data", "displayName"),
    "fileData": KnownKeys("mimeType", "fileUri", "displayName"),
    "executableCode": KnownKeys("language", "code", "id"),
    "codeExecutionResult": KnownKeys("outcome", "output", "id"),
    "toolCall": KnownKeys("id", "toolType", "args"),
    "toolResponse": KnownKeys("id", "toolType", "response"),
}
"""The keys of the object in a part, by the type of the part, which is the key of that object."""
_SIGNED_PARTS = ("functionCall", "inlineData", "fileData")
PART_KEYS = {key: KnownKeys(key, "thoughtSignature") if key in _SIGNED_PARTS else KnownKeys(key) for key in INNER_KEYS}

REQUEST_KEYS = KnownKeys(
    "contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "serviceTier", "model"
)
DECLARATION_KEYS = KnownKeys(*"name description parameters parametersJsonSchema response responseJsonSchema".split())
TOOL_CONFIG_KEYS = KnownKeys("functionCallingConfig")
CALLING_CONFIG_KEYS = KnownKeys("mode", "allowedFunctionNames")
THINKING_KEYS = KnownKeys("includeThoughts", "thinkingBudget", "thinkingLevel")
FORMAT_KEYS = ("responseMimeType", "responseSchema", "responseJsonSchema")
FORMAT_KEY_SET = KnownKeys(*FORMAT_KEYS)

RESPONSE_KEYS = KnownKeys("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "createTime")
PROMPT_FEEDBACK_KEYS = KnownKeys("blockReason", "blockReasonMessage")
CANDIDATE_KEYS = KnownKeys(
    *"content finishReason finishMessage index groundingMetadata urlContextMetadata logprobsResult".split()
)
LOGPROBS_KEYS = KnownKeys("chosenCandidates", "topCandidates")
TOP_LOGPROBS_KEYS = KnownKeys("candidates")
TOKEN_KEYS = KnownKeys("token", "tokenId", "logProbability")
COUNT_KEYS = tuple(
    """promptTokenCount toolUsePromptTokenCount candidatesTokenCount thoughtsTokenCount cachedContentTokenCount
    totalTokenCount""".split()
)
USAGE_KEYS = KnownKeys(*COUNT_KEYS)
GROUNDING_KEYS = KnownKeys("webSearchQueries", "groundingChunks", "groundingSupports")
URL_METADATA_KEYS = KnownKeys("retrievedUrl", "urlRetrievalStatus")
GROUNDING_CHUNK_KEYS = KnownKeys("uri", "title", "text")
GROUNDING_SUPPORT_KEYS = KnownKeys("segment", "groundingChunkIndices")
SEGMENT_KEYS = KnownKeys("partIndex", "startIndex", "endIndex", "text")

# --- values ---------------------------------------------------------------------------------------------------------

OLD_RESULT_ROLE = "function"
"""The older role of a turn with results, which the API takes no more."""
ROLES: Mapping[str, Role] = {"user": "user", "model": "assistant", OLD_RESULT_ROLE: "user"}

GROUNDING_ID_PREFIX = "grounding_"
"""The prefix of the ids that are made for searches and fetched pages, because Google gives them none."""
CODE_ID_PREFIX = "gcode_"
"""The same for executed code without an id."""
RETURNED_ID = re.compile(rf"(?:[a-z]+_)?(?:{CODE_ID_PREFIX}\w+|[a-z0-9]{{8}})")
"""The id of code that Gemini has executed, behind the prefix of another protocol: made, or Google's own, which its
searches have, too."""
PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""The `thoughtSignature` that Google documents for calls that Gemini did not make."""

RAW_ARGUMENTS_KEY = "_raw"
"""The key under which arguments are written that are not a JSON object, because `args` must be one."""

SETTING_KEYS: Mapping[str, str] = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "seed": "seed",
    "count": "candidateCount",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
}
"""Settings that only have another name."""

_GENERATION_KEYS = (*SETTING_KEYS.values(), "thinkingConfig", *FORMAT_KEYS)
GENERATION_CONFIG_KEYS = KnownKeys(*_GENERATION_KEYS)
OUTER_CONFIG_KEYS = KnownKeys(
    *"""systemInstruction tools toolConfig serviceTier safetySettings cachedContent labels store continuationToken
    modelArmorConfig""".split()
)
"""Of the `config` of Google's SDKs, which holds everything: what the body has beside `generationConfig`."""

MAX_STOP_SEQUENCES = 5

SERVICE_TIERS = {"default": "standard", "standard_only": "standard"} | {
    tier: tier for tier in ("flex", "priority", "standard")
}

PROVIDER_TOOL_BY_KEY: Mapping[str, str] = {
    "googleSearch": "web_search",
    "urlContext": "web_fetch",
    "codeExecution": "code_execution",
    "googleMaps": "maps",
    "fileSearch": "file_search",
    "computerUse": "computer",
    "googleSearchRetrieval": "web_search",
}
KEY_BY_PROVIDER_TOOL = {tool: key for key, tool in reversed(list(PROVIDER_TOOL_BY_KEY.items()))}
TOOL_KEYS = KnownKeys("functionDeclarations", *PROVIDER_TOOL_BY_KEY)

PROVIDER_TOOL_BY_TYPE: Mapping[str, str] = {
    "GOOGLE_SEARCH_WEB": "web_search",
    "URL_CONTEXT": "web_fetch",
    "GOOGLE_MAPS": "maps",
    "FILE_SEARCH": "file_search",
}
TYPE_BY_PROVIDER_TOOL = {tool: word for word, tool in PROVIDER_TOOL_BY_TYPE.items()}

TOOL_BY_CHUNK_KIND: Mapping[str, str] = {"web": "web_search", "maps": "maps", "retrievedContext": "file_search"}
"""Types of grounding chunks, and the tool that finds them."""

_FINISH_REASONS: Mapping[FinishKind, list[str]] = {
    "stop": ["STOP"],
    "length": ["MAX_TOKENS"],
    "filter": """SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT
        IMAGE_RECITATION""".split(),
    "malformed": """MALFORMED_FUNCTION_CALL MALFORMED_RESPONSE UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS
        MISSING_THOUGHT_SIGNATURE""".split(),
    "other": ["OTHER", "LANGUAGE", "IMAGE_OTHER", "NO_IMAGE", "FINISH_REASON_UNSPECIFIED"],
    "pause": ["CONTINUATION"],
    "calls": ["FUNCTION_CALL"],
}
"""The finish reasons of each kind."""
KIND_BY_FINISH_REASON = {reason: kind for kind, reasons in _FINISH_REASONS.items() for reason in reasons}

FAILED_FINISH_REASONS = frozenset(_FINISH_REASONS["malformed"])
"""Finish reasons of failures: the answer cannot be used, and may be empty."""

FINISH_REASON_NUMBERS = tuple(
    """FINISH_REASON_UNSPECIFIED STOP MAX_TOKENS SAFETY RECITATION OTHER BLOCKLIST PROHIBITED_CONTENT SPII
    MALFORMED_FUNCTION_CALL MODEL_ARMOR IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION IMAGE_OTHER
    UNEXPECTED_TOOL_CALL NO_IMAGE""".split()
)
"""Finish reasons by their number, in the order of Vertex AI, which sometimes sends numbers."""

COARSER_FINISH_KINDS: Mapping[FinishKind, FinishKind] = {
    "refusal": "filter",
    "sequence": "stop",
    "context": "length",
    # Not CONTINUATION: that promises a token with which Gemini continues.
    "pause": "other",
}
"""Kinds that Gemini has no finish reason for, and the kind they are written as."""

FINISH_REASON_BY_KIND: Mapping[FinishKind, str] = {
    **{kind: reasons[0] for kind, reasons in _FINISH_REASONS.items()},
    **{kind: _FINISH_REASONS[written][0] for kind, written in COARSER_FINISH_KINDS.items()},
    "calls": "STOP",
}
"""The finish reason that is written for each kind."""

WRITTEN_FINISH_REASONS = KIND_BY_FINISH_REASON.keys() - {"FUNCTION_CALL"}
"""Finish reasons that are written back if they were read. `FUNCTION_CALL` is of compatible servers only."""


# --- origins --------------------------------------------------------------------------------------------------------

_ORIGINS = OriginChecks(NAME)
intact_wire, is_own, is_foreign = _ORIGINS.intact_wire, _ORIGINS.is_own, _ORIGINS.is_foreign
is_own_seal = _ORIGINS.is_own_seal
