"""What providers offer: asks each for its list of models, in its own protocol, and caches the answers.

A list is asked for when somebody wants to know. It is fresh for some minutes; after that it is still used, while one
request at a time asks for a new one in the background. A list that cannot be had again stays in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from toolwire.core.codec import NO_FACTS, Codec, ModelFacts, ModelInfo, ModelPage
from toolwire.core.ids import hex_digest
from toolwire.core.json_values import Malformed, decode
from toolwire.gateway.http.client import HttpResponse
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.headers import HOPS_HEADER, fixed_headers
from toolwire.gateway.http.large_work import run_by_size
from toolwire.gateway.http.messages import RequestSender, UpstreamRequest, UpstreamResponse
from toolwire.gateway.http.senders import ProviderSenders, send_idempotent
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.router import codec_with_quirks, is_usable_name

MAX_PAGE_BYTES = 16 * 1024 * 1024
MAX_PAGES = 50
MAX_MODELS = 10_000
"""Of one provider. OpenRouter, the largest known list, has some 600."""
ASK_SECONDS = 10.0
"""For all pages of one provider."""
MAX_ASKED_AT_ONCE = 8
FRESH_SECONDS = 300.0
RETRY_SECONDS = 30.0
"""After a failure the provider is asked again, but not by every request."""
WAIT_SECONDS = 3.0
"""How long a request waits for lists that nobody has asked for before. A picker should not hang."""


class ListUnavailable(Struct, frozen=True):
    """Why there is no list of models of a provider."""

    reason: str
    """One word, for a header."""
    detail: str
    """A sentence for people. Never contains a key."""


class ProviderList(Struct, frozen=True):
    """What is known of a provider's models now."""

    provider: Provider
    models: tuple[ModelInfo, ...] | None = None
    """None if there never was a list."""
    problem: ListUnavailable | None = None
    """Set if the last time it could not be had: then `models` are from an earlier time."""


# --- asking one provider ---


def find_listing_codec(provider: Provider) -> Codec | None:
    """The codec whose list to ask the provider for: that of its first protocol that has lists."""
    codecs = (codec_with_quirks(protocol, provider.quirks, provider.platform) for protocol in provider.protocols)
    return next((codec for codec in codecs if codec.http.provider_models_path), None)


def explain_skip(provider: Provider) -> ListUnavailable | None:
    """Why a provider is not asked at all; None if it is."""
    if provider.is_key_missing:
        return ListUnavailable("no-key", f"it has no key: set {provider.api_key_env}")
    if provider.forward_auth:
        # The client's key is for one of them, and must not be shown to the others.
        return ListUnavailable("forward-auth", "it is used with the clients' own keys, so the gateway cannot ask it")
    if find_listing_codec(provider) is None:
        return ListUnavailable("no-list", "its protocol has no lists of models")
    return None


async def ask_models(
    senders: ProviderSenders, provider: Provider, hops: str = ""
) -> tuple[ModelInfo, ...] | ListUnavailable:
    codec = find_listing_codec(provider)
    if codec is None:
        return ListUnavailable("no-list", "its protocol has no lists of models")
    client = senders.find(provider, codec)
    address = Address.parse(provider.base_urls[codec.name], provider.proxies.get(codec.name, ""), provider.ca_file)
    headers = {**dict(codec.http.extra_headers("", b"", {})), **fixed_headers(provider, codec)}
    del headers["content-type"]
    if hops:
        headers[HOPS_HEADER] = hops
    found: dict[str, ModelInfo] = {}
    path = codec.http.provider_models_path
    try:
        async with asyncio.timeout(ASK_SECONDS):
            for _ in range(MAX_PAGES):
                page = await _ask_page(client, address, path, tuple(headers.items()), provider, codec)
                if isinstance(page, ListUnavailable):
                    return page
                known = len(found)
                for model in page.models[:MAX_MODELS]:
                    if is_usable_name(model.id):
                        found.setdefault(model.id, model)
                path = page.next_path
                # Servers that ignore the cursor send the same page for ever.
                if not path or len(found) == known or len(found) >= MAX_MODELS:
                    break
    except TimeoutError:
        return ListUnavailable("timeout", f"{address.label} did not send its models within {ASK_SECONDS:g} seconds")
    return tuple(found.values())[:MAX_MODELS]


