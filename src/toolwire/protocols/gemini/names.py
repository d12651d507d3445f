"""What this wire calls things: its keys in both spellings, and the tables between its words and ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from toolwire.ir import FinishKind, Role
from toolwire.wire import Object

NAME = "gemini"

_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake(key: str) -> str:
    return _HUMP.sub(r"_\1", key).lower()


class Shape:
    """The keys of one kind of node. The wire takes each in camelCase and in snake_case, and its clients mix them."""

    __slots__ = ("keys", "known", "spellings")

    def __init__(self, *keys: str) -> None:
        self.keys = frozenset(keys)
        self.spellings = {snake(key): key for key in keys if snake(key) != key}
        self.known = self.keys.union(self.spellings)

    def __call__(self, node: Object) -> Object:
        """The node with its known keys in camelCase; the very same node when they are so already."""
        if self.keys.issuperset(node) or self.spellings.keys().isdisjoint(node):
            return node
        spellings = self.spellings
        return {spellings.get(key, key): value for key, value in node.items()}

    def unknown(self, node: Object) -> Object:
        return {key: value for key, value in node.items() if key not in self.known}


# --- nodes ----------------------------------------------------------------------------------------------------------

CONTENT = Shape("parts", "role")
TEXT = Shape("text", "thought", "thoughtSignature")
CALL_PART = Shape("functionCall", "thoughtSignature")
CALL = Shape("id", "name", "args")
FRAGMENT = Shape("id", "name", "args", "partialArgs", "willContinue")
PARTIAL = Shape("jsonPath", "stringValue", "numberValue", "boolValue", "nullValue", "willContinue")
RESULT_PART = Shape("functionResponse")
RESULT = Shape("id", "name", "response", "parts")
INLINE_PART = Shape("inlineData", "thoughtSignature")
INLINE = Shape("mimeType", "data", "displayName")
FILE_PART = Shape("fileData", "thoughtSignature")
FILE = Shape("mimeType", "fileUri", "displayName")
CODE_PART = Shape("executableCode")
CODE = Shape("language", "code", "id")
OUTCOME_PART = Shape("codeExecutionResult")
OUTCOME = Shape("outcome", "output", "id")
HOSTED_CALL_PART = Shape("toolCall")
HOSTED_CALL = Shape("id", "toolType", "args")
HOSTED_RESULT_PART = Shape("toolResponse")
HOSTED_RESULT = Shape("id", "toolType", "response")

REQUEST = Shape(
    "contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "serviceTier", "model", "config"
)
DECLARATION = Shape("name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema")
TOOL_CONFIG = Shape("functionCallingConfig")
CALLING = Shape("mode", "allowedFunctionNames")
THINKING = Shape("includeThoughts", "thinkingBudget", "thinkingLevel")
FORMAT_KEYS = ("responseMimeType", "responseSchema", "responseJsonSchema")
FORMAT = Shape(*FORMAT_KEYS)

ANSWER = Shape("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "createTime")
FEEDBACK = Shape("blockReason", "blockReasonMessage")
CANDIDATE = Shape("content", "finishReason", "finishMessage", "index", "groundingMetadata", "urlContextMetadata")
USAGE = Shape(
    "promptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "totalTokenCount",
)
GROUNDING = Shape("webSearchQueries", "groundingChunks", "groundingSupports")
FETCHED = Shape("retrievedUrl", "urlRetrievalStatus")
CHUNK = Shape("uri", "title", "text")
SUPPORT = Shape("segment", "groundingChunkIndices")
SEGMENT = Shape("partIndex", "startIndex", "endIndex", "text")

# --- words ----------------------------------------------------------------------------------------------------------

ROLES: Mapping[str, Role] = MappingProxyType({"user": "user", "model": "assistant", "function": "user"})
"""`function` is the older word for the turn that holds results."""

PLACEHOLDER = "skip_thought_signature_validator"
"""The documented signature for calls that this wire's model did not make."""

RAW_ARGUMENTS = "_raw"
"""The key that keeps arguments which are no object."""

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
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
)
"""Settings that are only spelled otherwise."""

