"""Tokens of Google Cloud: Application Default Credentials. Files of service accounts, users and federated identities
are read by google-auth, in a thread; the metadata server is asked by hand.

google-auth 2.62.2 (`_default.py`). docs/decisions/0030-cloud-credentials.md says why."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from msgspec import Struct
from msgspec.structs import replace

from toolwire.gateway.features.cloud_credentials.aws import describe_error
from toolwire.gateway.features.cloud_credentials.command import read_end
from toolwire.gateway.features.cloud_credentials.leases import BearerToken, CredentialProblem, Lease, make_lease
from toolwire.gateway.features.cloud_credentials.token_requests import TokenRequests
from toolwire.gateway.http.large_work import run_in_daemon
from toolwire.gateway.http.messages import RequestSender

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
REQUEST_SECONDS = 10.0
MAX_ANSWER = 1024 * 1024
HINT = "set GOOGLE_APPLICATION_CREDENTIALS or `credentials_file`, or run `gcloud auth application-default login`"
METADATA_HOST = "metadata.google.internal"
METADATA_HEADERS = {"metadata-flavor": "Google"}
"""Of a request, and of the answer: what answers without it is no metadata server."""
METADATA_PATH = f"/computeMetadata/v1/instance/service-accounts/default/token?scopes={quote(SCOPE, safe='')}"
MISSING = ("google-auth is not installed", "install `toolwire[google]`")


class GoogleSource:
    """The tokens of one file of credentials, or of what Application Default Credentials find."""

    def __init__(
        self, client: RequestSender, credentials_file: str, environ: Mapping[str, str], now: Callable[[], float]
    ) -> None:
        self._client, self._file, self._environ, self._now = client, credentials_file, environ, now
        self.source = f"Google Cloud ({credentials_file})" if credentials_file else "Google Cloud"

    async def fetch_token(self) -> Lease[BearerToken] | CredentialProblem:
        file = self._file or find_default_file(self._environ)
        if not file:
            return await self._ask_metadata()
        return await run_in_daemon("toolwire-credentials", lambda: self._load(file))

    async def _ask_metadata(self) -> Lease[BearerToken] | CredentialProblem:
        """Never through a proxy: it is an address of this machine."""
        requests = TokenRequests(self._client, self.source, hint=HINT)
        url = f"http://{self._environ.get('GCE_METADATA_HOST', '') or METADATA_HOST}{METADATA_PATH}"
        answer = await requests.get(url, METADATA_HEADERS, METADATA_HEADERS)
        if isinstance(answer, CredentialProblem):
            return replace(answer, problem=f"there is no file of credentials, and {answer.problem}")
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            return requests.fail("the metadata server sent no access token")
        now = self._now()
        return make_lease(BearerToken(token), read_end(answer, now), now, "metadata server")

    def _load(self, file: str) -> Lease[BearerToken] | CredentialProblem:
        """The file is read again each time."""
        try:
            errors = cast(Any, import_module("google.auth.exceptions"))
            transport = Transport(errors.TransportError)
            info = json.loads(Path(file).read_text("utf-8"))
            kind = FILE_KINDS.get(find_kind(info))
            if kind is None:
                problem = f"{file} is not a file of credentials that google-auth knows"
                return CredentialProblem(self.source, problem, HINT)
            read = getattr(cast(Any, import_module(kind.module)), kind.class_name)
            credentials = getattr(read, kind.method)(info, **({"scopes": [SCOPE]} if kind.takes_scopes else {}))
            credentials.refresh(transport)
        except ModuleNotFoundError:
            return CredentialProblem(self.source, *MISSING)
        except OSError as error:
            return CredentialProblem(self.source, f"{file} cannot be read: {error.strerror}", HINT)
        except errors.GoogleAuthError as error:
            return CredentialProblem(self.source, f"{transport.place}{describe_error(error)}", HINT)
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # google-auth reads what it gets unchecked
            what = f"{transport.place or f'{file}: '}what it says cannot be read: {describe_error(error)}"
            return CredentialProblem(self.source, what, HINT)
        token, ends, project = credentials.token, credentials.expiry, credentials.quota_project_id
        if not isinstance(token, str) or not token:
            return CredentialProblem(self.source, "the answer has no access token", HINT)
        # google-auth counts in UTC without saying so.
        ends_at = ends.replace(tzinfo=UTC).timestamp() if isinstance(ends, datetime) else None
        headers = (("x-goog-user-project", project),) if isinstance(project, str) and project else ()
        return make_lease(BearerToken(token, headers), ends_at, self._now(), find_kind(info))


class FileKind(NamedTuple):
    """Where google-auth reads a kind of file. Its functions that find the kind themselves are deprecated, and ask for a
    project that nobody needs here."""

    module: str
    class_name: str
    method: str
    takes_scopes: bool = True


FILE_KINDS: Mapping[str, FileKind] = {
    "service_account": FileKind("google.oauth2.service_account", "Credentials", "from_service_account_info"),
    "authorized_user": FileKind("google.oauth2.credentials", "Credentials", "from_authorized_user_info"),
    "external_account": FileKind("google.auth.identity_pool", "Credentials", "from_info"),
    "external_account (AWS)": FileKind("google.auth.aws", "Credentials", "from_info"),
    "external_account (executable)": FileKind("google.auth.pluggable", "Credentials", "from_info"),
    "external_account_authorized_user": FileKind(  # of a workforce, by `gcloud auth application-default login`
        "google.auth.external_account_authorized_user", "Credentials", "from_info", takes_scopes=False
    ),
    "impersonated_service_account": FileKind(
        "google.auth.impersonated_credentials", "Credentials", "from_impersonated_service_account_info"
    ),
}
"""By `type`, and for federated identities by the source of their token."""
AWS_SUBJECT = "urn:ietf:params:aws:token-type:aws4_request"


def find_kind(info: object) -> str:
    """The key of `FILE_KINDS` for a file."""
    if not isinstance(info, dict):
        return ""
    source = info.get("credential_source")
    if info.get("type") != "external_account":
        return str(info.get("type"))
    if info.get("subject_token_type") == AWS_SUBJECT:
        return "external_account (AWS)"
    is_executable = isinstance(source, dict) and "executable" in source
    return "external_account (executable)" if is_executable else "external_account"


def find_default_file(environ: Mapping[str, str]) -> str:
    """The file that Application Default Credentials name, or that `gcloud` has written; "" if there is none."""
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS", "").strip()
    if named:
        return named
    folder = environ.get("CLOUDSDK_CONFIG") or f"{environ.get('APPDATA') or Path.home() / '.config'}/gcloud"
    file = Path(folder) / "application_default_credentials.json"
    return str(file) if file.is_file() else ""


class TransportAnswer(Struct, frozen=True):
    """What google-auth reads of an answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class _NoRedirects(HTTPRedirectHandler):
    """No secret follows a redirect."""

    def redirect_request(self, *_: object) -> None:
        return None


