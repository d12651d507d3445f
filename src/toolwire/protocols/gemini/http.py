"""Endpoints, credentials, token counts, the list of models, and the framings of a stream (SSE, one JSON array).

Source: the Python SDK `google-genai` 3.1.0, the protos of `google-ai-generativelanguage` 0.12.1 and Vertex AI's
discovery document of 2026-11-06, looked up in November 2026."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace

from toolwire.core.codec import (
    EndpointMatch,
    Http,
    ModelInfo,
    ModelPage,
    TokenCountEndpoint,
    UsageNames,
    make_facts,
    parse_passthrough_endpoints,
)
from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Malformed, Object, decode, encode
from toolwire.core.model_lists import percent_encode
from toolwire.core.sse import Frame, FrameTooLong, JsonArraySplitter, SseSplitter
from toolwire.protocols.gemini.errors import write_error_body
from toolwire.protocols.gemini.models import find_model_facts

_BLANK_BYTES = b"\xef\xbb\xbf \t\r\n"
_MAX_RECENT_BYTES = 64 * 1024
"""How many of the last bytes are kept, to find an error that was sent without `data:`."""
_MIN_RECENT_PIECES = 8
"""How many pieces are kept before old ones are removed."""


class ChunkSplitter:
    """Splits a stream into chunks. The first byte says which framing it has."""

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
        """Is there no incomplete event?"""
        return self._splitter.__class__ is SseSplitter and self._splitter.is_between_frames

    def _trim_recent(self) -> None:
        """Keep only the bytes after the last `data:` line, up to the limit."""
        recent = self._recent
        at = len(recent) - 1
        size = len(recent[at])
        while at and size <= _MAX_RECENT_BYTES:
            if recent[at].startswith(b"data:") and recent[at - 1].endswith(b"\n"):
                break
            at -= 1
            size += len(recent[at])
        del recent[:at]
        self._max_recent_pieces = max(_MIN_RECENT_PIECES, 2 * len(recent))

    def find_bare_error(self) -> Json:
        """An error that the server sent as plain JSON after the last frame, or None."""
        if not self._recent:
            return None
        self._trim_recent()
        lines = b"".join(self._recent).splitlines()
        last = max((number for number, line in enumerate(lines) if line.startswith(b"data:")), default=-1)
        rest = b"\n".join(lines[last + 1 :]).strip()
        try:
            error = decode(rest)
        except Malformed:
            return None
        if isinstance(error, list) and error:
            error = error[0]
        return error if isinstance(error, dict) and "error" in error else None


class ArrayFramingConverter:
    """Converts SSE to one JSON array, for clients that did not ask for `alt=sse`. An error is an element of it."""

    content_type = "application/json"

    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._separator = b"["
        self._is_over = False

    def feed(self, data: bytes) -> bytes:
        if self._is_over:
            return b""
        try:
            frames = self._splitter.feed(data)
        except FrameTooLong as error:
            frames = [Frame(None, encode(write_error_body(Failure("upstream", str(error), 502))))]
            self._is_over = True
        return self._write_elements(frames)

    def close(self) -> bytes:
        rest = b"" if self._is_over else self._write_elements(self._splitter.close())
        self._is_over = True
        return rest + (b"[]" if self._separator == b"[" else b"]")

    def _write_elements(self, frames: list[Frame]) -> bytes:
        out: list[bytes] = []
        for frame in frames:
            out += (self._separator, frame.data)
            self._separator = b",\r\n"
        return b"".join(out)


COLLECTIONS = ("models/", "tunedModels/", "publishers/", "projects/")
PATH_VERSIONS = ("/v1beta/", "/v1/", "/v1alpha/", "/v1beta1/")
"""The versions of the API, which are all handled alike."""

VERBS: dict[str, tuple[Literal["generate", "count_tokens"], bool | None]] = {
    "generateContent": ("generate", False),
    "streamGenerateContent": ("generate", True),
    "countTokens": ("count_tokens", None),
}
_PATH_UNSAFE = re.compile(r"[^A-Za-z0-9._~/@-]+")
"""Characters that need an escape in a path. A colon does, because it separates the verb."""

PASSTHROUGH_ENDPOINTS = parse_passthrough_endpoints("""
    POST              /{version}/models/{model}:embedContent            path counts-input
    POST              /{version}/models/{model}:batchEmbedContents      path counts-input
    POST              /{version}/models/{model}:predict                 path
    POST              /{version}/models/{model}:computeTokens           path free
    POST              /{version}/models/{model}:predictLongRunning      path create
    POST              /{version}/models/{model}:batchGenerateContent    path create runs-models reads-files
    POST              /{version}/models/{model}:asyncBatchEmbedContent  path create runs-models reads-files
    POST              /{version}/publishers/{id}/models/{model}:embedContent  path counts-input
    POST              /{version}/publishers/{id}/models/{model}:predict  path
    POST              /{version}/publishers/{id}/models/{model}:computeTokens  path free
    POST  /{version}/projects/{id}/locations/{id}/publishers/{id}/models/{model}:embedContent  path counts-input
    POST              /{version}/projects/{id}/locations/{id}/publishers/{id}/models/{model}:predict  path
    POST              /{version}/projects/{id}/locations/{id}/publishers/{id}/models/{model}:computeTokens  path free
    GET               /{version}/models/{model}/operations/{id}         use
    GET               /{version}/operations/{id}                        use
    POST              /upload/{version}/files                           create free
    PUT,POST          /upload/{version}/files/{id}                      use free
    GET               /{version}/files                                  list
    GET,DELETE        /{version}/files/{id}                             use
    GET               /{version}/files/{id}:download                    use
    GET               /download/{version}/files/{id}:download           use
    POST              /{version}/cachedContents                         create runs-models
    GET               /{version}/cachedContents                         list
    GET,PATCH,DELETE  /{version}/cachedContents/{id}                    use storage
    GET               /{version}/batches                                list
    GET,DELETE        /{version}/batches/{id}                           use
    POST              /{version}/batches/{id}:cancel                    use free
    POST              /{version}/fileSearchStores                       create free
    GET               /{version}/fileSearchStores                       list
    GET,DELETE        /{version}/fileSearchStores/{id}                  use
    POST              /{version}/fileSearchStores/{id}:importFile       use
    GET               /{version}/fileSearchStores/{id}/documents        use
    GET,DELETE        /{version}/fileSearchStores/{id}/documents/{id}   use
    GET               /{version}/fileSearchStores/{id}/operations/{id}  use
    GET               /{version}/fileSearchStores/{id}/upload/operations/{id}  use
    POST              /upload/{version}/fileSearchStores/{id}:uploadToFileSearchStore  use
    GET               /{version}/tunedModels                            list
    GET,DELETE        /{version}/tunedModels/{id}                       use
    POST              /{version}/interactions                           body create runs-models
    GET,DELETE        /{version}/interactions/{id}                      use
    POST              /{version}/interactions/{id}/cancel               use free