async def _ask_page(
    client: RequestSender,
    address: Address,
    path: str,
    headers: tuple[tuple[str, str], ...],
    provider: Provider,
    codec: Codec,
) -> ModelPage | ListUnavailable:
    response = await send_idempotent(client, UpstreamRequest(address, "GET", path, headers, b""))
    data = await read_answer(response, address, provider, codec)
    if isinstance(data, ListUnavailable):
        return data
    page = await run_by_size(len(data), lambda: _read_page(codec, data))
    return page or ListUnavailable("not-a-list", f"{address.label} sent something that is not a list of models")


async def read_answer(
    response: UpstreamResponse | TransportError, address: Address, provider: Provider, codec: Codec
) -> bytes | ListUnavailable:
    """What a provider says, without its key; or why there is no good answer."""
    if isinstance(response, TransportError):
        return ListUnavailable(response.kind, response.detail)
    if isinstance(response, HttpResponse) and not provider.access.method:  # else its sender does it
        response.hide_keys(provider.secrets)
    try:
        data = await response.read(MAX_PAGE_BYTES)
    finally:
        response.abort()
    if isinstance(data, TransportError):
        return ListUnavailable(data.kind, data.detail)
    if response.status != 200:
        what = _error_text(codec, data, response)
        return ListUnavailable(str(response.status), f"{address.label} answered with {response.status}{what}")
    return data


def _read_page(codec: Codec, data: bytes) -> ModelPage | None:
    try:
        return codec.http.read_model_list(decode(data))
    except (Malformed, RecursionError):
        return None


def _error_text(codec: Codec, data: bytes, response: UpstreamResponse) -> str:
    try:
        message = codec.read_error(decode(data), response.status, response.headers).message
    except (Malformed, RecursionError):
        return ""
    message = " ".join(message.split())
    return f": {message[:200]}" if message else ""


# --- the lists of all providers ---


class _CachedList(Struct, eq=False):
    models: tuple[ModelInfo, ...] | None = None
    problem: ListUnavailable | None = None
    asked_at: float | None = None
    task: asyncio.Task[None] | None = None

    def is_due(self, now: float) -> bool:
        if self.task is not None:
            return False
        age = RETRY_SECONDS if self.problem is not None else FRESH_SECONDS
        return self.asked_at is None or now - self.asked_at >= age


class ModelLists:
    """The lists of the providers of a gateway. A new configuration keeps those of providers that stay the same."""

    def __init__(
        self,
        on_change: Callable[[str, ListUnavailable | None], None],
        report_error: Callable[[BaseException], None],
    ) -> None:
        """`on_change` gets a provider whose list cannot be had any more or is cut off, and one that is back (None)."""
        self._lists: dict[tuple[object, ...], _CachedList] = {}
        self._on_change, self._report_error = on_change, report_error
        self._turns = asyncio.Semaphore(MAX_ASKED_AT_ONCE)
        self.version = 0
        """Changes whenever a list changes."""
        self._facts_by_model: tuple[int, Mapping[tuple[object, str], ModelFacts]] = (0, {})
        """The version of the lists, and what they say."""

    def find_facts(self, provider: str, model: str) -> ModelFacts:
        """What the list of a provider says about a model, if the list is there. Nobody is asked for it."""
        version, facts = self._facts_by_model
        if version != self.version:
            lists = ((identity[0], cached.models or ()) for identity, cached in self._lists.items())
            facts = {(name, one.id): one.facts for name, models in lists for one in models if one.facts != NO_FACTS}
            self._facts_by_model = (self.version, facts)
        return facts.get((provider, model), NO_FACTS)

    async def load(
        self,
        senders: ProviderSenders,
        providers: Iterable[Provider],
        clock: Callable[[], float],
        hops: str = "",
        wait_seconds: float = WAIT_SECONDS,
    ) -> tuple[ProviderList, ...]:
        """The lists of these providers, as far as they can be had soon."""
        asked = [provider for provider in providers if not provider.embedded and provider.list_models]
        skipped = {provider: explain_skip(provider) for provider in asked}
        lists = {
            provider: self._lists.setdefault(_identity(provider), _CachedList())
            for provider in asked
            if skipped[provider] is None
        }
        for provider, cached in lists.items():
            if cached.is_due(clock()):
                cached.task = asyncio.create_task(self._refresh(cached, senders, provider, clock, hops))
                cached.task.add_done_callback(self._on_task_done)
        new = [cached.task for cached in lists.values() if cached.models is None and cached.task is not None]
        if new:
            await asyncio.wait(new, timeout=wait_seconds)
        return tuple(_describe_list(provider, skipped[provider], lists.get(provider)) for provider in asked)

    def forget_others(self, providers: Iterable[Provider]) -> None:
        """Forget the lists of providers that are not configured any more."""
        kept = {_identity(provider) for provider in providers}
        for identity in [identity for identity in self._lists if identity not in kept]:
            self.version += 1
            task = self._lists.pop(identity).task
            if task is not None:
                task.cancel()

    def close(self) -> None:
        self.forget_others(())

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report_error(error)

    async def _refresh(
        self, cached: _CachedList, senders: ProviderSenders, provider: Provider, clock: Callable[[], float], hops: str
    ) -> None:
        try:
            async with self._turns:
                answer = await ask_models(senders, provider, hops)
        finally:
            cached.task, cached.asked_at = None, clock()
        was_down = cached.problem is not None
        if isinstance(answer, ListUnavailable):
            cached.problem = answer
        else:
            was_cut_off = cached.models is not None and len(cached.models) >= MAX_MODELS
            self.version += answer != cached.models
            cached.models, cached.problem = answer, None
            if len(answer) >= MAX_MODELS and not was_cut_off:
                self._on_change(provider.name, ListUnavailable("cut-off", f"only its first {MAX_MODELS:,} are listed"))
                return
        if was_down != (cached.problem is not None):
            self._on_change(provider.name, cached.problem)


