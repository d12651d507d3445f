"""Asks a provider whether it accepts its key, as cheaply as possible: its list of models, or a request for few tokens
where there is no list."""

from __future__ import annotations

from toolwire.core.ir import EMPTY_MAPPING, Request, Settings, Text, Turn
from toolwire.core.json_values import encode
from toolwire.core.losses import Ledger
from toolwire.gateway.http.headers import fixed_headers
from toolwire.gateway.http.messages import UpstreamRequest
from toolwire.gateway.http.senders import ProviderSenders
from toolwire.gateway.models.listing import ListUnavailable, ask_models, read_answer
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Config, Provider
from toolwire.gateway.settings.router import Target, choose_codecs
from toolwire.policy.rules import is_glob
from toolwire.protocols import find_codec

MAX_TOKENS = 16
"""OpenAI's Responses API refuses fewer."""
PROMPT = "Say ok."
NO_LIST = frozenset({"no-list", "not-a-list", "404", "405", "501"})
"""Reasons that mean that a server has no list. It says nothing about the key."""


class ProbeResult(ListUnavailable, frozen=True):
    """Why a provider is not known to accept its key; the reason is empty if it does."""


async def probe_provider(senders: ProviderSenders, provider: Provider, config: Config) -> ProbeResult:
    """Does the provider accept its key? The detail says how it was found out, or why it is not known."""
    models = await ask_models(senders, provider)
    if not isinstance(models, ListUnavailable):
        return ProbeResult("", f"lists {len(models):,} model{'' if len(models) == 1 else 's'}")
    if models.reason not in NO_LIST:
        return ProbeResult(models.reason, models.detail)
    model = find_model(provider, config)
    if not model:
        return ProbeResult("no-list", "it has no list of models, and no model of it is named in the configuration")
    return await request_few_tokens(senders, provider, model)


def find_model(provider: Provider, config: Config) -> str:
    """The name of a model of the provider, as the configuration says; "" if it names none."""
    ruled = [rule.model or rule.name for rule in config.models if rule.provider == provider.name]
    return next((name for name in (*ruled, *provider.models) if not is_glob(name)), "")


async def request_few_tokens(senders: ProviderSenders, provider: Provider, model: str) -> ProbeResult:
    _, codec = choose_codecs(Target(provider, model), find_codec(provider.protocols[0]))
    address = Address.parse(provider.base_urls[codec.name], provider.proxies.get(codec.name, ""), provider.ca_file)
    turns = (Turn("user", (Text(PROMPT),)),)
    request = Request(model=model, stream=False, turns=turns, settings=Settings(max_tokens=MAX_TOKENS))
    body = encode(codec.write_request(request, Ledger(codec.name, codec.name)))
    headers = {**dict(codec.http.extra_headers(model, body, EMPTY_MAPPING)), **fixed_headers(provider, codec)}
    path = codec.http.request_path(model, False)
    sent = UpstreamRequest(address, "POST", path, tuple(headers.items()), body)
    response = await senders.find(provider, codec).send_request(sent)
    data = await read_answer(response, address, provider, codec)
    if isinstance(data, ListUnavailable):
        return ProbeResult(data.reason, data.detail)
    return ProbeResult("", f"{model} answers")
