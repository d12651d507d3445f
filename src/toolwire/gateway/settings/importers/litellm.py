"""Converts the configuration of LiteLLM's proxy (`config.yaml`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import urlsplit

from toolwire.gateway.settings.importers.draft import (
    NEW_KEY_HINT,
    Draft,
    InputTable,
    Note,
    clean_text,
    find_server_by_url,
    is_usable_url,
    looks_secret,
    name_from_url,
)
from toolwire.gateway.settings.providers import UNSUPPORTED_SERVERS, known_servers
from toolwire.gateway.settings.toml_text import Toml

TITLE = "LiteLLM"
MARKS = ("model_list", "litellm_settings", "router_settings", "general_settings")
"""Keys by which a file is recognised."""
ENVIRONMENT = "os.environ/"

SERVERS = {
    "ollama_chat": "ollama",
    "hosted_vllm": "vllm",
    "lm_studio": "lmstudio",
    "llamafile": "llamacpp",
    "azure_text": "azure",
    "bedrock_converse": "bedrock",
    "vertex_ai": "vertex",
    "vertex_ai_beta": "vertex",
    "fireworks_ai": "fireworks",
    "featherless_ai": "featherless",
    "friendliai": "friendli",
    "nvidia_nim": "nvidia",
    "qwencloud": "dashscope",
    "together_ai": "together",
    "vercel_ai_gateway": "vercel",
    "xiaomi_mimo": "xiaomi",
    **{name: name for name in known_servers()},
    **{name: name for name in UNSUPPORTED_SERVERS},
}
"""LiteLLM's names of providers, and ours."""
PLACES = {
    "bedrock": {"region": "aws_region_name", "profile": "aws_profile_name"},
    "vertex": {"project": "vertex_project", "region": "vertex_location"},
}
"""Where models of clouds are: our names and LiteLLM's. The first one is needed."""
PLACE = re.compile(r"[\w.:-]{1,100}", re.ASCII)
GENERIC = ("openai", "openai_like", "custom_openai", "litellm_proxy", "azure_ai")
"""Names for any server with the Chat Completions protocol, if there is an `api_base`."""

VERTEX_MODELS = "gemini-*"
"""Models that LiteLLM asks Vertex AI for, if they have no prefix."""

SAFE_HEADERS = (
    "anthropic-beta",
    "anthropic-version",
    "http-referer",
    "openai-organization",
    "openai-project",
    "x-title",
)
HEADER_TEXT = "a header can be a secret: if it is not, write it to [providers.NAME.headers]"
TOKEN_COSTS = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cache_read",
    "cache_creation_input_token_cost": "cache_write",
    "output_cost_per_reasoning_token": "reasoning",
}
RATES = ("rpm", "tpm", "max_parallel_requests", "weight", "order", "tags", "max_budget", "budget_duration")
DEFAULTS = ("temperature", "top_p", "top_k", "stop", "seed", "presence_penalty", "frequency_penalty", "n", "user")
CLOUD = ("aws_", "vertex_", "azure_ad", "tenant_id", "client_id", "client_secret", "azure_username", "azure_password")
CALLBACKS = ("callbacks", "success_callback", "failure_callback", "service_callbacks", "audit_log_callbacks")


class Target(NamedTuple):
    """Where a deployment sends its requests."""

    provider: str
    model: str


def convert(root: InputTable, draft: Draft) -> None:
    credentials = _read_credentials(root)
    for entry in root.tables("model_list"):
        _add_deployment(entry, credentials, draft)
    for values in credentials.values():
        values.leave_rest("no model that was converted uses it")
    general, module, router = (root.table(name) for name in ("general_settings", "litellm_settings", "router_settings"))
    _add_aliases(router, draft)
    for table in (module, router):
        _add_all_fallbacks(table, draft)
        _add_retries(table, draft)
    _read_module_settings(module, draft)
    _read_router_settings(router)
    _read_general_settings(general, draft)
    servers = root.table("mcp_servers")
    for name in servers.remaining_keys:
        _add_mcp_server(name, servers.table(name), draft)
    variables = root.table("environment_variables")
    for name in variables.remaining_keys:
        variables.take(name)
        variables.note(name, f"set the environment variable {name} before you start the gateway", "to do")
    root.leave(("guardrails",), "Toolwire checks tools only: see docs/guides/policy.md")
    root.leave(("include",), "convert the included files, too")


