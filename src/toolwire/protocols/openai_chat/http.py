"""Chat Completions over HTTP: paths, headers and lists of models.

Source: the types of the Python SDK `openai` 3.49.0 and OpenAI's OpenAPI document of 2026-08-21, looked up in November
2026; what compatible servers do differently is from recorded traffic and the conformance cases."""

from __future__ import annotations

from collections.abc import Iterator

from toolwire.core.codec import EndpointMatch, Http, parse_passthrough_endpoints
from toolwire.core.json_values import Object
from toolwire.core.model_lists import (
    OPENAI_MODELS_PATH,
    find_openai_facts,
    read_openai_list,
    write_openai_entry,
    write_openai_list,
)
from toolwire.core.rate_limits import RateLimitHeaders
from toolwire.protocols.openai_chat.names import MAX_TOKENS_KEYS
from toolwire.protocols.openai_chat.stream_usage import ask_for_usage, drop_usage_chunks

PATH = "/v1/chat/completions"

_PATH_PREFIXES = tuple(
    f"/v1/{name}"
    for name in (
        "chat/ completions embeddings files uploads images audio videos batches moderations fine_tuning vector_stores"
        " containers evals assistants threads realtime"
    ).split()
)

PASSTHROUGH_ENDPOINTS = parse_passthrough_endpoints("""
    POST                 /v1/embeddings                                      body counts-input
    POST                 /v1/completions                                     body counts-tokens
    POST                 /v1/moderations                                     body free
    POST                 /v1/images/generations                              body
    POST                 /v1/images/edits                                    form
    POST                 /v1/images/variations                               form
    POST                 /v1/audio/speech                                    body
    POST                 /v1/audio/transcriptions                            form
    POST                 /v1/audio/translations                              form
    GET,POST,DELETE      /v1/chat/completions/{id}                           use free
    GET                  /v1/chat/completions/{id}/messages                  use
    POST                 /v1/files                                           create free
    GET                  /v1/files                                           list
    GET,DELETE           /v1/files/{id}                                      use
    GET                  /v1/files/{id}/content                              use
    POST                 /v1/uploads                                         create free
    POST                 /v1/uploads/{id}/parts                              use free
    POST                 /v1/uploads/{id}/complete                           use names-objects free
    POST                 /v1/uploads/{id}/cancel                             use free
    POST                 /v1/batches                                         create runs-models reads-files
    GET                  /v1/batches                                         list
    GET                  /v1/batches/{id}                                    use names-objects
    POST                 /v1/batches/{id}/cancel                             use free
    POST                 /v1/vector_stores                                   create storage
    GET                  /v1/vector_stores                                   list
    GET,POST,DELETE      /v1/vector_stores/{id}                              use storage
    POST                 /v1/vector_stores/{id}/search                       use storage
    GET,POST             /v1/vector_stores/{id}/files                        use storage
    GET,POST,DELETE      /v1/vector_stores/{id}/files/{id}                   use free
    GET                  /v1/vector_stores/{id}/files/{id}/content           use
    POST                 /v1/vector_stores/{id}/file_batches                 use storage
    GET                  /v1/vector_stores/{id}/file_batches/{id}            use
    POST                 /v1/vector_stores/{id}/file_batches/{id}/cancel     use free
    GET                  /v1/vector_stores/{id}/file_batches/{id}/files      use
    POST                 /v1/containers                                      create storage
    GET                  /v1/containers                                      list
    GET,DELETE           /v1/containers/{id}                                 use
    GET,POST             /v1/containers/{id}/files                           use storage
    GET,DELETE           /v1/containers/{id}/files/{id}                      use
    GET                  /v1/containers/{id}/files/{id}/content              use
    POST                 /v1/videos                                          form create
    GET                  /v1/videos                                          list
    GET,DELETE           /v1/videos/{id}                                     use
    GET                  /v1/videos/{id}/content                             use
    POST                 /v1/videos/{id}/remix                               use names-objects runs-models
    POST                 /v1/fine_tuning/jobs                                body create
    GET                  /v1/fine_tuning/jobs                                list
    GET                  /v1/fine_tuning/jobs/{id}                           use
    POST                 /v1/fine_tuning/jobs/{id}/cancel                    use free
    POST                 /v1/fine_tuning/jobs/{id}/pause                     use free
    POST                 /v1/fine_tuning/jobs/{id}/resume                    use
    GET                  /v1/fine_tuning/jobs/{id}/events                    use
    GET                  /v1/fine_tuning/jobs/{id}/checkpoints               use
    POST                 /v1/evals                                           create runs-models reads-files free
    GET                  /v1/evals                                           list
    GET,POST,DELETE      /v1/evals/{id}                                      use runs-models free
    GET                  /v1/evals/{id}/runs                                 use
    POST                 /v1/evals/{id}/runs                                 use runs-models reads-files
    GET,POST,DELETE      /v1/evals/{id}/runs/{id}                            use free
    GET                  /v1/evals/{id}/runs/{id}/output_items               use
    GET                  /v1/evals/{id}/runs/{id}/output_items/{id}          use
    POST                 /v1/assistants                                      body create runs-models storage
    GET                  /v1/assistants                                      list
    GET,DELETE           /v1/assistants/{id}                                 use
    POST                 /v1/assistants/{id}                                 use runs-models storage
    POST                 /v1/threads                                         create storage
    POST                 /v1/threads/runs                                    create runs-models
    GET,POST,DELETE      /v1/threads/{id}                                    use storage
    GET,POST             /v1/threads/{id}/messages                           use storage
    GET,POST,DELETE      /v1/threads/{id}/messages/{id}                      use free
    GET,POST             /v1/threads/{id}/runs                               use runs-models
    GET,POST             /v1/threads/{id}/runs/{id}                          use free
    POST                 /v1/threads/{id}/runs/{id}/cancel                   use free
    POST                 /v1/threads/{id}/runs/{id}/submit_tool_outputs      use runs-models
    GET                  /v1/threads/{id}/runs/{id}/steps                    use
    GET                  /v1/threads/{id}/runs/{id}/steps/{id}               use
""")
"""Not here: organisations, projects, webhooks and vaults, which belong to the account, and `realtime`, which gives out
keys of the account."""