GENERATION = Shape(*SETTINGS.values(), "thinkingConfig", *FORMAT_KEYS)
CONFIG = Shape(*GENERATION.keys, "systemInstruction", "tools", "toolConfig", "serviceTier")
"""What the SDKs call `config`: settings, tools and instructions in one object."""
BESIDE = Shape("safetySettings", "cachedContent", "labels", "store", "continuationToken", "modelArmorConfig")
"""Keys of `config` that stand beside `generationConfig` on the wire."""

MAX_STOPS = 5

TIERS: Mapping[str, str] = MappingProxyType(
    {"flex": "flex", "priority": "priority", "standard": "standard", "default": "standard", "standard_only": "standard"}
)

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "googleSearch": "web_search",
        "urlContext": "web_fetch",
        "codeExecution": "code_execution",
        "googleMaps": "maps",
        "fileSearch": "file_search",
        "computerUse": "computer",
        "googleSearchRetrieval": "web_search",
    }
)
BUILT_IN_KEYS = MappingProxyType({tool: key for key, tool in reversed(list(BUILT_IN.items()))})
TOOLBOX = Shape("functionDeclarations", *BUILT_IN)

TOOL_TYPES: Mapping[str, str] = MappingProxyType(
    {"GOOGLE_SEARCH_WEB": "web_search", "URL_CONTEXT": "web_fetch", "GOOGLE_MAPS": "maps", "FILE_SEARCH": "file_search"}
)
TOOL_TYPE_WORDS = MappingProxyType({tool: word for word, tool in TOOL_TYPES.items()})

SOURCES: Mapping[str, str] = MappingProxyType({"web": "web_search", "maps": "maps", "retrievedContext": "file_search"})
"""Kinds of grounding chunks, and the tool that finds them."""

FINISHES: Mapping[str, FinishKind] = MappingProxyType(
    {
        "STOP": "stop",
        "MAX_TOKENS": "length",
        "SAFETY": "filter",
        "RECITATION": "filter",
        "LANGUAGE": "other",
        "OTHER": "other",
        "BLOCKLIST": "filter",
        "PROHIBITED_CONTENT": "filter",
        "SPII": "filter",
        "MALFORMED_FUNCTION_CALL": "malformed",
        "UNEXPECTED_TOOL_CALL": "malformed",
        "TOO_MANY_TOOL_CALLS": "malformed",
        "MISSING_THOUGHT_SIGNATURE": "malformed",
        "MALFORMED_RESPONSE": "malformed",
        "CONTINUATION": "pause",
        "IMAGE_SAFETY": "filter",
        "IMAGE_PROHIBITED_CONTENT": "filter",
        "IMAGE_RECITATION": "filter",
        "IMAGE_OTHER": "other",
        "NO_IMAGE": "other",
        "MODEL_ARMOR": "filter",
        "FUNCTION_CALL": "calls",
        "FINISH_REASON_UNSPECIFIED": "other",
    }
)

BROKEN = frozenset(word for word, kind in FINISHES.items() if kind == "malformed")
"""Endings that are failures: the answer cannot be used, and there may be nothing in it."""

FINISH_NUMBERS = (
    "FINISH_REASON_UNSPECIFIED",
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MALFORMED_FUNCTION_CALL",
    "MODEL_ARMOR",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "IMAGE_OTHER",
    "UNEXPECTED_TOOL_CALL",
    "NO_IMAGE",
)
"""Some servers send the enum's number (seen from the cloud platform, whose order this is)."""

FINISH_WORDS: Mapping[FinishKind, str] = MappingProxyType(
    {
        "stop": "STOP",
        "length": "MAX_TOKENS",
        "calls": "STOP",
        "filter": "SAFETY",
        "refusal": "SAFETY",
        "sequence": "STOP",
        "pause": "OTHER",
        "context": "MAX_TOKENS",
        "malformed": "MALFORMED_FUNCTION_CALL",
        "other": "OTHER",
    }
)
"""Another provider's pause is not written as CONTINUATION, which promises a token to go on with."""

EXACT_FINISHES = frozenset({"stop", "length", "calls", "filter", "malformed", "other"})
"""Kinds that are told as they are; the rest is reported as mapped."""