# --- models -------------------------------------------------------------------------------------------------------


def _read_credentials(root: InputTable) -> dict[str, InputTable]:
    found = {}
    for entry in root.tables("credential_list"):
        values = entry.table("credential_values")
        found[entry.text("credential_name")] = values
        entry.leave(("credential_info",), "not needed")
    return found


def _add_deployment(entry: InputTable, credentials: dict[str, InputTable], draft: Draft) -> None:
    params, info = entry.table("litellm_params"), entry.table("model_info")
    entry.leave(RATES, "there are no rate limits, budgets or weights for a model")
    name = entry.text("model_name")
    facts = _read_facts(info, params)
    limit = params.whole_number("max_tokens", 1) or params.whole_number("max_completion_tokens", 1)
    target = _read_target(params, credentials, draft)
    _leave_parameters(params)
    if target is None:
        params.leave_rest("its model was left out")
        entry.leave_all(f"the model `{name}` was left out")
        return
    rule: dict[str, Toml] = {"provider": target.provider}
    if target.model != name:
        rule["model"] = target.model
    if limit:
        rule["max_output_tokens"] = limit
        params.note("max_tokens", "also lowers the limits of requests that ask for more", "changed")
    if facts and "*" not in name:
        rule["facts"] = facts
    _add_rule(name, rule, target, entry, draft)


def _add_rule(name: str, rule: dict[str, Toml], target: Target, entry: InputTable, draft: Draft) -> None:
    if "*" in target.model:
        if name == f"{target.provider}/{target.model}":
            return  # the gateway routes `provider/model` by itself
        if name == target.model == "*":  # any model that nothing else matches
            known = known_servers().get(str(draft.providers[target.provider].get("kind", target.provider)))
            draft.providers[target.provider]["models"] = [*(known.models if known is not None else ()), "*"]
            return
        if name != target.model:
            text = f"`{name}` cannot be rewritten to `{target.model}`; clients can ask for `{target.provider}/MODEL`"
            entry.note("model_name", text)
            return
    if name not in draft.models:
        draft.add_model(name, rule, entry.path)
        return
    text = f"`{name}` has several deployments: the first is used, this one when it fails; the load is not balanced"
    entry.note("model_name", text, "changed")
    other = f"{target.provider}/{target.model}"
    draft.add_fallbacks(name, [other], entry.place("model_name"))


def _read_facts(info: InputTable, params: InputTable) -> dict[str, Toml]:
    prices = _read_prices(info) | _read_prices(params)
    found: dict[str, Toml | None] = {
        "context_window": info.whole_number("max_input_tokens", 1),
        "max_output_tokens": info.whole_number("max_output_tokens", 1),
        "prices": prices if {"input", "output"} <= prices.keys() else None,
    }
    info.leave_rest("not needed: Toolwire has a catalogue of prices, and asks the provider for its models")
    return {key: value for key, value in found.items() if value}


def _read_prices(table: InputTable) -> dict[str, Toml]:
    """Prices of one token, which are for a million of them here."""
    costs = {name: table.number(key, highest=1) for key, name in TOKEN_COSTS.items()}
    return {name: float(Decimal(str(cost)).scaleb(6)) for name, cost in costs.items() if cost is not None}


