"""Keys of AWS: those of the environment by hand, and the whole chain (profiles, SSO, roles, web identity, containers,
instances, processes) by botocore, in a thread. docs/decisions/0030-cloud-credentials.md says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import Any, Protocol, cast

from toolwire.gateway.features.cloud_credentials.authorizers import write_amz_date
from toolwire.gateway.features.cloud_credentials.command import read_time
from toolwire.gateway.features.cloud_credentials.leases import (
    BearerToken,
    CredentialProblem,
    Lease,
    clean_detail,
    make_lease,
)
from toolwire.gateway.features.cloud_credentials.sigv4 import AwsKeys, make_bedrock_key
from toolwire.gateway.http.large_work import run_in_daemon

REREAD_SECONDS = 900.0
"""Keys without an end are read again so often: files rotate."""
BEDROCK_KEY_SECONDS = 43200
"""A key of Bedrock lives 12 hours at most, and no longer than the session behind it."""
SESSION_NAME = "toolwire"
NO_SOURCE = (
    "there are none, neither in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), nor in a profile, nor from "
    "the machine"
)
MISSING = ("botocore is not installed", "install `toolwire[aws]`")


LOGIN_HINT = """install `botocore[crt]`, or set `auth_command` with `aws configure export-credentials`"""
MFA_HINT = """use SSO or a role of the machine, or `auth_command` with `aws configure export-credentials`"""


class AwsSource:
    """The credentials of AWS for one provider."""

    def __init__(
        self, profile: str, role_arn: str, region: str, environ: Mapping[str, str], now: Callable[[], float]
    ) -> None:
        self._profile, self._role_arn, self._region = profile, role_arn, region
        self._environ, self._now = environ, now
        named = profile or ("" if self._read_environment() else environ.get("AWS_PROFILE", "").strip())
        self._option = f" --profile {named}" if named else ""
        self.source = f"AWS (profile `{named}`)" if named else "AWS"
        if role_arn:
            self.source += f", role `{role_arn}`"

    async def fetch_keys(self) -> Lease[AwsKeys] | CredentialProblem:
        found = None if self._profile or self._role_arn else self._read_environment()
        return found if found is not None else await run_in_daemon("toolwire-credentials", self._load)

    async def make_key(self) -> Lease[BearerToken] | CredentialProblem:
        """A key of Bedrock, made from the credentials."""
        lease = await self.fetch_keys()
        if isinstance(lease, CredentialProblem):
            return lease
        now = self._now()
        key = make_bedrock_key(lease.value, self._region, write_amz_date(now), BEDROCK_KEY_SECONDS)
        # Keys that rotate in a file sign the next key, but this one stays valid.
        is_session = bool(lease.value.session_token)
        ends = min(lease.expires_at if is_session else now + BEDROCK_KEY_SECONDS, now + BEDROCK_KEY_SECONDS)
        return Lease(BearerToken(key), ends, lease.origin, lease.has_end or not is_session)

    def _read_environment(self) -> Lease[AwsKeys] | None:
        """The keys of the environment, which win over `AWS_PROFILE`; None if there are none."""
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        access, secret, token = (self._environ.get(name, "").strip() for name in names)
        if not access or not secret:
            return None
        ends = read_time(self._environ.get("AWS_CREDENTIAL_EXPIRATION"))
        return make_lease(AwsKeys(access, secret, token), ends, self._now(), "env", REREAD_SECONDS)

    def _load(self) -> Lease[AwsKeys] | CredentialProblem:
        """Everything is read again: files, tokens in files, and the answers of services."""
        try:
            boto = cast(Any, import_module("botocore.session"))
            errors = cast(Any, import_module("botocore.exceptions"))
            unreadable = cast(Any, import_module("botocore.parsers")).ResponseParserError
        except ImportError:
            return CredentialProblem(self.source, *MISSING)
        try:
            session = boto.Session(profile=self._profile or None)
            session.set_config_variable("region", self._region)
            if asking := self._find_code_prompt(session):
                what = f"the profile `{asking}` wants a code (`mfa_serial`), for which a gateway can ask nobody"
                return CredentialProblem(self.source, what, MFA_HINT)
            _avoid_proxies(session)
            credentials: _Credentials | None = session.get_credentials()
            if credentials is None:
                return CredentialProblem(self.source, NO_SOURCE, self._hint())
            if self._role_arn:
                return self._assume_role(session, credentials.method)
            frozen = credentials.get_frozen_credentials()
            ends = getattr(credentials, "_expiry_time", None)
        except errors.MissingDependencyException as error:  # `aws login` needs more than SSO
            return CredentialProblem(self.source, describe_error(error), LOGIN_HINT)
        except (errors.BotoCoreError, errors.ClientError, OSError) as error:
            return CredentialProblem(self.source, describe_error(error), self._hint())
        except (unreadable, ValueError, KeyError, TypeError) as error:  # botocore reads what it gets unchecked
            what = f"what a service, a program or a file says cannot be read ({describe_error(error)})"
            return CredentialProblem(self.source, what, self._hint())
        keys = AwsKeys(frozen.access_key, frozen.secret_key, frozen.token or "")
        ends_at = ends.timestamp() if isinstance(ends, datetime) else None
        return make_lease(keys, ends_at, self._now(), credentials.method, REREAD_SECONDS)

    def _assume_role(self, session: Any, method: str) -> Lease[AwsKeys]:
        options = cast(Any, import_module("botocore.config")).Config(
            connect_timeout=5, read_timeout=10, retries={"max_attempts": 2}
        )
        client = session.create_client("sts", region_name=self._region, config=options)
        found = client.assume_role(RoleArn=self._role_arn, RoleSessionName=SESSION_NAME)["Credentials"]
        keys = AwsKeys(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
        return Lease(keys, found["Expiration"].timestamp(), f"assume-role by {method}")

    def _find_code_prompt(self, session: Any) -> str:
        """The profile on whose way to keys botocore would ask for a code at the terminal, and wait; "" if there is
        none."""
        if not self._profile and self._read_environment() is not None:
            return ""
        profiles, name, seen = session.full_config.get("profiles", {}), session.profile or "default", set[str]()
        while name not in seen and isinstance(profile := profiles.get(name), dict):
            if "role_arn" in profile and profile.get("mfa_serial"):
                return str(name)
            seen.add(name)
            name = profile.get("source_profile")
        return ""

    def _hint(self) -> str:
        option = self._option
        return f"`aws sts get-caller-identity{option}` shows what AWS finds; `aws sso login{option}` begins a session"


def _avoid_proxies(session: Any) -> None:
    """botocore 1.44 asks for the keys of an instance through `HTTP_PROXY`, without TLS: the proxy could read them, or
    give its own. There is no setting for that."""
    open_session = cast(Any, import_module("botocore.httpsession")).URLLib3Session
    provider = session.get_component("credential_provider").get_provider("iam-role")
    with suppress(AttributeError):  # another version, which does as the other tools of AWS do
        provider._role_fetcher._session = open_session(timeout=provider._role_fetcher._timeout)


class _Credentials(Protocol):
    """The part of botocore's credentials that is used here; botocore has no types."""

    method: str

    def get_frozen_credentials(self) -> Any: ...


def describe_error(error: Exception) -> str:
    """What a library says, without what looks like a secret. The errors of google-auth have the whole answer behind
    their message, which may repeat what was sent."""
    said = error.args[0] if len(error.args) > 1 and isinstance(error.args[0], str) else str(error)
    return clean_detail(said) or type(error).__name__
