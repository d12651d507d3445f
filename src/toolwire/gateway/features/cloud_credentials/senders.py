"""Makes the senders of providers that have credentials of a cloud. Imported only if one is configured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from toolwire.gateway.features.cloud_credentials.authorizers import Authorizer, BearerAuthorizer, SigningAuthorizer
from toolwire.gateway.features.cloud_credentials.aws import AwsSource
from toolwire.gateway.features.cloud_credentials.command import CommandSource
from toolwire.gateway.features.cloud_credentials.entra import EntraSource
from toolwire.gateway.features.cloud_credentials.google import GoogleSource
from toolwire.gateway.features.cloud_credentials.leases import CredentialProblem, LeaseKeeper
from toolwire.gateway.features.cloud_credentials.sender import AuthorizedSender
from toolwire.gateway.features.cloud_credentials.sigv4 import Scope
from toolwire.gateway.http.messages import RequestSender
from toolwire.gateway.settings.cloud_access import AWS_METHODS, CloudAccess
from toolwire.gateway.settings.config import Config, Provider


class CloudSenders:
    """The credentials of a process: two providers with the same access, or one before and after a change of the
    configuration, share them."""

    def __init__(
        self,
        client: RequestSender,
        environ: Mapping[str, str],
        now: Callable[[], float],
        report_error: Callable[[BaseException], None],
        log_event: Callable[..., None] | None = None,
    ) -> None:
        self._client, self._environ, self._now, self._report_error = client, environ, now, report_error
        self._log_event = log_event
        self._authorizers: dict[CloudAccess, Authorizer[Any]] = {}

    def make_senders(self, config: Config) -> Mapping[Provider, RequestSender]:
        """Those of the providers with credentials of a cloud."""
        return {
            provider: AuthorizedSender(self._client, self.find_authorizer(provider.access), provider.secrets)
            for provider in config.providers.values()
            if provider.access.method
        }

    def find_authorizer(self, access: CloudAccess) -> Authorizer[Any]:
        if access not in self._authorizers:
            self._authorizers[access] = self._make_authorizer(access)
        return self._authorizers[access]

    def _make_authorizer(self, access: CloudAccess) -> Authorizer[Any]:
        environ, now, scope = self._environ, self._now, Scope(access.region, access.service)
        keep = partial(LeaseKeeper, now=now, report_error=self._report_error, on_change=self._report_change)
        if access.command:
            command = CommandSource(access.command, now)
            if access.method == "aws":
                return SigningAuthorizer(keep(command.source, command.fetch_keys), scope, now)
            return BearerAuthorizer(keep(command.source, command.fetch_token))
        if access.method in AWS_METHODS:
            aws = AwsSource(access.profile, access.role_arn, access.region, environ, now)
            if access.method == "aws-key":
                return BearerAuthorizer(keep(aws.source, aws.make_key))
            return SigningAuthorizer(keep(aws.source, aws.fetch_keys), scope, now)
        if access.method == "google":
            google = GoogleSource(self._client, access.credentials_file, environ, now)
            return BearerAuthorizer(keep(google.source, google.fetch_token))
        entra = EntraSource(self._client, environ, now, access.method == "managed-identity", access.audience)
        return BearerAuthorizer(keep(entra.source, entra.fetch_token))

    def _report_change(self, source: str, problem: CredentialProblem | None) -> None:
        """Also where nobody has noticed it yet: the old credential serves to its end."""
        if self._log_event is None:
            return
        if problem is None:
            self._log_event("credentials_available", source=source)
        else:
            self._log_event("credentials_unavailable", level="warn", source=source, message=str(problem))

    async def close(self) -> None:
        for authorizer in self._authorizers.values():
            await authorizer.close()