def _leave_parameters(params: InputTable) -> None:
    params.leave(RATES, "there are no rate limits, budgets or weights for a model")
    params.leave(DEFAULTS, "the client sets this; the gateway has no defaults for it")
    params.leave(("timeout", "stream_timeout"), "there are no timeouts for a model: see [server.timeouts]")
    params.leave(
        ("drop_params", "additional_drop_params"), "not needed: what a provider does not know is left out and reported"
    )
    params.leave(("api_version",), "not needed: Azure's v1 API has no version in its address")
    params.leave(
        [key for key in params.remaining_keys if "_cost_per_" in key],
        "Toolwire has a catalogue of prices; [models.NAME.facts.prices] sets others",
    )
    params.leave(
        [key for key in params.remaining_keys if key.startswith(CLOUD)],
        "credentials of clouds are found as their own tools find them: docs/recipes has a page for each cloud",
    )


# --- providers ----------------------------------------------------------------------------------------------------


def _read_target(params: InputTable, credentials: dict[str, InputTable], draft: Draft) -> Target | None:
    full, given = params.text("model"), params.text("custom_llm_provider")
    prefix, _, model = full.partition("/") if "/" in full and not given else (given, "", full)
    named = params.text("litellm_credential_name")
    sources = [params, *([credentials[named]] if named in credentials else [])]
    if named and named not in credentials:
        params.note("litellm_credential_name", "there is no such entry in credential_list")
    url = _read_url(sources, draft)
    if not _is_known_prefix(prefix):
        prefix, model = _guess_server(full), full
        if fnmatchcase(full, VERTEX_MODELS):
            params.note("model", "LiteLLM sends this model to Vertex AI; here it goes to the Gemini API", "changed")
    server = SERVERS.get(prefix, prefix)
    if server in UNSUPPORTED_SERVERS:
        params.note("model", f"{UNSUPPORTED_SERVERS[server]}; the model was left out")
        return None
    model = model.removeprefix("responses/") if server in ("openai", "azure") else model
    if not prefix:
        params.note("model", f"the provider of `{full}` is not known; the model was left out")
    table = _provider_table(prefix, server, url, params) if prefix else None
    if table is None:
        return None
    kind = table.get("kind")
    name = str(kind) if kind else name_from_url(str(table["base_url"]))
    table.update(_read_key(sources, name, str(kind or ""), draft))
    headers = _read_headers(params)
    if headers:
        table["headers"] = headers
    return Target(draft.add_provider(name, table), model)


def _is_known_prefix(prefix: str) -> bool:
    return prefix in SERVERS or prefix in GENERIC


def _guess_server(model: str) -> str:
    """The provider of a model without a prefix, as LiteLLM finds it by the name."""
    for name, server in known_servers().items():
        if any(fnmatchcase(model, pattern) for pattern in server.models):
            return name
    return ""


def _read_url(sources: Iterable[InputTable], draft: Draft) -> str:
    found = [(source.text(key), source.place(key)) for source in sources for key in ("api_base", "base_url")]
    url, place = next((pair for pair in found if pair[0]), ("", ""))
    return draft.find_address(url.removeprefix(ENVIRONMENT), place) if url.startswith(ENVIRONMENT) else url


def _provider_table(prefix: str, server: str, url: str, params: InputTable) -> dict[str, Toml] | None:
    """The provider without its key; None after a note, if it cannot be used."""
    if url and not is_usable_url(url):
        params.note("api_base", "this address cannot be used, or it contains a secret; the model was left out")
        return None
    if server == "azure":
        if not url:
            params.note("model", "the address of the Azure resource (`api_base`) is missing; the model was left out")
            return None
        parts = urlsplit(url)
        return {"kind": "azure", "base_url": f"{parts.scheme}://{parts.netloc}/openai/v1"}
    if server in PLACES and not url:
        return _read_place(server, params)
    known = find_server_by_url(url) if url else ""
    if server in known_servers() and (not url or known == server or prefix not in GENERIC):
        return {"kind": server} if not url or known == server else {"kind": server, "base_url": url}
    if not url:
        params.note("model", "the address of the server (`api_base`) is missing; the model was left out")
        return None
    return {"kind": known} if known else {"protocols": ["openai-chat"], "base_url": url}


