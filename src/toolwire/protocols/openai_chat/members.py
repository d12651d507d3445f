"""The members of requests, for whoever decides by a body that goes on as it came."""

from __future__ import annotations

from toolwire.core.json_values import Object
from toolwire.core.request_members import ObjectMembers, RequestMembers, ToolCosts, letter_set, read_spellings
from toolwire.protocols.openai_chat.names import CACHE_KEYS, REQUEST_KEYS

_OPENAI = REQUEST_KEYS | frozenset(
    """audio logit_bias modalities moderation prediction prompt_cache_options prompt_cache_retention""".split()
)
"""From `CompletionCreateParams` of openai 3.49.0."""

_COMPATIBLE = frozenset(
    # vLLM (`ChatCompletionRequest` in vllm/entrypoints/openai/protocol.py, looked up in November 2026) and SGLang. Not
    # here: adapters, processors, and what is passed to other servers (`logits_processors`, `kv_transfer_params`).
    """top_k min_p top_a repetition_penalty length_penalty use_beam_search best_of min_tokens stop_token_ids ignore_eos
    include_stop_str_in_output skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens prompt_logprobs
    allowed_token_ids bad_words echo add_generation_prompt continue_final_message add_special_tokens documents
    chat_template chat_template_kwargs mm_processor_kwargs guided_json guided_regex guided_choice guided_grammar
    guided_decoding_backend guided_whitespace_pattern structural_tag structured_outputs priority request_id cache_salt
    return_tokens_as_token_ids return_token_ids thinking_token_budget regex ebnf json_schema no_stop_trim
    separate_reasoning stream_reasoning"""
    # llama.cpp (README.md of its server), Ollama, text-generation-inference
    """ n_predict max_new_tokens max_output_tokens mirostat mirostat_tau mirostat_eta typical_p tfs_z dynatemp_range
    dynatemp_exponent dry_multiplier dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers
    xtc_probability xtc_threshold repeat_penalty repeat_last_n n_probs n_keep min_keep cache_prompt id_slot grammar
    samplers timings_per_token return_progress post_sampling_probs reasoning_budget thinking_forced_open think
    keep_alive format do_sample"""
    # Groq, Mistral, DeepSeek, Zhipu, Qwen, xAI, Together, Fireworks
    """ reasoning_format include_reasoning citation_options random_seed safe_prompt prompt_mode thinking tool_stream
    enable_thinking thinking_budget preserve_thinking incremental_output result_format vl_high_resolution_images
    translation_options deferred context_length_exceeded_behavior prompt_truncate_len raw_output
    perf_metrics_in_response"""
    # Settings that cost nothing but tokens, as of November 2026: of Fireworks (the parameters of its SDK's
    # `chat.completions.create`), Baseten and NVIDIA's Dynamo (`chat_template_args`), MiniMax (`reasoning_split`, which
    # takes the thinking out of the text) and Cerebras (inference-docs.cerebras.ai); and what clients say of themselves.
    """ prompt_cache_isolation_key reasoning_history echo_last mirostat_lr mirostat_target chat_template_args
    reasoning_split disable_reasoning clear_thinking client_metadata"""
    # OpenRouter (openrouter.ai/docs/api-reference); Google's endpoint for Chat takes the name of a cache
    """ reasoning usage image_config cache_control session_id trace cached_content""".split()
)
"""Members of servers that are only compatible, and that choose neither a model nor tools. Only those of vLLM were
compared with a source; a name that no server has does no harm here, and a missing one is refused until it is added."""

_FORWARDED = frozenset(
    # embeddings, completions, moderations
    """model input user dimensions encoding_format prompt suffix best_of echo frequency_penalty logit_bias logprobs
    max_tokens n presence_penalty seed stop stream stream_options temperature top_p"""
    # images, audio, videos
    """ background complexity frame_count frame_duration_ms image input_fidelity markup mask moderation
    output_compression output_format partial_images quality response_format safety_identifier size style svg
    instructions speed stream_format voice chunking_strategy file include keywords known_speaker_names
    known_speaker_references language languages timestamp_granularities input_reference seconds characters"""
    # stored completions, files, uploads, vector stores, containers, fine-tuning, threads
    """ metadata purpose expires_after bytes filename mime_type data part_ids md5 name description file_ids file_id
    files attributes filters max_num_results query ranking_options rewrite_query memory_limit network_policy skills
    hyperparameters integrations method training_file validation_file messages role content attachments
    tool_resources"""
    # batches, evals, assistants and runs
    """ completion_window endpoint input_file_id output_expires_after data_source_config data_source testing_criteria
    tools tool_choice parallel_tool_calls reasoning_effort assistant_id additional_instructions additional_messages
    max_completion_tokens max_prompt_tokens thread truncation_strategy tool_outputs"""
    # embeddings of vLLM, Jina, Voyage, NVIDIA, Cohere; not compared with a source
    """ input_type truncate task late_chunking output_dimension output_dtype embedding_types""".split()
)
"""From the parameters of these endpoints in openai 3.49.0."""

