"""Who may read `/metrics`, which shows the providers, models and token counts of all clients."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs import load_config
from gateway.process import run_gateway
from gateway.raw_exchange import CLIENTS, Served, ask, call, stage
from toolwire.gateway.configuration.load import parse_listen_address
from toolwire.gateway.exchange.caller import Caller
from toolwire.gateway.features.keys.access import AccessControl
from toolwire.gateway.settings.config import ClientKey, ServerSettings
from toolwire.gateway.settings.problems import ConfigError
from waits import free_port

CLIENT, READER, METRICS = (f"tw-{name}-key-0123456789" for name in ("client", "reader", "metrics"))


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


KEYS = (
    f'[[server.keys]]\nname = "client"\nsha256 = "{_hash(CLIENT)}"\n'
    f'[[server.keys]]\nname = "reader"\nsha256 = "{_hash(READER)}"\nmetrics = true\n'
)
SETTINGS = {
    "open": "",
    "keys": KEYS,
    "metrics key": f'metrics_sha256 = "{_hash(METRICS)}"\n',
    "both": f'metrics_sha256 = "{_hash(METRICS).upper()}"\n{KEYS}',
}
STATUSES = {
    "open": {"": 200, CLIENT: 200, METRICS: 200},
    "keys": {"": 401, CLIENT: 403, READER: 200, METRICS: 401, "wrong": 401},
    "metrics key": {"": 401, CLIENT: 401, METRICS: 200, "wrong": 401},
    "both": {"": 401, CLIENT: 403, READER: 200, METRICS: 200, "wrong": 401},
}


@pytest.fixture(scope="module", params=SETTINGS, name="served")
def serve_gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Served]]:
    settings = f"retries = 0\ncooldown_after = 9999\n{SETTINGS[request.param]}"
    with stage(tmp_path_factory.mktemp("metrics"), settings) as staged:
        yield request.param, staged


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "x-goog-api-key", "x-toolwire-key"])
def test_only_a_key_that_may_reads_the_metrics(served: tuple[str, Served], header: str) -> None:
    name, staged = served
    for key, status in STATUSES[name].items():
        form = f"Bearer {key}" if header == "authorization" else key
        got = ask(staged.port, "GET", "/metrics", headers={header: form} if key else {})
        assert (key, got.status) == (key, status)
        assert (b"toolwire_build_info" in got.data) == (status == 200)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_key_of_the_metrics_opens_nothing_else(served: tuple[str, Served], client: str) -> None:
    name, staged = served
    headers = {"authorization": f"Bearer {METRICS}"}
    expected = 200 if name in ("open", "metrics key") else 401  # without client keys, this machine is served
    assert call(staged, client, "loopback", False, headers).status == expected
    assert ask(staged.port, "GET", "/v1/models", headers=headers).status == expected


# --- an address of its own ---


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("keyed", [False, True])
def test_the_metrics_have_an_address_of_their_own(tmp_path: Path, keyed: bool, workers: str) -> None:
    port, file = free_port(), tmp_path / "toolwire.toml"
    key = f'metrics_sha256 = "{_hash(METRICS)}"\n' if keyed else ""
    file.write_text(f'[server]\nmetrics_listen = "127.0.0.1:{port}"\n{key}{KEYS}')
    authorized = {"authorization": f"Bearer {METRICS}"} if keyed else {}
    with run_gateway(tmp_path, "--config", str(file), "--workers", workers) as process:
        client = {"authorization": f"Bearer {CLIENT}"}
        assert ask(process.port, "GET", "/v1/models", headers=client).status == 200
        got = ask(port, "GET", "/metrics", headers=authorized)
        assert got.status == 200
        assert f"toolwire_workers {workers}\n".encode() in got.data
        assert ask(port, "GET", "/metrics", headers=client).status == (401 if keyed else 200)
        for path in ("/v1/models", "/v1/chat/completions", "/metricsx", "/livez"):
            assert ask(port, "GET", path, headers=client).status == 404
            assert ask(port, "POST", path, b"{}", client).status == 404
        reader = {"authorization": f"Bearer {READER}"}
        assert ask(process.port, "GET", "/metrics", headers=reader).status == 404, "it is only there now"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9100", ("127.0.0.1", 9100)),
        ("[::1]:9100", ("::1", 9100)),
        ("localhost:0", ("localhost", 0)),
        ("9100", None),
        (":9100", None),
        ("::1:9100", None),
        ("127.0.0.1", None),
        ("127.0.0.1:", None),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:9x", None),
        ("127.0.0.1:²", None),
        ("", None),
    ],
)
def test_an_address_is_read(text: str, address: tuple[str, int] | None) -> None:
    assert parse_listen_address(text) == address


@pytest.mark.parametrize(
    ("line", "errors", "warnings"),
    [
        ('metrics_listen = "nowhere"', ["server.metrics_listen"], []),
        ('metrics_listen = "0.0.0.0:9100"', [], ["server.metrics_listen"]),
        (f'metrics_listen = "0.0.0.0:9100"\nmetrics_sha256 = "{_hash(METRICS)}"', [], []),
        (f'metrics_sha256 = "{_hash("")}"', ["server.metrics_sha256"], []),
        ('metrics_sha256 = "my-key"', ["server.metrics_sha256"], []),
        (f'metrics_sha256 = "{_hash(CLIENT)}"\n{KEYS}', ["server.metrics_sha256"], []),
    ],
)
def test_the_settings_are_checked(tmp_path: Path, line: str, errors: list[str], warnings: list[str]) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(f"[server]\n{line}\n")
    try:
        found = load_config(file, {}).warnings
    except ConfigError as error:
        found = error.problems
    assert [one.location for one in found if one.severity == "error"] == errors
    assert [one.location for one in found if one.severity == "warning"] == warnings


# --- many keys ---


def test_a_key_is_found_among_many_without_looking_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tuple(ClientKey(name=f"k{number}", sha256=_hash(f"tw-{number}")) for number in range(10_000))
    access = AccessControl(ServerSettings(keys=keys))
    counted: list[bytes] = []
    blind = access._blind
    monkeypatch.setattr(access, "_blind", lambda sha256: counted.append(b"") or blind(sha256))
    for number in (0, 4711, 9999):
        caller = access.authenticate({"authorization": f"Bearer tw-{number}"}, "", "", 0.0)
        assert isinstance(caller, Caller)
        assert caller.key is keys[number]
    assert not isinstance(access.authenticate({"authorization": "Bearer tw-10000"}, "", "", 0.0), Caller)
    assert not isinstance(access.authenticate({}, "", "", 0.0), Caller)
    assert len(counted) == 4
