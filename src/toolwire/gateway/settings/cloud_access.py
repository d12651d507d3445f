"""How a provider of a cloud is reached: its credentials, and its address by region, project or resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

AuthMethod = Literal["", "aws", "aws-key", "google", "entra", "managed-identity", "command"]

AWS_METHODS = frozenset({"aws", "aws-key"})
"""Those that find credentials as AWS's tools do."""
ENTRA_METHODS = frozenset({"entra", "managed-identity"})
"""Those of Microsoft Entra ID."""


class CloudAccess(Struct, frozen=True, kw_only=True):
    """The credentials of a provider that end; hashable, because those with the same ones share them."""

    method: AuthMethod = ""
    """"" for none: the provider has a key, or needs none."""
    region: str = ""
    """That signatures are for."""
    service: str = ""
    """The same: `bedrock`, `bedrock-mantle`."""
    audience: str = ""
    """Whom tokens of Microsoft Entra ID are for."""
    profile: str = ""
    role_arn: str = ""
    credentials_file: str = ""
    command: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Where the credentials are from, for people."""
        if self.command:
            return f"credentials of `{self.command[0]}`"
        name = _LABELS[self.method]
        detail = (self.profile and f"profile {self.profile}") or self.credentials_file
        role = f"role {self.role_arn}" if self.role_arn else ""
        details = ", ".join(filter(None, (detail, role)))
        return f"{name} ({details})" if details else name


_LABELS = {
    "": "",
    "aws": "credentials of AWS",
    "aws-key": "keys of Bedrock, made from credentials of AWS",
    "google": "credentials of Google Cloud",
    "entra": "credentials of Microsoft Entra ID",
    "managed-identity": "the managed identity of this machine in Azure",
    "command": "",
}


class KnownCloud(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `providers.toml` says of a cloud; its comments explain the keys."""

    platform: str = ""
    auth: AuthMethod = ""
    region: str = ""
    region_env: tuple[str, ...] = ()
    project_env: tuple[str, ...] = ()
    base_path: dict[str, str] = {}
    version_path: dict[str, str] = {}
    version_platform: str = ""

    def list_variables(self, what: str) -> tuple[str, ...]:
        """The environment variables with the region or the project."""
        return {"region": self.region_env, "project": self.project_env}.get(what, ())

    def complete_paths(self, urls: Mapping[str, str], api_version: str) -> dict[str, str]:
        """The base URLs with the cloud's paths, where they have none, and with the version that is asked for."""
        versioned = self.version_path if api_version else {}
        paths = {**self.base_path, **versioned}
        complete = {key: url if _has_path(url) else url.rstrip("/") + paths.get(key, "") for key, url in urls.items()}
        query = f"?api-version={api_version}"
        return {key: url + query if key in versioned and "?" not in url else url for key, url in complete.items()}


def _has_path(url: str) -> bool:
    try:
        return bool(urlsplit(url).path.strip("/"))
    except ValueError:
        return True  # it has its own error


class CloudPlace(Struct, frozen=True):
    """Where in a cloud a provider is."""

    region: str = ""
    project: str = ""
    resource: str = ""

    @property
    def _values(self) -> dict[str, tuple[str, str]]:
        """By what stands for it in a template: the setting that it needs, and the text."""
        return {
            "{region}": ("region", self.region),
            "{aws_domain}": ("region", self.region and _find_aws_domain(self.region)),
            "{vertex_host}": ("region", self.region and _find_vertex_host(self.region)),
            "{project}": ("project", self.project),
            "{resource}": ("resource", self.resource),
        }

    def list_needed(self, templates: Iterable[str]) -> dict[str, str]:
        """What these addresses need: `region`, `project` or `resource`, and its value."""
        text = " ".join(templates)
        return {name: value for mark, (name, value) in self._values.items() if mark in text}

    def find_missing(self, templates: Iterable[str]) -> str:
        """What these addresses need and nobody has said."""
        return next((name for name, value in self.list_needed(templates).items() if not value), "")

    def fill(self, template: str) -> str:
        for mark, (_, value) in self._values.items():
            template = template.replace(mark, value)
        return template


def _find_aws_domain(region: str) -> str:
    """botocore 1.44 (`partitions.json`), November 2026."""
    if region.startswith("cn-"):
        return "amazonaws.com.cn"
    return "amazonaws.eu" if region.startswith("eusc-") else "amazonaws.com"


def _find_vertex_host(region: str) -> str:
    """google-genai 3.3 (`_api_client.py`), November 2026: one host for `global`, and one for all regions of a
    continent."""
    if region == "global":
        return "aiplatform.googleapis.com"
    return (
        f"aiplatform.{region}.rep.googleapis.com" if region in ("us", "eu") else f"{region}-aiplatform.googleapis.com"
    )


def read_aws_region(profile: str, environ: Mapping[str, str]) -> str:
    """The region of a profile of AWS, which its tools take where no variable names one; "" if there is none."""
    import configparser  # noqa: PLC0415 — only where a cloud is configured

    name = profile or environ.get("AWS_PROFILE", "").strip() or "default"
    home = environ.get("HOME", "") or environ.get("USERPROFILE", "")
    file = environ.get("AWS_CONFIG_FILE", "") or (home and f"{home}/.aws/config")
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read(file, "utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return ""  # whoever looks for credentials says it
    section = name if name == "default" else f"profile {name}"
    return parser.get(section, "region", fallback="").strip()


AZURE_AUDIENCE, GOVERNMENT_AUDIENCE = "https://cognitiveservices.azure.com", "https://cognitiveservices.azure.us"
"""All inference endpoints of Azure take the first (Azure/PyRIT#1453), those of Azure Government the other (cline/cline
#8718, Azure/azure-sdk-for-net#48524). November 2026."""


def find_azure_audience(urls: Mapping[str, str]) -> str:
    hosts = [urlsplit(url).hostname or "" for url in urls.values()]
    return GOVERNMENT_AUDIENCE if any(host.endswith(".azure.us") for host in hosts) else AZURE_AUDIENCE


def sign_for_host(url: str) -> str:
    """The service of AWS that a signature for this address names: the SDKs of Anthropic 2.9 and boto3 1.44."""
    host = urlsplit(url).hostname or ""
    name = host.partition(".")[0]
    return name if name in ("bedrock-mantle", "aws-external-anthropic") else "bedrock"
