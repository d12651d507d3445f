"""Endpoints, credentials and token counts. The model's id is one segment of the path, and the path says whether the
answer is a stream (boto3 1.44.3 and `@aws-sdk/client-bedrock-runtime` 3.1162.0, captured in November 2026)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from toolwire.core.codec import EndpointMatch, Http, ModelInfo, ModelPage, TokenCountEndpoint, UsageNames
from toolwire.core.event_stream import write_event
from toolwire.core.framing import EVENT_STREAM_FRAMING
from toolwire.core.json_values import Json, Malformed, Object, expect_object
from toolwire.core.model_lists import percent_encode
from toolwire.protocols.bedrock_converse.models import find_model_facts
from toolwire.protocols.bedrock_converse.stream_reader import HEARTBEAT_EVENT

PREFIX = "/model/"
VERBS: Mapping[str, tuple[Literal["generate", "count_tokens"], bool | None]] = {
    "converse": ("generate", False),
    "converse-stream": ("generate", True),
    "count-tokens": ("count_tokens", None),
}
MODELS_PATH = "/foundation-models"


def write_path(model: str, verb: str) -> str:
    """The name is escaped as boto3 does: also the colons and slashes of an ARN."""
    return f"{PREFIX}{percent_encode(model)}/{verb}"


def request_path(model: str, stream: bool) -> str:
    return write_path(model, "converse-stream" if stream else "converse")


@lru_cache(maxsize=512)
def match_endpoint(path: str, query: str) -> EndpointMatch | None:
    """The endpoint of a path such as `/model/NAME/converse`. The name may have slashes; the path has no escapes."""
    if not path.startswith(PREFIX):
        return None
    name, _, verb = path[len(PREFIX) :].rpartition("/")
    if verb not in VERBS or not name:
        return None
    operation, stream = VERBS[verb]
    return EndpointMatch(operation, name, stream)


# --- models: the answer of the control plane, `ListFoundationModels` --------------------------------------------------


def write_model_entry(card: ModelInfo) -> Object:
    return {"modelDetails": _write_summary(card)}


def _write_summary(card: ModelInfo) -> Object:
    kinds = card.facts.input_modalities or ("text",)
    return {
        "modelArn": f"arn:aws:bedrock:::foundation-model/{card.id}",
        "modelId": card.id,
        "modelName": card.display_name or card.id,
        "providerName": card.owner or "toolwire",
        "inputModalities": [kind.upper() for kind in kinds if kind in ("text", "image")],
        "outputModalities": ["TEXT"],
        "responseStreamingSupported": True,
        "inferenceTypesSupported": ["ON_DEMAND"],
        "modelLifecycle": {"status": "ACTIVE"},
    }


def write_model_list(cards: tuple[ModelInfo, ...], query: Mapping[str, str]) -> Object:
    return {"modelSummaries": [*map(_write_summary, cards)]}


def read_model_list(body: Json) -> ModelPage | None:
    entries = body.get("modelSummaries") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        return None
    return ModelPage(
        tuple(
            [
                ModelInfo(entry["modelId"])
                for entry in entries
                if isinstance(entry, dict) and isinstance(entry.get("modelId"), str) and entry["modelId"]
            ]
        )
    )


# --- counting ---------------------------------------------------------------------------------------------------------

_COUNTED = ("messages", "system", "toolConfig", "additionalModelRequestFields")


def _read_count_request(body: Object) -> Object:
    given = expect_object(body.get("input"), (None, "input"))
    if "converse" not in given:
        raise Malformed((None, "input"), "`converse` is missing: only requests of Converse can be counted")
    return expect_object(given["converse"], ((None, "input"), "converse"))


def _write_count_request(body: Object, model: str) -> Object:
    return {"input": {"converse": {key: body[key] for key in _COUNTED if key in body}}}


HTTP = Http(
    request_path=request_path,
    provider_tool_markers=(b'"systemTool"',),
    history_markers=(b'"assistant"', b'"toolResult"'),
    model_in_body=False,
    framing=EVENT_STREAM_FRAMING,
    match_endpoint=match_endpoint,
    model_list_paths=(MODELS_PATH,),
    path_prefixes=(PREFIX, MODELS_PATH),
    output_limit_keys=("maxTokens",),
    lenient_output_limit_keys=("max_tokens", "max_completion_tokens", "max_new_tokens", "max_gen_len"),  # of the model
    settings_keys=("inferenceConfig", "additionalModelRequestFields"),
    forwarded_usage=UsageNames(
        counts={"input": ("inputTokens",), "output": ("outputTokens",), "total": ("totalTokens",)}, details=()
    ),
    media_markers=(b'"image"', b'"document"', b'"video"', b'"audio"'),
    object_markers=(b"s3Location", b"guardrailIdentifier", b'"promptVariables"'),
    identifying_names=frozenset({"amz-sdk-invocation-id", "amz-sdk-request", "x-amz-date"}),
    # Not `x-amz-*`: the signature and the token of a session are such headers.
    forwarded_headers=("user-agent",),
    returned_headers=("retry-after", "x-amzn-errortype", "x-amzn-bedrock-*"),
    request_id_header="x-amzn-requestid",
    heartbeat=write_event(HEARTBEAT_EVENT, b"{}"),
    write_model_list=write_model_list,
    write_model_entry=write_model_entry,
    read_model_list=read_model_list,
    find_model_facts=find_model_facts,
    token_count=TokenCountEndpoint(
        path=lambda model: write_path(model, "count-tokens"),
        read_body=_read_count_request,
        write_body=_write_count_request,
        count_key="inputTokens",
    ),
)