def report_listing(log_event: Callable[..., None], provider: str, problem: ListUnavailable | None) -> None:
    """Log that the list of a provider cannot be had, or can be had again."""
    if problem is None:
        log_event("models_available", provider=provider)
    else:
        what = f"the models of `{provider}` cannot be listed, or not all of them: {problem.detail}"
        log_event("models_unavailable", level="warn", provider=provider, message=what)


_STILL_ASKED = ListUnavailable("slow", "it has not sent its models yet")


def _describe_list(provider: Provider, skipped: ListUnavailable | None, cached: _CachedList | None) -> ProviderList:
    if cached is None:
        return ProviderList(provider, None, skipped)
    problem = cached.problem
    if cached.models is None and problem is None:
        problem = _STILL_ASKED
    return ProviderList(provider, cached.models, problem)


def _identity(provider: Provider) -> tuple[object, ...]:
    """Two providers with the same identity would send the same list."""
    return (
        provider.name,
        provider.protocols,
        tuple(provider.base_urls.items()),
        tuple(provider.proxies.items()),
        hex_digest(provider.api_key.reveal(), 32),
        tuple(provider.auth_headers.items()),
        provider.access,
        hex_digest(repr(sorted(provider.headers.items())), 32),
        provider.ca_file,
    )


async def ask_list(senders: ProviderSenders, provider: Provider, hops: str = "") -> ProviderList:
    answer = explain_skip(provider) or await ask_models(senders, provider, hops)
    models, problem = (answer, None) if isinstance(answer, tuple) else (None, answer)
    return ProviderList(provider, models, problem)


async def ask_all(senders: ProviderSenders, providers: Sequence[Provider]) -> tuple[ProviderList, ...]:
    """The lists of these providers, for the command line."""
    turns = asyncio.Semaphore(MAX_ASKED_AT_ONCE)

    async def ask(provider: Provider) -> ProviderList:
        async with turns:
            return await ask_list(senders, provider)

    asked = [provider for provider in providers if not provider.embedded and provider.list_models]
    return tuple(await asyncio.gather(*map(ask, asked)))


UNAVAILABLE_HEADER = "x-toolwire-models-unavailable"
STALE_HEADER = "x-toolwire-models-stale"


def header_values(lists: Iterable[ProviderList]) -> Mapping[str, str]:
    """The headers that say which lists are missing, with the reason, and which are old."""
    failed = [(_escape_name(one.provider.name), one.problem.reason, one.models) for one in lists if one.problem]
    missing = [f"{name}={reason}" for name, reason, models in failed if models is None]
    old = [name for name, _, models in failed if models is not None]
    values = {UNAVAILABLE_HEADER: ", ".join(missing), STALE_HEADER: ", ".join(old)}
    return {name: value for name, value in values.items() if value}


def _escape_name(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()
