"""Tokens of Microsoft Entra ID for Azure: four flows of one request each, by hand.

learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow and …/managed-identities-azure-resources/
how-to-use-vm-token, and azure-identity 1.27.0, whose requests were captured. Looked up in November 2026."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import urlencode

from toolwire.core.json_values import Object
from toolwire.gateway.features.cloud_credentials.command import read_end
from toolwire.gateway.features.cloud_credentials.leases import BearerToken, CredentialProblem, Lease, make_lease
from toolwire.gateway.features.cloud_credentials.token_requests import TokenRequests
from toolwire.gateway.http.messages import RequestSender
from toolwire.gateway.settings.address import is_exposed
from toolwire.gateway.settings.proxies import proxy_from_environment

RESOURCE = "https://cognitiveservices.azure.com"
SCOPE = f"{RESOURCE}/.default"
"""All inference endpoints of Azure take it (Azure/PyRIT#1453)."""
AUTHORITY = "https://login.microsoftonline.com"
METADATA_HOST = "http://169.254.169.254"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
TRIES, FIRST_PAUSE = 4, 0.5
"""The metadata server says 404, 410, 429 or 5xx while it is not ready."""
DEFAULT_SECONDS = 300.0
"""Of a token whose end nobody says."""
TENANT, CLIENT, SECRET, TOKEN_FILE = (
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
)


class EntraSource:
    """The tokens of one identity."""

    def __init__(
        self,
        client: RequestSender,
        environ: Mapping[str, str],
        now: Callable[[], float],
        uses_managed_identity: bool,
    ) -> None:
        self._client, self._environ, self._now = client, environ, now
        self._is_managed = uses_managed_identity
        self.source = f"Microsoft Entra ID ({self._name_flow()})"

    def _name_flow(self) -> str:
        if self._is_managed:
            return "managed identity"
        return "workload identity" if self._get(TOKEN_FILE) and not self._get(SECRET) else "client secret"

    def _get(self, name: str) -> str:
        return self._environ.get(name, "").strip()

    async def fetch_token(self) -> Lease[BearerToken] | CredentialProblem:
        if not self._is_managed:
            return await self._sign_in()
        endpoint, header = self._get("IDENTITY_ENDPOINT"), self._get("IDENTITY_HEADER")
        query = {"resource": RESOURCE} | ({"client_id": self._get(CLIENT)} if self._get(CLIENT) else {})
        if endpoint and header:
            url = f"{endpoint}?{urlencode({'api-version': '2019-08-01', **query})}"
            return await self._ask_until_ready(url, {"x-identity-header": header})
        host = self._get("AZURE_POD_IDENTITY_AUTHORITY_HOST").rstrip("/") or METADATA_HOST
        url = f"{host}/metadata/identity/oauth2/token?{urlencode({'api-version': '2018-02-01', **query})}"
        return await self._ask_until_ready(url, {"metadata": "true"})

    async def _sign_in(self) -> Lease[BearerToken] | CredentialProblem:
        """With a secret, or with the token that a cluster has put into a file, which is read each time."""
        requests = TokenRequests(self._client, self.source)
        missing = [name for name in (TENANT, CLIENT) if not self._get(name)]
        missing += [f"{SECRET} or {TOKEN_FILE}"] if not self._get(SECRET) and not self._get(TOKEN_FILE) else []
        if missing:
            hint = 'or use `auth = "managed-identity"`, or `auth_command = ["az", …]`'
            return requests.fail(f"set {', '.join(missing)}", hint)
        form = {"grant_type": "client_credentials", "client_id": self._get(CLIENT), "scope": SCOPE}
        if self._get(SECRET):
            form["client_secret"] = self._get(SECRET)
        else:
            try:
                token = Path(self._get(TOKEN_FILE)).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not text"
                return requests.fail(f"{TOKEN_FILE} cannot be read: {reason}")
            form |= {"client_assertion_type": ASSERTION_TYPE, "client_assertion": token}
        authority = self._get("AZURE_AUTHORITY_HOST").rstrip("/") or AUTHORITY
        authority = authority if "://" in authority else f"https://{authority}"
        if is_exposed(authority):
            return requests.fail("AZURE_AUTHORITY_HOST is not an https:// address")
        requests = TokenRequests(self._client, self.source, proxy_from_environment(authority, self._environ)[0])
        url = f"{authority}/{self._get(TENANT)}/oauth2/v2.0/token"
        return self._read_token(requests, await requests.post_form(url, form))

    async def _ask_until_ready(self, url: str, headers: Mapping[str, str]) -> Lease[BearerToken] | CredentialProblem:
        """Never through a proxy: it is an address of this machine."""
        requests = TokenRequests(self._client, self.source)
        return self._read_token(requests, await retry_while_busy(lambda: requests.get(url, headers)))

    def _read_token(
        self, requests: TokenRequests, answer: Object | CredentialProblem
    ) -> Lease[BearerToken] | CredentialProblem:
        if isinstance(answer, CredentialProblem):
            return answer
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            return requests.fail("the answer has no access_token")
        ends, now = read_end(answer, self._now()), self._now()
        return make_lease(BearerToken(token), ends, now + DEFAULT_SECONDS, self._name_flow())


async def retry_while_busy(
    ask: Callable[[], Awaitable[Object | CredentialProblem]],
) -> Object | CredentialProblem:
    pause = FIRST_PAUSE
    for _ in range(TRIES - 1):
        answer = await ask()
        if not isinstance(answer, CredentialProblem) or not answer.is_transient:
            return answer
        await asyncio.sleep(pause)
        pause *= 2
    return await ask()
