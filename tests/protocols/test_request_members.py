"""The members of requests that codecs know: those of the vendors' SDKs. A new SDK brings new ones into the tables."""

from __future__ import annotations

from importlib import import_module

import pytest

from toolwire.core.request_members import letters_of
from toolwire.protocols import CODECS

ANSWERS = {
    "openai-chat": ["openai.types.chat.completion_create_params:CompletionCreateParamsStreaming"],
    "openai-responses": [
        "openai.types.responses.response_create_params:ResponseCreateParamsStreaming",
        "openai.types.responses.input_token_count_params:InputTokenCountParams",
        "openai.types.responses.response_compact_params:ResponseCompactParams",
        "openai.types.beta.response_create_params:ResponseCreateParamsStreaming",
    ],
    "anthropic": [
        "anthropic.types.message_create_params:MessageCreateParamsStreaming",
        "anthropic.types.message_count_tokens_params:MessageCountTokensParams",
        "anthropic.types.beta.message_create_params:MessageCreateParamsStreaming",
    ],
}
FORWARDED = {
    "openai-chat": [
        f"openai.types.{row}"
        for row in """embedding_create_params:EmbeddingCreateParams completion_create_params:CompletionCreateParamsStreaming
        moderation_create_params:ModerationCreateParams image_generate_params:ImageGenerateParamsStreaming
        image_edit_params:ImageEditParamsStreaming image_create_variation_params:ImageCreateVariationParams
        audio.speech_create_params:SpeechCreateParams audio.translation_create_params:TranslationCreateParams
        audio.transcription_create_params:TranscriptionCreateParamsStreaming file_create_params:FileCreateParams
        upload_create_params:UploadCreateParams upload_complete_params:UploadCompleteParams
        batch_create_params:BatchCreateParams vector_store_create_params:VectorStoreCreateParams
        vector_store_search_params:VectorStoreSearchParams vector_stores.file_create_params:FileCreateParams
        vector_stores.file_batch_create_params:FileBatchCreateParams container_create_params:ContainerCreateParams
        containers.file_create_params:FileCreateParams video_create_params:VideoCreateParams
        video_remix_params:VideoRemixParams fine_tuning.job_create_params:JobCreateParams
        eval_create_params:EvalCreateParams beta.assistant_create_params:AssistantCreateParams
        beta.thread_create_params:ThreadCreateParams beta.threads.message_create_params:MessageCreateParams
        beta.threads.run_create_params:RunCreateParamsStreaming""".split()
    ],
    "openai-responses": [
        "openai.types.conversations.conversation_create_params:ConversationCreateParams",
        "openai.types.conversations.item_create_params:ItemCreateParams",
    ],
    "anthropic": [
        "anthropic.types.messages.batch_create_params:BatchCreateParams",
        "anthropic.types.file_upload_params:FileUploadParams",
        "anthropic.types.skill_create_params:SkillCreateParams",
    ],
}
NOT_IN_BODIES = {"betas", "user_profile_id", "workspace_id"}
"""The SDKs send them as headers or in the query."""
CHOOSING = {"fallbacks"}
"""Official, and it chooses other models (Anthropic, beta)."""


def parameters(rows: list[str]) -> set[str]:
    found: set[str] = set()
    for row in rows:
        module, _, name = row.partition(":")
        params = getattr(import_module(module), name)
        found |= params.__required_keys__ | params.__optional_keys__
    return found - NOT_IN_BODIES


@pytest.mark.parametrize("protocol", ANSWERS)
def test_the_parameters_of_answers_are_known(protocol: str) -> None:
    assert parameters(ANSWERS[protocol]) - CODECS[protocol].request_members.outermost <= CHOOSING


@pytest.mark.parametrize("protocol", FORWARDED)
def test_the_parameters_of_forwarded_endpoints_are_known(protocol: str) -> None:
    assert parameters(FORWARDED[protocol]) <= CODECS[protocol].request_members.forwarded


@pytest.mark.parametrize("protocol", CODECS)
def test_what_chooses_models_is_not_known(protocol: str) -> None:
    members = CODECS[protocol].request_members
    known = {letters_of(name) for name in members.outermost | members.forwarded}
    words = "models model_id model_name fallbacks preset plugins engine deployment extra_body headers api_base base_url api_key config lora agent"
    assert known.isdisjoint(map(letters_of, words.split()))


@pytest.mark.parametrize("protocol", CODECS)
def test_every_name_is_spelled_in_one_way_or_listed(protocol: str) -> None:
    """Two names with the same letters are the same member; then a gateway must know that."""
    members = CODECS[protocol].request_members
    for spellings in (members.decisive, members.judged):
        assert set(spellings.names) == {name for row in spellings.by_letters.values() for name in row}
        assert all(letters_of(name) == letters for letters, row in spellings.by_letters.items() for name in row)
