"""Stores the signatures that a client's protocol cannot carry."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.core.codec import Codec
from toolwire.gateway.exchange.gateway_request import GatewayRequest, Runtime
from toolwire.gateway.exchange.stages import ExtendedRequest, RequestRunner, Stage
from toolwire.gateway.features.signatures.signatures import ExchangeSignatures, SignatureRepository
from toolwire.gateway.settings.router import Target, codec_with_quirks
from toolwire.protocols import CODECS


class SignatureStage(Stage):
    def __init__(self, runtime: Runtime, signatures: SignatureRepository) -> None:
        self._signatures = signatures
        self._protocols = frozenset(
            codec.name for codec in CODECS.values() if runtime.may_hide_calls or not codec.constraints.seal_slots
        )
        """Protocols whose clients cannot carry all signatures and hidden calls themselves."""
        self._providers = frozenset(
            provider.name
            for provider in runtime.config.providers.values()
            for protocol in provider.protocols
            if codec_with_quirks(protocol, provider.quirks).constraints.needs_reasoning_returned
        )
        """Providers that want plain thinking back (DeepSeek), which clients of every protocol may leave out."""

    def serves(self, codec: Codec) -> bool:
        return codec.name in self._protocols or bool(self._providers)

    async def extend(
        self, request: GatewayRequest, targets: tuple[Target, ...], runner: RequestRunner
    ) -> ExtendedRequest:
        if request.client_codec.name not in self._protocols and not any(
            target.provider.name in self._providers for target in targets
        ):
            return request
        return replace(request, signature_store=ExchangeSignatures(self._signatures, request.caller.key))
