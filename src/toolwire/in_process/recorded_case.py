"""The file of a recorded exchange: a case of the conformance suite, and what the configuration said of its model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from toolwire.core.ids import hex_digest
from toolwire.core.json_values import Json, Malformed
from toolwire.gateway.settings.config import CallSettings, Config, ModelRule, Provider, Secret, TranslateSettings
from toolwire.gateway.settings.providers import embedded_providers
from toolwire.gateway.settings.router import Router
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.policy.rules import Match, Rule
from toolwire.protocols import CODECS

HOST = ".recorded.invalid"
NAME_LENGTH = 16
PROVIDER_SETTINGS: Final = ("kind", "quirks", "may_have_quirks", "platform", "default_tool_format")
"""What decides how a provider is asked and understood; not where it is, and with which key."""


class RecordedSettings(Struct, omit_defaults=True, frozen=True):
    """Without these, a replayed answer would be read in another way, or the question be another one."""

    provider: str = "recorded"
    model: str = ""
    """Its name at the provider."""
    options: dict[str, Any] = {}
    """Of the provider: `PROVIDER_SETTINGS`."""
    calls: dict[str, Any] = {}
    """`CallSettings`, with those of the model before those of the provider."""
    policy: list[dict[str, Any]] = []
    translate: dict[str, Any] = {}


class Request(Struct, frozen=True):
    body: dict[str, Any] = msgspec.field(name="$is")


class RecordedExchange(Struct, frozen=True):
    expect: Request
    status: Annotated[int, Meta(ge=100, le=599)]
    body: Any = UNSET
    sse: str | UnsetType = UNSET


class RecordedProvider(Struct, frozen=True):
    protocol: str
    exchanges: Annotated[list[RecordedExchange], Meta(min_length=1)]


class RecordedClient(Struct, frozen=True):
    request: dict[str, Any]
    model: str = ""


class RecordedCase(Struct, frozen=True):
    client: RecordedClient
    provider: RecordedProvider
    settings: RecordedSettings = RecordedSettings()

    @property
    def model(self) -> str:
        """As the client asked for it."""
        return self.client.model or str(self.client.request.get("model", ""))


def read_case(data: bytes) -> RecordedCase:
    """Raises Malformed."""
    try:
        case = msgspec.json.decode(data, type=RecordedCase)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(None, str(error)) from None
    if case.provider.protocol not in CODECS:
        raise Malformed(None, f"there is no protocol {case.provider.protocol!r}")
    if any(exchange.body is UNSET and exchange.sse is UNSET for exchange in case.provider.exchanges):
        raise Malformed(None, "an exchange has neither `body` nor `sse`")
    return case


# --- settings ---


class SettingsWriter:
    """Writes what a configuration says of a model."""

    def __init__(self, config: Config) -> None:
        self._config, self._router = config, Router(config)

    def write(self, record: ExchangeRecord) -> dict[str, Json]:
        asked = record.upstream
        targets = (
            one for one in self._router.expand_targets(record.asked.model) if one.provider.name == asked.provider
        )
        target = next(targets, None)
        if target is None:
            return {}
        options = _list_changes(target.provider, Provider(name="", protocols=()))
        settings = RecordedSettings(
            target.provider.name,
            asked.model,
            {name: options[name] for name in PROVIDER_SETTINGS if name in options},
            _list_changes(target.merged_calls, CallSettings()),
            [_list_changes(rule, Rule()) for rule in self._config.policy],
            _list_changes(self._config.translate, TranslateSettings()),
        )
        written: dict[str, Json] = msgspec.to_builtins(settings, enc_hook=dict)
        return written


def _list_changes(given: Struct, usual: Struct) -> dict[str, Any]:
    """The fields that are not as usual."""
    names = given.__struct_fields__
    return {name: value for name in names if (value := getattr(given, name)) != getattr(usual, name)}


class ReplayedModel(Struct, frozen=True):
    """A model that was asked for in a recorded exchange."""

    name: str
    protocol: str
    settings: RecordedSettings

    @property
    def host(self) -> str:
        return write_host(self.name, self.protocol)


def write_host(model: str, protocol: str) -> str:
    """The address of a recorded model. Nothing is sent there."""
    return f"{hex_digest(model, NAME_LENGTH)}.{protocol}{HOST}"


def read_protocol(host: str) -> str:
    return host.removesuffix(HOST).partition(".")[2]


def build_config(models: Iterable[ReplayedModel]) -> Config:
    """A provider for each model that was asked for, with its protocol. Raises Malformed."""
    providers: dict[str, Provider] = {}
    rules: list[ModelRule] = []
    policy: list[Rule] = []
    translate = TranslateSettings()
    for model in models:
        settings, key = model.settings, f"recorded-{hex_digest(model.name, NAME_LENGTH)}"
        try:
            options: dict[str, Any] = {
                name: settings.options[name] for name in PROVIDER_SETTINGS if name in settings.options
            }
            about: dict[str, Any] = {"name": settings.provider, "protocols": (model.protocol,), **options}
            provider = msgspec.convert(about, Provider)
            calls: dict[str, Any] = {"name": model.name, "provider": key, "model": settings.model, **settings.calls}
            rules.append(msgspec.convert(calls, ModelRule))
            own = msgspec.convert(settings.policy, tuple[Rule, ...])
            translate = msgspec.convert(settings.translate, TranslateSettings)
        except msgspec.ValidationError as error:
            raise Malformed(None, str(error)) from None
        urls = {model.protocol: f"http://{model.host}"}
        providers[key] = replace(provider, base_urls=urls, api_key=Secret("recorded"))
        only = Match(model=(model.name,))  # other models may have been recorded with other rules
        policy += [replace(rule, within=(*rule.within, only)) for rule in own]
    providers |= embedded_providers(())
    return Config(providers=providers, models=tuple(rules), policy=tuple(policy), translate=translate)