OF_DEPLOYMENTS = (
    "chat/completions completions responses embeddings images/generations images/edits audio/transcriptions"
    " audio/translations audio/speech"
).split()
PATH_ALIASES = {
    f"{start}/deployments/{{deployment}}/{rest}": f"/v1/{rest}"
    for start in ("/openai", "/openai/v1")
    for rest in OF_DEPLOYMENTS
} | {"/openai/v1/{rest}": "/v1/{rest}", "/openai/{rest}": "/v1/{rest}"}
"""Azure's two kinds of paths, and the places of OpenAI's models on Bedrock. OpenAI's class for Azure puts the
deployment in also behind `/openai/v1` (openai 3.51, November 2026). A deployment may be named as `provider/model`."""

read_rate_limits, write_rate_limits = RateLimitHeaders(
    "x-ratelimit-{field}-{what}", ("requests", "tokens")
).make_reader_and_writer()


def find_created_objects(body: Object) -> Iterator[str]:
    """Spoken answers, which OpenAI keeps for an hour, in a whole answer or in a chunk of a stream."""
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        for key in ("message", "delta"):
            message = choice.get(key) if isinstance(choice, dict) else None
            audio = message.get("audio") if isinstance(message, dict) else None
            if isinstance(audio, dict) and isinstance(id := audio.get("id"), str):
                yield id


HTTP = Http(
    request_path=lambda _model, _stream: PATH,
    ask_for_usage=ask_for_usage,
    drop_usage_chunks=drop_usage_chunks,
    provider_tool_markers=(b'"web_search_options"',),
    history_markers=(b'"tool_calls"', b'"tool_call_id"', b'"function_call"', b'"tool_use_id"'),
    sdk_base_url=("OpenAI", "OPENAI_BASE_URL", "/v1"),
    fixed_endpoints={PATH: EndpointMatch("generate")},
    path_aliases=PATH_ALIASES,
    credential_headers=("authorization", "api-key"),
    path_prefixes=_PATH_PREFIXES,
    passthrough_endpoints=PASSTHROUGH_ENDPOINTS,
    output_limit_keys=MAX_TOKENS_KEYS,
    lenient_output_limit_keys=("max_output_tokens", "max_new_tokens", "n_predict"),  # vLLM, TGI, llama.cpp
    answer_count_keys=("n", "best_of", "prompt"),  # the last two in /v1/completions
    media_markers=(b'"image_url"', b'"video_url"', b'"input_audio"', b'"file"'),
    # Google's Chat endpoint takes `cached_content`, LiteLLM `vector_store_ids`.
    object_markers=(b"file_id", b'"audio"', b"cached_content", b"vector_store_ids"),
    creation_markers=(b'"audio"',),
    find_created_objects=find_created_objects,
    created_object_markers=(b'"audio"',),
    forwarded_headers=tuple("openai-* x-openai-* x-client-request-id idempotency-key x-stainless-* user-agent".split()),
    returned_headers=("retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit-*", "x-request-id", "openai-*"),
    stream_end=b"data: [DONE]\n\n",
    heartbeat=b": keep-alive\n\n",
    read_rate_limits=read_rate_limits,
    write_rate_limits=write_rate_limits,
    write_model_list=write_openai_list,
    write_model_entry=write_openai_entry,
    provider_models_path=OPENAI_MODELS_PATH,
    read_model_list=read_openai_list,
    find_model_facts=find_openai_facts,
    changes_window=lambda _headers, body: body.find(b'"transforms"') >= 0,  # OpenRouter leaves out the middle
)
