"""Settings that would give something away are refused, or warned of."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from configs import load_config
from forked_commands import run_command
from toolwire.gateway.settings.problems import ConfigError

GOOD = hashlib.sha256(b"tw-a-long-and-random-key-0123456789").hexdigest()


def _key(sha256: str, name: str = "desk") -> str:
    return f'[[server.keys]]\nname = "{name}"\nsha256 = "{sha256}"\n'


def _problems(folder: Path, text: str) -> tuple[list[str], list[str]]:
    """The locations of errors and of warnings."""
    file = folder / "toolwire.toml"
    file.write_text(text)
    try:
        found = load_config(file, {}).warnings
    except ConfigError as error:
        found = error.problems
    where = {kind: [one.location for one in found if one.severity == kind] for kind in ("error", "warning")}
    return where["error"], where["warning"]


GUESSED = ["", " ", "\n", "\r\n", "  \n", "\t", "test", "changeme", "CHANGEME\n", "your-api-key", "YOUR_API_KEY", "sk-1234", "Bearer ", "Bearer test", "secret\n", "Password", "EMPTY", "none", "null", "ollama"]  # fmt: skip


@pytest.mark.parametrize("key", GUESSED)
def test_the_hash_of_a_key_that_everybody_would_try_is_refused(tmp_path: Path, key: str) -> None:
    digest = hashlib.sha256(key.encode()).hexdigest()
    for form in (digest, digest.upper()):
        assert _problems(tmp_path, _key(form)) == (["server.keys.0.sha256"], [])
    assert _problems(tmp_path, _key(GOOD)) == ([], [])


@pytest.mark.parametrize("key", ["test", "changeme", "YOUR_API_KEY"])
def test_no_entry_is_made_for_it(key: str, tmp_path: Path) -> None:
    done = run_command(["keys", "hash"], tmp_path, os.environ, key.encode())
    assert done.code
    assert "sha256" not in done.out


@pytest.mark.parametrize(
    "sha256",
    ["", "x", GOOD[:-1], GOOD + "0", f"sha256:{GOOD}", GOOD[:-1] + "g", f" {GOOD}", GOOD[:-1] + "٣", GOOD + "\\n"],
)
def test_what_is_no_hash_is_refused(tmp_path: Path, sha256: str) -> None:
    assert _problems(tmp_path, _key(sha256))[0] == ["server.keys.0.sha256"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (_key(GOOD) + _key(GOOD.upper(), "other"), "server.keys.1.sha256"),
        (_key(GOOD) + _key("ab" * 32), "server.keys.1.name"),
        (_key(GOOD, ""), "server.keys.0.name"),
        (_key(GOOD, "  "), "server.keys.0.name"),
        (_key(GOOD, "a\\nb"), "server.keys.0.name"),
        ('[server]\nhost = "0.0.0.0"\n', "server.host"),
        ('[server]\nhost = "::"\n', "server.host"),
        ('[server]\nhost = ""\n', "server.host"),
        ('[server]\nhost = "192.168.1.7"\nkeys = []\n', "server.host"),
        (
            '[providers.lab]\nprotocols = ["anthropic"]\nbase_url = "https://x.example"\n'
            f'api_key = "tw-a-long-and-random-key-0123456789"\n{_key(GOOD)}',
            "server.keys.0.sha256",
        ),
    ],
)
def test_what_lets_others_in_is_refused(tmp_path: Path, text: str, error: str) -> None:
    assert _problems(tmp_path, text)[0] == [error]


def test_names_for_others_without_keys_are_warned_of(tmp_path: Path) -> None:
    hosts = '[server]\nallowed_hosts = ["gateway.example"]\n'
    assert _problems(tmp_path, hosts) == ([], ["server.allowed_hosts"])
    assert _problems(tmp_path, hosts + _key(GOOD)) == ([], [])


@pytest.mark.parametrize("credential", ['api_key = "sk-lab-0123456789"', "forward_auth = true"])
@pytest.mark.parametrize(
    ("url", "is_warned"),
    [
        ("http://api.example.com", True),
        ("http://8.8.8.8:8000/v1", True),
        ("http://[2606:4700::1]", True),
        ("HTTP://API.EXAMPLE.COM", True),
        ("https://api.example.com", False),
        ("http://127.0.0.1:8000", False),
        ("http://[::1]:8000", False),
        ("http://localhost:8000", False),
        ("http://10.1.2.3", False),
        ("http://192.168.0.9", False),
        ("http://100.64.0.5", False),
        ("http://[fd00::1]", False),
        ("http://vllm:8000", False),
        ("http://vllm.models.svc.cluster.local", False),
        ("http://box.lan", False),
    ],
)
def test_a_key_over_plain_http_is_warned_of(tmp_path: Path, url: str, is_warned: bool, credential: str) -> None:
    text = f'[providers.lab]\nprotocols = ["anthropic"]\nbase_url = "{url}"\n'
    errors, warnings = _problems(tmp_path, f"{text}{credential}\n")
    assert errors == []
    assert ("providers.lab.base_url" in warnings) == is_warned
    assert "providers.lab.base_url" not in _problems(tmp_path, text)[1], "there is no key to protect"


def test_a_header_for_an_mcp_server_over_plain_http_is_warned_of(tmp_path: Path) -> None:
    text = '[mcp.a]\nmodels = ["*"]\nurl = "http://mcp.example.com/"\n'
    assert _problems(tmp_path, text) == ([], [])
    assert _problems(tmp_path, f'{text}headers = {{ Authorization = "Bearer x" }}\n') == ([], ["mcp.a.url"])


SECRETS = {
    ("store", "key_env"): '[store]\nkey_env = "{variable}"\n',
    ("server", "secret_env"): '[server]\nsecret_env = "{variable}"\n',
}
LONG = "tw-a-long-and-random-key-0123456789"


@pytest.mark.parametrize("setting", SECRETS)
@pytest.mark.parametrize(
    ("variable", "environ", "severity", "message"),
    [
        ("TOOLWIRE_CLIENT_KEY", {"TOOLWIRE_CLIENT_KEY": "x" * 40}, "error", "is the variable of a client's key"),
        ("TOOLWIRE_KEY", {"TOOLWIRE_KEY": "x" * 40}, "warning", "was the variable of a client's key"),
        ("OTHER", {"OTHER": f"{'x' * 40}, {LONG}"}, "error", "the value of OTHER is the key of the client `desk`"),
        (
            "OTHER",
            {"OTHER": "x" * 40, "TOOLWIRE_CLIENT_KEY": "x" * 40},
            "error",
            "OTHER and TOOLWIRE_CLIENT_KEY have the same value",
        ),
        ("OTHER", {"OTHER": "x" * 40, "TOOLWIRE_KEY": "x" * 40}, "error", "OTHER and TOOLWIRE_KEY have the same value"),
        ("OTHER", {"OTHER": "x" * 40, "TOOLWIRE_CLIENT_KEY": LONG}, "", ""),
    ],
)
def test_a_secret_of_the_gateway_is_not_a_clients_key(
    setting: tuple[str, str], variable: str, environ: dict[str, str], severity: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(SECRETS[setting].format(variable=variable) + _key(GOOD))
    try:
        found = load_config(file, environ).warnings
    except ConfigError as error:
        found = error.problems
    assert [(one.location, one.severity) for one in found] == ([(".".join(setting), severity)] if severity else [])
    assert all(message in one.message and one.hint and "x" * 40 not in one.message + one.hint for one in found)