class Transport:
    """Sends the requests of google-auth, so that it needs no HTTP library. Called in a thread."""

    def __init__(self, error: Callable[[str], Exception]) -> None:
        self._error = error
        self._openers: dict[str, OpenerDirector] = {}
        self.place = ""
        """What was asked last, for errors."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> TransportAnswer:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            self._fail(f"{url!r} is not a URL")
        self.place = f"{parts.netloc}: "
        data = body.encode() if isinstance(body, str) else body
        request = Request(url, data, dict(headers or {}), method=method)
        seconds = min(timeout or REQUEST_SECONDS, REQUEST_SECONDS)
        try:
            with self._find_opener(parts.scheme).open(request, timeout=seconds) as answer:
                return TransportAnswer(answer.status, dict(answer.headers), answer.read(MAX_ANSWER))
        except HTTPError as answer:
            if 300 <= answer.code < 400:
                self._fail(f"it answered with a redirect ({answer.code}), which no secret follows")
            with answer:
                return TransportAnswer(answer.code, dict(answer.headers), answer.read(MAX_ANSWER))
        except (OSError, HTTPException) as error:
            self._fail(f"it cannot be asked: {describe_error(error)}")

    def _find_opener(self, scheme: str) -> OpenerDirector:
        """The metadata server, which speaks plain HTTP, is never asked through a proxy."""
        if scheme not in self._openers:
            own = (ProxyHandler({}),) if scheme == "http" else ()
            self._openers[scheme] = build_opener(_NoRedirects, *own)
        return self._openers[scheme]

    def _fail(self, message: str) -> NoReturn:
        raise self._error(message)
