"""Converts the configuration of claude-code-router (`~/.claude-code-router/config.json`)."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from toolwire.gateway.settings.address import is_loopback
from toolwire.gateway.settings.importers.draft import (
    NEW_KEY_HINT,
    Draft,
    InputTable,
    Note,
    find_server_by_url,
    is_usable_url,
)
from toolwire.gateway.settings.providers import known_servers
from toolwire.gateway.settings.toml_text import Toml

TITLE = "claude-code-router"
MARKS = ("Providers", "providers", "Router")
"""Keys by which a file is recognised."""

ROUTES = {"default": "claude-*", "background": "claude-*haiku*"}
"""Routes that the model's name decides, and our pattern. Claude Code asks for a Haiku model in the background."""
ALIASES = {"think": "think", "longContext": "long-context", "webSearch": "web-search", "image": "image"}
"""Routes that the content of a request decides: they become names that a client can ask for."""
LOG_LEVELS = {"fatal": "error", "error": "error", "warn": "warn", "info": "info", "debug": "debug", "trace": "debug"}
ENDINGS = (
    ("/chat/completions", "openai-chat"),
    ("/responses", "openai-responses"),
    ("/v1/messages", "anthropic"),
    ("/v1beta/models", "gemini"),
)
"""The ends of addresses, and their protocols."""
TRANSFORMER_PROTOCOLS = (("Anthropic", "anthropic"), ("gemini", "gemini"))
"""Transformers that name the protocol, for other addresses."""
UNSUPPORTED = ("vertex-gemini", "vertex-claude", "gemini-cli", "qwen-cli", "rovo-cli")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class Converted(NamedTuple):
    """A provider of the input."""

    name: str
    models: list[str]
    limits: dict[str, int]
    """`max_tokens` by model; "" is for all models."""


def convert(root: InputTable, draft: Draft) -> None:
    _read_server(root, draft)
    proxy = _read_proxy(root, draft)
    providers: dict[str, Converted] = {}
    for key in ("Providers", "providers"):
        for table in root.tables(key):
            name = table.text("name")
            found = _add_provider(name, table, proxy, draft)
            if found is not None:
                providers[name] = found
    _add_routes(root.table("Router"), root.table("fallback"), providers, draft)
    _add_limits(providers, draft)
    root.leave(("CUSTOM_ROUTER_PATH", "transformers", "Transformers"), "Toolwire runs no scripts")
    root.leave(
        ("NON_INTERACTIVE_MODE", "CLAUDE_PATH", "StatusLine"), "not needed: `toolwire run claude` starts Claude Code"
    )


# --- the gateway itself -------------------------------------------------------------------------------------------


def _read_server(root: InputTable, draft: Draft) -> None:
    key = root.text("APIKEY")
    draft.add_client_key(key, _variable_name(key), "claude-code-router", "APIKEY")
    host = root.text("HOST")
    if host and (is_loopback(host) or draft.keys):
        draft.server["host"] = host
    elif host:
        root.note("HOST", f"without client keys the gateway serves this machine only; {NEW_KEY_HINT}")
    port = root.whole_number("PORT", 0, 65535)
    if port is not None:
        draft.server["port"] = port
    if "LOG" in root and not root.flag("LOG"):
        draft.server["log_format"] = "none"
    level = root.text("LOG_LEVEL")
    if level in LOG_LEVELS:
        draft.server["log_level"] = LOG_LEVELS[level]
    elif level:
        root.note("LOG_LEVEL", f"not one of {', '.join(LOG_LEVELS)}")
    milliseconds = root.number("API_TIMEOUT_MS")
    if milliseconds is not None:
        draft.timeouts["first_byte"] = milliseconds / 1000
        root.note(
            "API_TIMEOUT_MS", "the limit is for the first byte of the answer, not for the whole answer", "changed"
        )


def _read_proxy(root: InputTable, draft: Draft) -> str:
    proxy = root.text("PROXY_URL")
    if not proxy or is_usable_url(proxy):
        return proxy
    draft.notes.append(Note("to do", "PROXY_URL", "set the environment variable HTTPS_PROXY to the value of this key"))
    return ""


# --- providers ----------------------------------------------------------------------------------------------------


def _add_provider(name: str, table: InputTable, proxy: str, draft: Draft) -> Converted | None:
    url, key = table.text("api_base_url") or table.text("baseUrl"), table.text("api_key")
    if variable := _variable_name(url):
        url = draft.find_address(variable, table.place("api_base_url"))
    models = table.texts("models")
    limits, names, headers = _read_transformers(table.table("transformer"))
    blocked = [used for used in names if used in UNSUPPORTED]
    if not name or blocked or not is_usable_url(url):
        why = (
            f"`{blocked[0]}` needs a login that is not an API key" if blocked else "its name or address cannot be used"
        )
        table.leave_all(f"the provider `{name}` was left out: {why}")
        return None
    settings = _protocol_and_address(url, names)
    server = known_servers().get(str(settings.get("kind", "")))
    if key:
        addressed = known_servers().get(find_server_by_url(url))
        settings |= draft.write_key(key, _variable_name(key), addressed, name, table)
    if models:
        settings["models"] = [*models, *(server.models if server is not None else ())]
    if headers:
        settings["headers"] = dict(headers)
    if proxy and not is_loopback(urlsplit(url).hostname or ""):
        settings["proxy"] = proxy
    chosen = draft.add_provider(name, settings)
    if chosen != name:
        table.note("name", f"`{name}` is called `{chosen}` here", "changed")
    return Converted(chosen, models, limits)