_USUAL_TIERS = frozenset(b'"%b"' % tier for tier in b"auto default standard on_demand flex scale".split())

_TOOL_LISTS = frozenset({"tools", "functions", "functionDeclarations", "function_declarations"})


def _is_vendor_tool(node: Object) -> bool:
    """Is it a tool such as `openrouter:subagent`, whose `parameters` are settings, not a schema?"""
    kind = node.get("type")
    return isinstance(kind, str) and ":" in kind


REQUEST_MEMBERS = RequestMembers(
    outermost=_OPENAI | _COMPATIBLE,
    forwarded=_FORWARDED | _COMPATIBLE,
    # OpenRouter (openrouter.ai/docs, provider routing and transforms). NVIDIA's extensions choose a worker of the model
    # (docs.nvidia.com/dynamo, nvext; November 2026).
    passing_rules=frozenset("route router provider providers transforms nvext".split()),
    # A search without a tool: xAI, Qwen, Groq, Perplexity; LiteLLM searches in vector stores.
    passing_keys=frozenset(
        """search_parameters enable_search enable_web_search search_options search_settings search_mode
        search_domain_filter search_recency_filter return_images return_related_questions vector_store_ids""".split()
    ),
    decisive=read_spellings("model stream tools tool_choice functions function_call messages input store requests"),
    # LiteLLM takes Google's tools in a Chat request.
    judged=read_spellings(
        """type name function functions definition custom tools tool_calls tool_choice allowed_tools mode server_url
        server_label connector_id function_call functionDeclarations=function_declarations googleSearch=google_search
        googleSearchRetrieval=google_search_retrieval codeExecution=code_execution urlContext=url_context
        computerUse=computer_use fileSearch=file_search mcpServers=mcp_servers file_id file_ids vector_store_ids
        container container_id file_data max_tokens max_completion_tokens max_output_tokens=maxOutputTokens"""
    ),
    free=frozenset(
        """arguments parameters input_schema schema guided_json properties metadata client_metadata parsed
        parsed_arguments""".split()
    ),
    has_settings=_is_vendor_tool,
    turns=frozenset({"messages", "input"}),
    declarations=_TOOL_LISTS,
    tool_choices=frozenset({"tool_choice", "function_call", "mcp_servers", "web_search_options"}),
    tool_places=frozenset({"tools", "functions", "tool_choice"}),
    stored_tools={"cached_content": str},
    # OpenAI's own search (`web_search_options`) does not say how often it searched. The tier `priority` costs more and
    # `flex` less (OpenAI's pricing page, November 2026); `on_demand` is Groq's word for the usual one. Audio costs many
    # times what text does, and not every model's price of it is known.
    tool_costs=ToolCosts(
        audio_markers=(b'"input_audio"',),
        usual_values={"service_tier": _USUAL_TIERS, "modalities": frozenset({b'["text"]'})},
    ),
    cache_breakpoints=CACHE_KEYS,
    objects=ObjectMembers(
        names=letter_set("file_ids vector_store_ids cached_content".split()),
        forwarded_names=letter_set(
            """file_ids vector_store_ids cached_content input_file_id training_file validation_file assistant_id
            thread_id vector_store_id upload_id""".split()
        ),
        # Spoken answers, custom voices, characters of videos, stored prompts.
        id_holders=frozenset("prompt audio voice characters".split()),
        containers=letter_set(["container", "container_id"]),
        prefixes={"skillid": "skill_"},
        answer_types=("_citation", "file_path"),
        created=("id", "output_file_id", "error_file_id", "thread_id"),
    ),
)
