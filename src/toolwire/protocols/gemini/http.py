"""From bytes to chunks: server-sent events, or one streamed array, told apart by the first byte; and from the one to
the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from toolwire.core.codec import EndpointMatch, FramingConverter, Http, ModelInfo, TokenCountEndpoint
from toolwire.core.json_values import Json, Malformed, Object, decode, encode
from toolwire.core.sse import Frame, FrameTooLong, JsonArraySplitter, SseSplitter

_BLANK_BYTES = b"\xef\xbb\xbf \t\r\n"
_MAX_RECENT_BYTES = 64 * 1024
"""How many of the last bytes are kept, to find an error that came without its `data:`."""
_MIN_RECENT_PIECES = 8
"""How many pieces are held before it is asked which of them are still needed."""


class ChunkSplitter:
    def __init__(self) -> None:
        self._splitter: SseSplitter | JsonArraySplitter | None = None
        self._leading_blanks = b""
        self._recent: list[bytes] = []
        self._max_recent_pieces = _MIN_RECENT_PIECES

    def feed(self, data: bytes) -> list[Frame]:
        splitter = self._splitter
        if splitter is None:
            data = self._leading_blanks + data
            start = data.lstrip(_BLANK_BYTES)
            if not start:
                self._leading_blanks = data
                return []
            splitter = self._splitter = JsonArraySplitter() if start[:1] in (b"[", b"{") else SseSplitter()
        if splitter.__class__ is SseSplitter:
            recent = self._recent
            recent.append(data)
            if len(recent) > self._max_recent_pieces:
                self._trim_recent()
        return splitter.feed(data)

    def close(self) -> list[Frame]:
        return [] if self._splitter is None or self.is_between_frames else self._splitter.close()

    @property
    def is_between_frames(self) -> bool:
        """Has all that was fed come out, and can an event follow?"""
        return self._splitter.__class__ is SseSplitter and self._splitter.is_between_frames

    def forget_recent(self) -> None:
        """A whole event came that was not fed here."""
        self._recent.clear()

    def _trim_recent(self) -> None:
        """Of what was fed, only what stands behind the last line of data, and no more than is kept."""
        recent = self._recent
        at = len(recent) - 1
        held = len(recent[at])
        while (
            at
            and held <= _MAX_RECENT_BYTES
            and not (recent[at].startswith(b"data:") and recent[at - 1].endswith(b"\n"))
        ):
            at -= 1
            held += len(recent[at])
        del recent[:at]
        self._max_recent_pieces = max(_MIN_RECENT_PIECES, 2 * len(recent))

    def find_bare_error(self) -> Json:
        """An error that a server wrote behind the last frame as plain JSON; None when there is none."""
        if not self._recent:
            return None
        self._trim_recent()
        lines = b"".join(self._recent).splitlines()
        last = max((number for number, line in enumerate(lines) if line.startswith(b"data:")), default=-1)
        rest = b"\n".join(lines[last + 1 :]).strip()
        if rest[:1] not in (b"{", b"["):
            return None
        try:
            found = decode(rest)
        except Malformed:
            return None
        error = found[0] if isinstance(found, list) and found else found
        return error if isinstance(error, dict) and "error" in error else None


class ArrayFramingConverter:
    """Server-sent events in, the same chunks as one streamed array out: what a client gets that did not ask for
    events. An error is an element like any other."""

    content_type = "application/json"

    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._has_started = False
        self._over = False

    def feed(self, data: bytes) -> bytes:
        if self._over:
            return b""
        try:
            frames = self._splitter.feed(data)
        except FrameTooLong as fault:
            frames = [Frame(None, encode({"error": {"code": 502, "message": str(fault), "status": "INTERNAL"}}))]
            self._over = True
        return self._write_elements(frames)

    def close(self) -> bytes:
        rest = b"" if self._over else self._write_elements(self._splitter.close())
        self._over = True
        return rest + (b"]" if self._has_started else b"[]")

    def _write_elements(self, frames: list[Frame]) -> bytes:
        out: list[bytes] = []
        for frame in frames:
            out.append(b",\r\n" if self._has_started else b"[")
            out.append(frame.data)
            self._has_started = True
        return b"".join(out)


COLLECTIONS = ("models/", "tunedModels/", "publishers/", "projects/")
PATH_VERSIONS = ("/v1beta/", "/v1/", "/v1alpha/", "/v1beta1/")
"""Versions of the paths; they differ in nothing that is read here."""

VERBS: dict[str, tuple[Literal["generate", "count"], bool | None]] = {
    "generateContent": ("generate", False),
    "streamGenerateContent": ("generate", True),
    "countTokens": ("count", None),
}
_PERCENT_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_PATH_SAFE = re.compile(r"[A-Za-z0-9._~/@-]*")
"""What may stand in a path as it is. A colon may not: it separates the verb."""

DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 50, 1000


def request_path(model: str, stream: bool) -> str:
    return _call_path(model, "streamGenerateContent?alt=sse" if stream else "generateContent")


def _call_path(model: str, verb: str) -> str:
    return f"/v1beta/{escape_path(resource_name(model))}:{verb}"


def resource_name(model: str) -> str:
    return model if model.startswith(COLLECTIONS) else f"models/{model}"


def escape_path(text: str) -> str:
    """A name that came from somewhere, so that it cannot reach out of its place in a path."""
    if _PATH_SAFE.fullmatch(text):
        return text
    return "".join(
        character
        if _PATH_SAFE.fullmatch(character)
        else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "replace"))
        for character in text
    )


def unescape_path(text: str) -> str:
    if "%" not in text:
        return text
    return _PERCENT_ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text.encode("utf-8", "replace")).decode(
        "utf-8", "replace"
    )


# --- what a path asks for -------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def match_endpoint(path: str, query: str) -> EndpointMatch | None:
    """A name may hold slashes, plain or escaped, and stands in a collection, which is part of it unless it is the
    usual one."""
    version = next((version for version in PATH_VERSIONS if path.startswith(version)), "")
    whole, _, word = path.rpartition(":")
    verb = VERBS.get(word)
    if not version or verb is None:
        return None
    name = unescape_path(whole[len(version) :])
    if name.startswith(("publishers/", "projects/")):
        name = "models/" + name.rpartition("/models/")[2]
    if not name.startswith(COLLECTIONS) or name in COLLECTIONS:
        return None
    does, stream = verb
    return EndpointMatch(
        does, name.removeprefix("models/"), stream, "array" if stream and not _wants_sse(query) else ""
    )


def _wants_sse(query: str) -> bool:
    return any(pair in ("alt=sse", "$alt=sse", "%24alt=sse") for pair in query.lower().split("&"))


def make_framing_converter(name: str) -> FramingConverter | None:
    return ArrayFramingConverter() if name == "array" else None


# --- models ---------------------------------------------------------------------------------------------------------


def write_model_entry(card: ModelInfo) -> Object:
    out: Object = {
        "name": resource_name(card.id),
        "version": "001",
        "displayName": card.id,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    if card.input_limit is not None:
        out["inputTokenLimit"] = card.input_limit
    if card.output_limit is not None:
        out["outputTokenLimit"] = card.output_limit
    return out


def write_model_list(cards: tuple[ModelInfo, ...], query: Mapping[str, str]) -> Object:
    """One page; its token is the number of the first model on the next."""
    start = _read_number(query.get("pageToken") or query.get("page_token") or "", 0)
    size = min(
        max(
            1,
            _read_number(query.get("pageSize") or query.get("page_size") or "", DEFAULT_PAGE_SIZE) or DEFAULT_PAGE_SIZE,
        ),
        MAX_PAGE_SIZE,
    )
    out: Object = {"models": [write_model_entry(card) for card in cards[start : start + size]]}
    if start + size < len(cards):
        out["nextPageToken"] = str(start + size)
    return out


def _read_number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else default


# --- counting -------------------------------------------------------------------------------------------------------


def _count_tokens_path(model: str) -> str:
    return _call_path(model, "countTokens")


def _read_count_request(body: Object) -> Object:
    """The whole request where it is given, else the contents alone. Its model stands in the path already."""
    whole = body.get("generateContentRequest", body.get("generate_content_request"))
    if not isinstance(whole, dict):
        return body
    return {key: value for key, value in whole.items() if key != "model"}


def _write_count_request(body: Object, model: str) -> Object:
    if body.keys() == {"contents"}:
        return body
    return {"generateContentRequest": {"model": resource_name(model), **body}}


def _read_count_response(body: Json) -> int | None:
    count = body.get("totalTokens") if isinstance(body, dict) else None
    return count if type(count) is int else None


def _write_count_response(tokens: int) -> Object:
    return {"totalTokens": tokens}


HTTP = Http(
    request_path=request_path,
    provider_tool_markers=(b"oogleSearch", b"oogle_search", b"rlContext", b"rl_context"),
    history_markers=(b"unctionCall", b"unction_call", b"unctionResponse", b"unction_response", b"hought"),
    sdk_base_url=("Google", "GOOGLE_GEMINI_BASE_URL", ""),
    model_in_body=False,
    match_endpoint=match_endpoint,
    model_list_paths=("/v1beta/models", "/v1/models", "/v1alpha/models"),
    path_prefixes=(
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
    identifying_names=frozenset({"x-goog-api-key", "x-goog-api-client", "x-goog-user-project", "key"}),
    write_credential=lambda key: ("x-goog-api-key", key),
    credential_headers=("x-goog-api-key", "authorization"),
    credential_query_key="key",
    # Not all that begin with x-goog-: the key is one of them.
    forwarded_headers=(
        "x-goog-api-client",
        "x-goog-request-params",
        "x-goog-ext-*",
        "x-gemini-*",
        "x-server-timeout",
        "user-agent",
    ),
    returned_headers=("retry-after", "x-gemini-*", "x-request-id"),
    write_model_list=write_model_list,
    write_model_entry=write_model_entry,
    token_count=TokenCountEndpoint(
        path=_count_tokens_path,
        read_body=_read_count_request,
        write_body=_write_count_request,
        read_count=_read_count_response,
        write_count=_write_count_response,
    ),
    make_framing_converter=make_framing_converter,
    repeats_stream_failure=True,
)