""")
"""Not here: `auth_tokens`, which gives out keys of the account, and permissions of tuned models."""

DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 50, 1000


def request_path(model: str, stream: bool) -> str:
    return f"{model_path(model)}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"


def resource_name(model: str) -> str:
    return model if model.startswith(COLLECTIONS) else f"models/{model}"


def model_path(model: str) -> str:
    """The path of a model, with its name escaped so that it cannot change the rest of the path."""
    return "/v1beta/" + percent_encode(resource_name(model), _PATH_UNSAFE)


# --- endpoints ------------------------------------------------------------------------------------------------------


def match_endpoint(path: str, query: str) -> EndpointMatch | None:
    """The endpoint of a path such as `/v1beta/models/NAME:generateContent`. The name may have slashes, and it includes
    the collection unless that is `models/`. The path has no escapes."""
    found = _match_path(path)
    if found is None or not found.stream:
        return found
    wants_sse = not {"alt=sse", "$alt=sse", "%24alt=sse"}.isdisjoint(query.lower().split("&"))
    return found if wants_sse else replace(found, framing="array")


@lru_cache(maxsize=512)
def _match_path(path: str) -> EndpointMatch | None:
    version = next((version for version in PATH_VERSIONS if path.startswith(version)), "")
    resource, _, verb = path.rpartition(":")
    if not version or verb not in VERBS:
        return None
    name = resource[len(version) :]
    if name.startswith(("publishers/", "projects/")):
        name = "models/" + name.rpartition("/models/")[2]
    if not name.startswith(COLLECTIONS) or name in COLLECTIONS:
        return None
    operation, stream = VERBS[verb]
    return EndpointMatch(operation, name.removeprefix("models/"), stream)


# --- models ---------------------------------------------------------------------------------------------------------


def write_model_entry(card: ModelInfo) -> Object:
    out: Object = {
        "name": resource_name(card.id),
        "version": "001",
        "displayName": card.display_name or card.id,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    facts = card.facts
    thinks = None if facts.reasoning_efforts is None else any(word != "none" for word in facts.reasoning_efforts)
    known = {
        "inputTokenLimit": facts.context_window,
        "outputTokenLimit": facts.max_output_tokens,
        "thinking": thinks,
    }
    return out | {key: value for key, value in known.items() if value is not None}


def write_model_list(cards: tuple[ModelInfo, ...], query: Mapping[str, str]) -> Object:
    """One page. The page token is the number of the first model on the next page."""
    start = _read_number(query.get("pageToken") or query.get("page_token") or "")
    size = min(_read_number(query.get("pageSize") or query.get("page_size") or "") or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    out: Object = {"models": [write_model_entry(card) for card in cards[start : start + size]]}
    if start + size < len(cards):
        out["nextPageToken"] = str(start + size)
    return out


MODELS_PATH = f"/v1beta/models?pageSize={MAX_PAGE_SIZE}"


def read_model_list(body: Json) -> ModelPage | None:
    """One page of Google's list, without the models that cannot generate content, such as those for embeddings."""
    entries = body.get("models") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(entries, list):
        return ModelPage() if body == {} else None
    models = []
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name.removeprefix("models/"):
            continue
        methods, shown = entry.get("supportedGenerationMethods"), entry.get("displayName")
        if isinstance(methods, list) and methods and "generateContent" not in methods:
            continue
        facts = make_facts(entry.get("inputTokenLimit"), entry.get("outputTokenLimit"))
        if entry.get("thinking") is False:
            facts = replace(facts, reasoning_efforts=())
        title = shown if isinstance(shown, str) else ""
        models.append(ModelInfo(name.removeprefix("models/"), facts=facts, display_name=title))
    token = body.get("nextPageToken")
    next_path = f"{MODELS_PATH}&pageToken={percent_encode(token)}" if isinstance(token, str) and token else ""
    return ModelPage(tuple(models), next_path)


