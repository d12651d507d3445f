"""Lets only those use an object at a provider who have created it, and only those go on with an upload who began it."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.core.ir import Failure
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.feature import Feature, Process
from toolwire.gateway.exchange.gateway_request import (
    AttemptFailed,
    GatewayRequest,
    PassthroughMatch,
    PreparedRequest,
    Runtime,
)
from toolwire.gateway.exchange.stages import EarlierRequest, ForwardedAnswer, ForwardedRequest, Stage
from toolwire.gateway.features.provider_objects.provider_objects import ProviderObjects
from toolwire.gateway.features.provider_objects.upload_sessions import UploadSessions
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.router import Target


class ObjectFeature(Feature):
    def __init__(self, process: Process) -> None:
        self._repository = process.store.repository
        self.uploads: UploadSessions
        """Of the configuration that is in force."""

    def configure(self, runtime: Runtime) -> Stage:
        """Without keys and without several accounts nobody's objects are kept apart. Uploads have a URL anyway."""
        self.uploads = UploadSessions(runtime, self._repository)
        is_needed = runtime.config.server.needs_keys or runtime.accounts is not None
        objects = ProviderObjects(self._repository, runtime)
        return ObjectStage(self.uploads, objects) if is_needed else UploadStage(self.uploads)


class UploadStage(Stage):
    def __init__(self, uploads: UploadSessions) -> None:
        self._uploads = uploads

    async def find_earlier(
        self, request: GatewayRequest, match: PassthroughMatch, query: str
    ) -> EarlierRequest | AttemptFailed | None:
        found = await self._uploads.find_session(request, match, query)
        return error_replies.gateway_error(request, found) if isinstance(found, Failure) else found

    async def after_forwarded(
        self, gateway_request: GatewayRequest, request: ForwardedRequest, answer: ForwardedAnswer
    ) -> ForwardedAnswer | AttemptFailed:
        headers = await self._uploads.adapt_headers(gateway_request, request, answer)
        if isinstance(headers, Failure):
            return error_replies.gateway_error(gateway_request, headers, answer.upstream)
        return replace(answer, headers=headers)


class ObjectStage(UploadStage):
    def __init__(self, uploads: UploadSessions, objects: ProviderObjects) -> None:
        super().__init__(uploads)
        self._objects = objects

    async def admit(self, request: GatewayRequest, targets: tuple[Target, ...]) -> GatewayRequest | AttemptFailed:
        checked = await self._objects.check_references(request, targets)
        return error_replies.gateway_error(request, checked) if isinstance(checked, Failure) else checked

    async def extend_count(
        self, request: GatewayRequest, targets: tuple[Target, ...]
    ) -> GatewayRequest | AttemptFailed:
        return await self.admit(request, targets)

    async def check_written(self, request: GatewayRequest, prepared: PreparedRequest) -> AttemptFailed | None:
        if prepared.is_passthrough:
            return None  # `admit` has seen it
        refused = await self._objects.refuse_translated(request, prepared.upstream, prepared.body)
        return error_replies.gateway_error(request, refused) if refused is not None else None

    async def find_account(self, gateway_request: GatewayRequest, request: ForwardedRequest) -> Provider | None:
        return await self._objects.choose_account(gateway_request, request)

    async def admit_forwarded(self, gateway_request: GatewayRequest, request: ForwardedRequest) -> AttemptFailed | None:
        objects = self._objects
        refused = await objects.refuse_endpoint(gateway_request, request) or await objects.refuse_body(
            gateway_request, request
        )
        return error_replies.gateway_error(gateway_request, refused) if refused is not None else None

    def reads_forwarded(self, request: ForwardedRequest) -> bool:
        endpoint = request.match.endpoint
        names_objects = endpoint.objects == "create" or endpoint.names_objects
        return names_objects and self._objects.notes(request.target.provider)

    async def after_forwarded(
        self, gateway_request: GatewayRequest, request: ForwardedRequest, answer: ForwardedAnswer
    ) -> ForwardedAnswer | AttemptFailed:
        adapted = await super().after_forwarded(gateway_request, request, answer)
        if isinstance(adapted, AttemptFailed) or answer.status >= 300:
            return adapted
        provider = request.target.provider
        if answer.data is not None and self.reads_forwarded(request):
            refused = await self._objects.note_created(gateway_request, request.match, provider, answer.data)
            return (
                error_replies.gateway_error(gateway_request, refused, answer.upstream)
                if refused is not None
                else adapted
            )
        if gateway_request.record.client.method == "DELETE" and self._objects.notes(provider):
            await self._objects.note_deleted(gateway_request, request.match, provider)
        return adapted
