"""How a call looks from outside: the model and the verb are in the path, the body has neither."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from toolwire.protocols.gemini.details.framing import ArrayFraming
from toolwire.room import Asked, Card, Count, Framing, Http
from toolwire.wire import Json, Object

COLLECTIONS = ("models/", "tunedModels/", "publishers/", "projects/")
VERSIONS = ("/v1beta/", "/v1/", "/v1alpha/", "/v1beta1/")
"""Versions of the paths; they differ in nothing that is read here."""

VERBS: dict[str, tuple[Literal["generate", "count"], bool | None]] = {
    "generateContent": ("generate", False),
    "streamGenerateContent": ("generate", True),
    "countTokens": ("count", None),
}
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_HARMLESS = re.compile(r"[A-Za-z0-9._~/@-]*")
"""What may stand in a path as it is. A colon may not: it separates the verb."""

PAGE, MOST = 50, 1000


def path(model: str, stream: bool) -> str:
    return _path(model, "streamGenerateContent?alt=sse" if stream else "generateContent")


def _path(model: str, verb: str) -> str:
    return f"/v1beta/{escaped(resource(model))}:{verb}"


def resource(model: str) -> str:
    return model if model.startswith(COLLECTIONS) else f"models/{model}"


def escaped(text: str) -> str:
    """A name that came from somewhere, so that it cannot reach out of its place in a path."""
    if _HARMLESS.fullmatch(text):
        return text
    return "".join(
        character
        if _HARMLESS.fullmatch(character)
        else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "replace"))
        for character in text
    )


def unescaped(text: str) -> str:
    if "%" not in text:
        return text
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text.encode("utf-8", "replace")).decode(
        "utf-8", "replace"
    )


# --- what a path asks for -------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def asked(path: str, query: str) -> Asked | None:
    """A name may hold slashes, plain or escaped, and stands in a collection, which is part of it unless it is the
    usual one."""
    version = next((version for version in VERSIONS if path.startswith(version)), "")
    whole, _, word = path.rpartition(":")
    verb = VERBS.get(word)
    if not version or verb is None:
        return None
    name = unescaped(whole[len(version) :])
    if name.startswith(("publishers/", "projects/")):
        name = "models/" + name.rpartition("/models/")[2]
    if not name.startswith(COLLECTIONS) or name in COLLECTIONS:
        return None
    does, stream = verb
    return Asked(does, name.removeprefix("models/"), stream, "array" if stream and not _events(query) else "")


def _events(query: str) -> bool:
    return any(pair in ("alt=sse", "$alt=sse", "%24alt=sse") for pair in query.lower().split("&"))


def framing(name: str) -> Framing | None:
    return ArrayFraming() if name == "array" else None


# --- models ---------------------------------------------------------------------------------------------------------


def write_model(card: Card) -> Object:
    out: Object = {
        "name": resource(card.id),
        "version": "001",
        "displayName": card.id,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    if card.input_limit is not None:
        out["inputTokenLimit"] = card.input_limit
    if card.output_limit is not None:
        out["outputTokenLimit"] = card.output_limit
    return out


def write_models(cards: tuple[Card, ...], query: Mapping[str, str]) -> Object:
    """One page; its token is the number of the first model on the next."""
    start = _number(query.get("pageToken") or query.get("page_token") or "", 0)
    size = min(max(1, _number(query.get("pageSize") or query.get("page_size") or "", PAGE) or PAGE), MOST)
    out: Object = {"models": [write_model(card) for card in cards[start : start + size]]}
    if start + size < len(cards):
        out["nextPageToken"] = str(start + size)
    return out


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else otherwise


# --- counting -------------------------------------------------------------------------------------------------------


def _count_path(model: str) -> str:
    return _path(model, "countTokens")


def _asked_about(body: Object) -> Object:
    """The whole request where it is given, else the contents alone. Its model stands in the path already."""
    whole = body.get("generateContentRequest", body.get("generate_content_request"))
    if not isinstance(whole, dict):
        return body
    return {key: value for key, value in whole.items() if key != "model"}


def _counted(body: Object, model: str) -> Object:
    if body.keys() == {"contents"}:
        return body
    return {"generateContentRequest": {"model": resource(model), **body}}


def _read_count(body: Json) -> int | None:
    count = body.get("totalTokens") if isinstance(body, dict) else None
    return count if type(count) is int else None


def _write_count(tokens: int) -> Object:
    return {"totalTokens": tokens}


HTTP = Http(
    path=path,
    hosted=(b"oogleSearch", b"oogle_search", b"rlContext", b"rl_context"),
    history=(b"unctionCall", b"unction_call", b"unctionResponse", b"unction_response", b"hought"),
    sdk=("Google", "GOOGLE_GEMINI_BASE_URL", ""),
    model_in_body=False,
    stream_in_body=False,
    asked=asked,
    lists=("/v1beta/models", "/v1/models", "/v1alpha/models"),
    families=(
        "/v1beta/",
        "/v1alpha/",
        "/v1beta1/",
        "/upload/",
        "/download/",
        "/v1/tunedModels",
        "/v1/publishers/",
        "/v1/projects/",
        "/v1/cachedContents",
        "/v1/fileSearchStores",
        "/v1/interactions",
        "/v1/operations",
    ),
    signs=frozenset({"x-goog-api-key", "x-goog-api-client", "x-goog-user-project", "key"}),
    credential=lambda key: ("x-goog-api-key", key),
    credential_headers=("x-goog-api-key", "authorization"),
    credential_query="key",
    # Not all that begin with x-goog-: the key is one of them.
    forwarded=(
        "x-goog-api-client",
        "x-goog-request-params",
        "x-goog-ext-*",
        "x-gemini-*",
        "x-server-timeout",
        "user-agent",
    ),
    answered=("retry-after", "x-gemini-*", "x-request-id"),
    write_models=write_models,
    write_model=write_model,
    count=Count(path=_count_path, read_body=_asked_about, write_body=_counted, read=_read_count, write=_write_count),
    framing=framing,
    failure_twice=True,
)