def _protocol_and_address(url: str, transformers: list[str]) -> dict[str, Toml]:
    known = find_server_by_url(url)
    address = url.rstrip("/")
    protocol = "openai-chat"
    for ending, name in ENDINGS:
        if address.endswith(ending):
            address, protocol = address.removesuffix(ending), name
            break
    else:
        protocol = next((name for word, name in TRANSFORMER_PROTOCOLS if word in transformers), protocol)
    if known == "azure":
        host = re.match(r"https?://[^/]+", address)
        return {"kind": "azure", "base_url": f"{host[0] if host else address}/openai/v1"}
    if known and protocol in known_servers()[known].protocols:
        return {"kind": known}
    return {"protocols": [protocol], "base_url": address}


def _variable_name(text: str) -> str:
    """The variable of `$NAME` or `${NAME}`."""
    found = _VARIABLE.fullmatch(text)
    return (found[1] or found[2]) if found else ""


# --- transformers -------------------------------------------------------------------------------------------------


def _read_transformers(table: InputTable) -> tuple[dict[str, int], list[str], dict[str, str]]:
    """The limits of output tokens by model ("": all models), the names of all transformers, and headers."""
    limits: dict[str, int] = {}
    names: list[str] = []
    headers: dict[str, str] = {}
    for scope in table.remaining_keys:
        inner = table if scope == "use" else table.table(scope)
        for path, item in inner.items("use"):
            name, options = _split_transformer(item, path, inner)
            names.append(name)
            limit = options.whole_number("max_tokens", 1) if name == "maxtoken" else None
            if limit:
                limits["" if scope == "use" else scope] = limit
            if name == "openrouter":
                given = {"http-referer": options.text("referer"), "x-title": options.text("title")}
                headers |= {header: value for header, value in given.items() if value}
            options.leave_rest("the converter knows `max_tokens`, `referer` and `title` only")
    return limits, names, headers


def _split_transformer(item: object, path: str, table: InputTable) -> tuple[str, InputTable]:
    """The name and the options of `"name"` or `["name", {…}]`."""
    parts = item if isinstance(item, list) else [item]
    name = parts[0] if parts and isinstance(parts[0], str) else ""
    given = parts[1] if len(parts) > 1 and isinstance(parts[1], dict) else {}
    draft = table.draft
    if not name:
        draft.notes.append(Note("not converted", path, "not the name of a transformer"))
    elif name != "maxtoken" and name not in UNSUPPORTED:
        text = f"`{name}` is not needed: Toolwire translates between the protocols itself"
        draft.notes.append(Note("changed", path, text))
    return name, InputTable(given, f"{path}[1]", draft)


# --- routes -------------------------------------------------------------------------------------------------------


def _add_routes(router: InputTable, fallback: InputTable, providers: dict[str, Converted], draft: Draft) -> None:
    for route, name in (ROUTES | ALIASES).items():
        text = router.text(route)
        if not text:
            continue
        target = _read_target(text, router.place(route), providers, draft)
        if target is None:
            continue
        draft.add_model(name, {"provider": target[0], "model": target[1]}, router.place(route))
        if route in ALIASES:
            reason = (
                f"not chosen by the content of a request: ask for the model `{name}` (in Claude Code: /model {name})"
            )
            router.note(route, reason, "changed")
    router.leave(("longContextThreshold",), "models are chosen by their names, not by the length of the prompt")
    for route, name in (ROUTES | ALIASES).items():
        for text in fallback.texts(route):
            target = _read_target(text, fallback.place(route), providers, draft)
            if target is not None and name in draft.models:
                draft.add_fallbacks(name, ["/".join(target)], fallback.place(route))


def _read_target(text: str, place: str, providers: dict[str, Converted], draft: Draft) -> tuple[str, str] | None:
    """The provider and the model of `provider,model`."""
    provider, comma, model = text.partition(",")
    if not comma or provider.strip() not in providers or not model.strip():
        draft.notes.append(Note("not converted", place, f"`{text}` names no provider that was converted"))
        return None
    return providers[provider.strip()].name, model.strip()


def _add_limits(providers: dict[str, Converted], draft: Draft) -> None:
    """The limits of output tokens: for the routes, and for models that clients ask for by `provider/model`."""
    limits: dict[tuple[str, str], int] = {}
    for found in providers.values():
        everywhere = {model: found.limits[""] for model in found.models if "" in found.limits}
        own = {model: limit for model, limit in found.limits.items() if model}
        limits |= {(found.name, model): limit for model, limit in (everywhere | own).items()}
    for rule in draft.models.values():
        limit = limits.get((str(rule["provider"]), str(rule["model"])))
        if limit:
            rule["max_output_tokens"] = limit
    for (provider, model), limit in limits.items():
        new: dict[str, Toml] = {"provider": provider, "model": model, "max_output_tokens": limit}
        draft.models.setdefault(f"{provider}/{model}", new)
