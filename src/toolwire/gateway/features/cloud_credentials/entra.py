"""Tokens of Microsoft Entra ID for Azure: four flows of one request each, by hand.

learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow and …/managed-identities-azure-resources/
how-to-use-vm-token, and azure-identity 1.27.0, whose requests were captured. Looked up in November 2026."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlencode

from toolwire.core.json_values import Object
from toolwire.gateway.features.cloud_credentials.command import read_end
from toolwire.gateway.features.cloud_credentials.leases import BearerToken, CredentialProblem, Lease, make_lease
from toolwire.gateway.features.cloud_credentials.token_requests import TokenRequests
from toolwire.gateway.http.messages import RequestSender
from toolwire.gateway.settings.address import is_exposed
from toolwire.gateway.settings.cloud_access import AZURE_AUDIENCE
from toolwire.gateway.settings.proxies import proxy_from_environment

AUTHORITY = "https://login.microsoftonline.com"
METADATA_HOST = "http://169.254.169.254"
ASSERTION, ASSERTION_TYPE = "client_assertion", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TENANT = re.compile(r"[A-Za-z0-9.-]+")
MANAGED_HINT = "has this machine an identity in Azure? AZURE_CLIENT_ID names one of several"
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
        audience: str = AZURE_AUDIENCE,
    ) -> None:
        self._client, self._environ, self._now = client, environ, now
        self._is_managed, self._audience = uses_managed_identity, audience
        self.source = f"Microsoft Entra ID ({self._name_flow()})"

    def _name_flow(self) -> str:
        if self._is_managed:
            return "managed identity"
        return "workload identity" if self._get(TOKEN_FILE) and not self._get(SECRET) else "client secret"

    def _name_variables(self) -> str:
        return f"check {TENANT}, {CLIENT} and {SECRET if self._get(SECRET) else TOKEN_FILE}"

    def _get(self, name: str) -> str:
        return self._environ.get(name, "").strip()

    async def fetch_token(self) -> Lease[BearerToken] | CredentialProblem:
        if not self._is_managed:
            return await self._sign_in()
        endpoint, header = self._get("IDENTITY_ENDPOINT"), self._get("IDENTITY_HEADER")
        query = {"resource": self._audience} | ({"client_id": self._get(CLIENT)} if self._get(CLIENT) else {})
        if endpoint and header:
            url = f"{endpoint}?{urlencode({'api-version': '2019-08-01', **query})}"
            return await self._ask_until_ready(url, {"x-identity-header": header})
        host = self._get("AZURE_POD_IDENTITY_AUTHORITY_HOST").rstrip("/") or METADATA_HOST
        url = f"{host}/metadata/identity/oauth2/token?{urlencode({'api-version': '2018-02-01', **query})}"
        return await self._ask_until_ready(url, {"metadata": "true"})

    async def _sign_in(self) -> Lease[BearerToken] | CredentialProblem:
        """With a secret, or with the token that a cluster has put into a file, which is read each time."""
        requests = TokenRequests(self._client, self.source, hint=self._name_variables())
        missing = [name for name in (TENANT, CLIENT) if not self._get(name)]
        missing += [f"{SECRET} or {TOKEN_FILE}"] if not self._get(SECRET) and not self._get(TOKEN_FILE) else []
        if missing:
            hint = 'or use `auth = "managed-identity"`, or `auth_command = ["az", …]`'
            return requests.fail(f"set {', '.join(missing)}", hint)
        if not _TENANT.fullmatch(self._get(TENANT)):
            return requests.fail(f"{TENANT} is neither the id nor the domain of a tenant")
        form = {
            "grant_type": "client_credentials",
            "client_id": self._get(CLIENT),
            "scope": f"{self._audience}/.default",
        }
        if self._get(SECRET):
            form["client_secret"] = self._get(SECRET)
        else:
            try:
                token = Path(self._get(TOKEN_FILE)).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not text"
                return requests.fail(f"{TOKEN_FILE} cannot be read: {reason}")
            form |= {"client_assertion_type": ASSERTION_TYPE, ASSERTION: token}
        authority = self._get("AZURE_AUTHORITY_HOST").rstrip("/") or AUTHORITY
        authority = authority if "://" in authority else f"https://{authority}"
        if is_exposed(authority):
            return requests.fail("AZURE_AUTHORITY_HOST is not an https:// address")
        proxy, sent = proxy_from_environment(authority, self._environ)[0], (self._get(SECRET), form.get(ASSERTION, ""))
        requests = TokenRequests(self._client, self.source, proxy, sent, self._name_variables())
        url = f"{authority}/{self._get(TENANT)}/oauth2/v2.0/token"
        return self._read_token(requests, await requests.post_form(url, form))

    async def _ask_until_ready(self, url: str, headers: Mapping[str, str]) -> Lease[BearerToken] | CredentialProblem:
        """Never through a proxy: it is an address of this machine."""
        secrets = (self._get("IDENTITY_HEADER"),)
        requests = TokenRequests(self._client, self.source, secrets=secrets, hint=MANAGED_HINT)
        return self._read_token(requests, await requests.get(url, headers))

    def _read_token(
        self, requests: TokenRequests, answer: Object | CredentialProblem
    ) -> Lease[BearerToken] | CredentialProblem:
        if isinstance(answer, CredentialProblem):
            return answer
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            return requests.fail("the answer has no access_token")
        now = self._now()
        return make_lease(BearerToken(token), read_end(answer, now), now, self._name_flow())