def _read_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


# --- counting -------------------------------------------------------------------------------------------------------


def _read_count_request(body: Object) -> Object:
    """The whole request, if it is given, otherwise only contents. The model is in the path."""
    request = body.get("generateContentRequest", body.get("generate_content_request"))
    if not isinstance(request, dict):
        return body
    return {key: value for key, value in request.items() if key != "model"}


def _write_count_request(body: Object, model: str) -> Object:
    if body.keys() == {"contents"}:
        return body
    return {"generateContentRequest": {"model": resource_name(model), **body}}


HTTP = Http(
    request_path=request_path,
    provider_tool_markers=(b"oogleSearch", b"oogle_search", b"rlContext", b"rl_context"),
    history_markers=(b"unctionCall", b"unction_call", b"unctionResponse", b"unction_response", b"hought"),
    sdk_base_url=("Google", "GOOGLE_GEMINI_BASE_URL", ""),
    model_in_body=False,
    model_collection="models/",
    match_endpoint=match_endpoint,
    model_list_paths=("/v1beta/models", "/v1/models", "/v1alpha/models"),
    path_prefixes=tuple(
        """/v1beta/ /v1alpha/ /v1beta1/ /upload/ /download/ /v1/tunedModels /v1/publishers/ /v1/projects/
        /v1/cachedContents /v1/fileSearchStores /v1/interactions /v1/operations""".split()
    ),
    passthrough_endpoints=PASSTHROUGH_ENDPOINTS,
    output_limit_keys=("maxOutputTokens", "max_output_tokens"),
    answer_count_keys=("candidateCount", "candidate_count"),
    settings_keys=("generationConfig", "generation_config"),
    forwarded_usage=UsageNames(
        holder="usageMetadata",
        counts={
            "input": ("promptTokenCount",),
            "output": ("candidatesTokenCount",),
            "total": ("totalTokenCount",),
            "cache_read": ("cachedContentTokenCount",),
        },
        details=(),
    ),
    media_markers=(b"nlineData", b"nline_data", b"ileData", b"ile_data"),
    object_markers=(
        *(b"ileUri", b"ile_uri", b"achedContent", b"ached_content", b"ileSearchStore", b"ile_search_store"),
        *(b"atastore", b"ataStore", b"ata_store", b"agCorpus", b"ag_corpus"),
    ),
    objects_have_names=True,
    identifying_names=frozenset({"x-goog-api-key", "x-goog-api-client", "x-goog-user-project", "key"}),
    write_credential=lambda key: ("x-goog-api-key", key),
    credential_headers=("x-goog-api-key", "authorization"),
    credential_query_key="key",
    # Not `x-goog-*`: the API key is such a header.
    forwarded_headers=tuple(
        """x-goog-api-client x-goog-request-params x-goog-user-project x-goog-ext-* x-goog-upload-* x-gemini-*
        x-server-timeout user-agent""".split()
    ),
    # Not `x-goog-upload-*`: the control URL is another right to the upload.
    returned_headers=tuple(
        """retry-after x-gemini-* x-request-id x-goog-upload-url x-goog-upload-status x-goog-upload-chunk-granularity
        x-goog-upload-size-received""".split()
    ),
    upload_url_header="x-goog-upload-url",
    write_model_list=write_model_list,
    write_model_entry=write_model_entry,
    provider_models_path=MODELS_PATH,
    read_model_list=read_model_list,
    find_model_facts=find_model_facts,
    token_count=TokenCountEndpoint(
        path=lambda model: f"{model_path(model)}:countTokens",
        read_body=_read_count_request,
        write_body=_write_count_request,
        count_key="totalTokens",
    ),
    make_framing_converter=lambda name: ArrayFramingConverter() if name == "array" else None,
    repeats_stream_failure=True,
)