def _read_place(server: str, params: InputTable) -> dict[str, Toml] | None:
    """The provider of a cloud by its region or project; None after a note, if that is missing."""
    needed, *others = PLACES[server].items()
    found: dict[str, Toml] = {
        key: text for key, name in (needed, *others) if PLACE.fullmatch(text := params.text(name))
    }
    if needed[0] in found:
        return {"kind": server, **found}
    params.note("model", f"its {needed[0]} (`{needed[1]}`) is missing; the model was left out")
    return None


def _read_key(sources: list[InputTable], name: str, kind: str, draft: Draft) -> dict[str, Toml]:
    """`api_key_env` for the key of a provider."""
    server = known_servers().get(kind)
    for source in sources:
        key = source.text("api_key")
        if key:
            return draft.write_key(key, _variable_name(key), server, name, source)
    return {"api_key_env": "AZURE_API_KEY"} if kind == "azure" else {}


def _variable_name(text: str) -> str:
    """The variable of `os.environ/NAME`."""
    return text.removeprefix(ENVIRONMENT) if text.startswith(ENVIRONMENT) else ""


def _read_headers(params: InputTable) -> dict[str, Toml]:
    found: dict[str, Toml] = {}
    organization = params.text("organization")
    if organization.startswith(ENVIRONMENT):
        params.note("organization", HEADER_TEXT)
    elif organization:
        found["openai-organization"] = organization
    for key in ("extra_headers", "headers"):
        table = params.table(key)
        for header in table.remaining_keys:
            value = table.text(header)
            if header.lower() not in SAFE_HEADERS or value.startswith(ENVIRONMENT):
                table.note(header, HEADER_TEXT)
            elif value:
                found[header.lower()] = value
    return found


# --- fallbacks, aliases -------------------------------------------------------------------------------------------


def _add_aliases(router: InputTable, draft: Draft) -> None:
    aliases = router.table("model_group_alias")
    for name in aliases.remaining_keys:
        value = aliases.take(name)
        if isinstance(value, dict):
            table = aliases.table(name)
            value = table.text("model")
            table.leave(("hidden",), "every model is listed")
        target = value if isinstance(value, str) else ""
        if target not in draft.models:
            aliases.note(name, "the model that it stands for was not converted")
            continue
        rule = draft.models[target]
        draft.add_model(clean_text(name), {**rule, "model": rule.get("model", target)}, aliases.place(name))


def _add_all_fallbacks(table: InputTable, draft: Draft) -> None:
    defaults = [name for name in table.texts("default_fallbacks") if _is_model(name, "default_fallbacks", table, draft)]
    for path, item in table.items("fallbacks"):
        for name, others in (item if isinstance(item, dict) else {}).items():
            listed = [other for other in others if isinstance(other, str)] if isinstance(others, list) else []
            usable = [other for other in listed if _is_model(other, path, None, draft)]
            if name == "*":
                defaults += usable
            elif name in draft.models:
                draft.add_fallbacks(name, usable, path)
            else:
                draft.notes.append(Note("not converted", path, f"the model `{name}` was not converted"))
        if not isinstance(item, dict):
            draft.notes.append(Note("not converted", path, "not a table"))
    for name in [name for name, rule in draft.models.items() if defaults and "fallbacks" not in rule]:
        draft.add_fallbacks(name, [other for other in defaults if other != name], table.place("default_fallbacks"))
    reason = "fallbacks are for failures only; a prompt that is too long is reported to the client"
    table.leave(("context_window_fallbacks", "content_policy_fallbacks"), reason)


def _is_model(name: str, place: str, table: InputTable | None, draft: Draft) -> bool:
    if name not in draft.models:
        where = table.place(place) if table is not None else place
        draft.notes.append(Note("not converted", where, f"the model `{name}` was not converted"))
    return name in draft.models


def _add_retries(table: InputTable, draft: Draft) -> None:
    for key, ours in (("num_retries", "retries"), ("allowed_fails", "cooldown_after")):
        value = table.whole_number(key, 0 if ours == "retries" else 1)
        if value is not None:
            draft.server[ours] = value
    cooldown = table.number("cooldown_time")
    if cooldown is not None:
        draft.server["cooldown"] = cooldown
    for key in ("timeout", "request_timeout"):
        seconds = table.number(key)
        if seconds is not None:
            draft.timeouts["first_byte"] = seconds
            table.note(key, "the limit is for the first byte of the answer, not for the whole answer", "changed")


# --- the other settings -------------------------------------------------------------------------------------------


def _read_module_settings(table: InputTable, draft: Draft) -> None:
    if table.flag("json_logs"):
        draft.server["log_format"] = "json"
    if table.flag("set_verbose"):
        draft.server["log_level"] = "debug"
    table.leave(("drop_params", "modify_params"), "not needed: what a provider does not know is left out and reported")
    table.leave(CALLBACKS, "see docs/guides/observe.md: a log, /metrics for Prometheus, and OpenTelemetry")
    table.leave(("cache", "cache_params"), "Toolwire does not cache answers")
    table.leave(("turn_off_message_logging", "redact_messages_in_exceptions"), "not needed: bodies are not logged")


def _read_router_settings(table: InputTable) -> None:
    routing = [
        key for key in table.remaining_keys if key.startswith(("routing_", "enable_", "optional_", "retry_policy"))
    ]
    table.leave(routing, "a model has one provider and its fallbacks in order; the load is not balanced")
    redis = [key for key in table.remaining_keys if key.startswith(("redis_", "cache_"))]
    table.leave(redis, "not needed: gateways share PostgreSQL ([store]), see docs/guides/scale.md")


def _read_general_settings(table: InputTable, draft: Draft) -> None:
    key = table.text("master_key")
    draft.add_client_key(key, _variable_name(key), "litellm-master-key", table.place("master_key"))
    requests = table.whole_number("global_max_parallel_requests", 1)
    if requests is not None:
        draft.server["max_requests"] = requests
    megabytes = table.number("max_request_size_mb", 0.001, 4096)
    if megabytes is not None:
        draft.server["max_body"] = int(megabytes * 1024 * 1024)
    database = [name for name in table.remaining_keys if name.startswith(("database_", "store_", "use_redis"))]
    text = f"keys of users and teams are in LiteLLM's database: create new ones here; {NEW_KEY_HINT}"
    table.leave(database, text)
    table.leave(("alerting", "alerting_args", "alerting_threshold"), "see docs/guides/observe.md")


def _add_mcp_server(name: str, table: InputTable, draft: Draft) -> None:
    converted: dict[str, Toml] = {}
    transport = table.text("transport")
    command, url = table.text("command"), table.text("url")
    if transport == "sse":
        table.leave_all("left out: servers with SSE only are not supported; ask for streamable HTTP")
        return
    if command:
        words: list[Toml] = [command, *table.texts("args")]
        if any(looks_secret(word) for word in words if isinstance(word, str)):
            table.leave_all("left out: the command seems to contain a secret; pass it in `env`")
            return
        converted["command"] = words
        env = table.table("env")
        variables: dict[str, Toml] = {}
        for variable in env.remaining_keys:
            value = env.text(variable)
            source = _variable_name(value)
            if not source and value:
                source = draft.variable_for(value, variable, env.place(variable))
            variables[variable] = f"${{{source}}}" if source else ""
        if variables:
            converted["env"] = variables
    elif is_usable_url(url):
        converted["url"] = url
    else:
        table.leave_all("left out: the address is missing, cannot be used, or contains a secret")
        return
    table.leave(("authentication_token", "auth_value", "auth_type"), "write it to [mcp.NAME.headers] as `$VARIABLE`")
    draft.mcp[name] = converted
    draft.notes.append(Note("to do", table.path, 'say who gets its tools: `models = ["*"]`, `keys` or `protocols`'))
