"""The configuration: what the file and the environment come to, and what is said about every mistake."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from configs import load_config
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.configuration.load import REMOVED_KEYS, RENAMED_KEYS, SECTIONS, find_config_file, find_problems
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.settings.config import Config, Secret, Section, ServerSettings
from toolwire.gateway.settings.problems import ConfigError, KeyPath, Problem, TomlLines, report_problems
from toolwire.gateway.settings.providers import complete_base_url, is_own_address, known_servers
from toolwire.gateway.settings.proxies import proxy_from_environment
from toolwire.protocols import CODECS, find_codec

HASH = hashlib.sha256(b"tw-a-client-key-0123456789").hexdigest()
LAB = '[providers.lab]\nprotocols = ["openai-chat"]\nbase_url = "https://llm.example.com/v1"\n'
KEYS = {"LAB_KEY": "sk-lab", "HOME": "/nowhere"}


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(text: str, **environ: str) -> Config:
        file = tmp_path / "toolwire.toml"
        file.write_text(text, "utf-8")
        return load_config(file, environ)

    return read


@pytest.fixture
def faults(read: Any) -> Any:
    """The problems of a file, as (line, what, hint)."""

    def faults(text: str, **environ: str) -> list[tuple[int, str, str]]:
        with pytest.raises(ConfigError) as caught:
            read(text, **environ)
        return [(one.line, one.message, one.hint) for one in caught.value.problems if one.severity == "error"]

    return faults


def list_warnings(config: Config) -> list[tuple[int, str, str]]:
    return [(one.line, one.location, one.message) for one in config.warnings]


# --- the environment alone ---

DEMOS = ("demo-openai-chat", "demo-openai-responses", "demo-anthropic", "demo-gemini")


def test_nothing_at_all_is_a_gateway_with_the_embedded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(None, {})
    assert list(config.providers) == ["loopback", *DEMOS]
    assert config.providers["loopback"].protocols == tuple(CODECS)
    assert [config.providers[name].protocols for name in DEMOS] == [(name.removeprefix("demo-"),) for name in DEMOS]
    assert all(config.providers[name].list_models for name in DEMOS)
    assert config.file is None
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8642)


def test_a_provider_may_have_the_name_of_a_demo(read: Any) -> None:
    text = '[providers.demo-gemini]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1/v1"\n'
    config = read(text + '[models]\nmine = "demo-gemini/x"\ntheirs = "demo-anthropic/demo-anthropic"\n')
    assert config.providers["demo-gemini"].protocols == ("openai-chat",)
    assert {"demo-anthropic", "loopback"} < config.providers.keys()
    assert not read("[server]\nloopback = false").providers


def test_a_key_in_the_environment_is_a_provider(read: Any) -> None:
    config = read("", OPENAI_API_KEY="sk-1", GOOGLE_API_KEY=" g-2\n", ANTHROPIC_API_KEY="")
    assert list(config.providers) == ["openai", "gemini", "loopback", *DEMOS]
    assert not any(config.providers[name].list_models for name in DEMOS)
    assert config.providers["gemini"].api_key.reveal() == "g-2"
    assert config.providers["gemini"].api_key_env == "GOOGLE_API_KEY"
    assert config.providers["openai"].base_urls["openai-chat"] == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000"),
        (":9000", "http://127.0.0.1:9000"),
        ("box.local", "http://box.local:11434"),
        ("https://box.local/", "https://box.local"),
        ("http://[::1]:9/v1/", "http://[::1]:9/v1"),
    ],
)
def test_the_address_of_a_local_server_is_enough(read: Any, given: str, url: str) -> None:
    assert "ollama" not in read("").providers
    assert read("", OLLAMA_HOST=given).providers["ollama"].base_urls["openai-chat"] == url


def test_a_local_server_needs_no_key(read: Any) -> None:
    provider = read("[providers.ollama]").providers["ollama"]
    assert not provider.api_key
    assert not provider.is_key_missing


def test_azure_needs_an_address_too(read: Any) -> None:
    config = read("", AZURE_OPENAI_API_KEY="k")
    assert "azure" not in config.providers
    assert list_warnings(config) == [(0, "AZURE_OPENAI_API_KEY", "there is a key for Azure OpenAI, but no address")]
    config = read("", AZURE_OPENAI_API_KEY="k", AZURE_OPENAI_ENDPOINT="https://me.openai.azure.com/")
    azure = config.providers["azure"]
    assert azure.base_urls["openai-responses"] == "https://me.openai.azure.com/openai/v1"
    assert azure.credential(find_codec("openai-responses")) == ("api-key", "k")


def test_a_base_url_of_the_environment_is_honoured(read: Any) -> None:
    config = read("", ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL="https://proxy.example.com/a")
    assert config.providers["anthropic"].base_urls == {"anthropic": "https://proxy.example.com/a"}


@pytest.mark.parametrize("here", ["http://127.0.0.1:8642/v1", "http://localhost:8642", "http://[::1]:8642/v1/"])
def test_a_base_url_that_is_meant_for_sdks_is_passed_over(read: Any, here: str) -> None:
    config = read("", OPENAI_API_KEY="k", OPENAI_BASE_URL=here)
    assert config.providers["openai"].base_urls["openai-chat"] == "https://api.openai.com/v1"
    assert list_warnings(config) == [(0, "OPENAI_BASE_URL", "this is the address of the gateway itself")]


def test_a_broken_base_url_of_the_environment_is_a_warning(read: Any) -> None:
    config = read("", OPENAI_API_KEY="k", OPENAI_BASE_URL="https://x:port/")
    assert config.providers["openai"].base_urls["openai-chat"] == "https://api.openai.com/v1"
    assert [where for _, where, _ in list_warnings(config)] == ["OPENAI_BASE_URL"]


# --- where the file is ---


def test_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    usual = home / ".config" / "toolwire" / "toolwire.toml"
    other = tmp_path / "xdg" / "toolwire" / "toolwire.toml"
    for place in (usual, other):
        place.parent.mkdir(parents=True)
        place.write_text("")
    environ = {"HOME": str(home)}
    assert find_config_file(environ) == usual
    environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert find_config_file(environ) == other
    (tmp_path / "toolwire.toml").write_text("")
    assert find_config_file(environ) == Path("toolwire.toml")
    environ["TOOLWIRE_CONFIG"] = "named.toml"
    assert find_config_file(environ) == Path("named.toml")


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("folder", "Is a directory"),
        ("circle", "Too many levels of symbolic links"),
        ("unreachable", "File name too long"),
    ],
)
def test_a_file_that_cannot_be_looked_at_is_not_skipped(
    kind: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the one with the client keys."""
    monkeypatch.chdir(tmp_path)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    if kind == "folder":
        Path("toolwire.toml").mkdir()
    elif kind == "circle":
        Path("toolwire.toml").symlink_to("toolwire.toml")
    else:
        environ = {"XDG_CONFIG_HOME": str(tmp_path / ("x" * 300))}
    with pytest.raises(ConfigError) as refused:
        load_config(None, environ)
    assert problem in refused.value.problems[0].message


def test_a_named_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "none.toml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(None, {"TOOLWIRE_CONFIG": str(tmp_path / "none.toml")})


def test_the_command_line_stands_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text('[server]\nport = 1\n[providers.me]\nprotocols = ["openai-chat"]\nbase_url = "http://localhost:7/"')
    assert load_config(file, {}, {"port": 9}).server.port == 9
    with pytest.raises(ConfigError, match="the gateway itself"):
        load_config(file, {}, {"port": 7})


# --- providers of the file ---


def test_what_is_left_out_is_inherited(read: Any) -> None:
    config = read(
        '[providers.deepseek]\napi_key_env = "MINE"\n[providers.eu]\nkind = "mistral"\napi_key_env = "MINE"', MINE="k"
    )
    deepseek, eu = config.providers["deepseek"], config.providers["eu"]
    assert deepseek.base_urls["anthropic"] == "https://api.deepseek.com/anthropic"
    assert deepseek.api_key.reveal() == eu.api_key.reveal() == "k"
    assert eu.base_urls == {"openai-chat": "https://api.mistral.ai/v1"}
    assert "nine-letter-ids" in eu.quirks
    assert "mistral" not in config.providers


def test_an_address_for_each_protocol(read: Any) -> None:
    text = '[providers.two]\nprotocols = ["openai_chat", "anthropic"]\n[providers.two.base_url]\nopenai_chat = "https://a.b"\nanthropic = "https://c.d"'
    assert read(text).providers["two"].base_urls == {"openai-chat": "https://a.b", "anthropic": "https://c.d"}


def test_a_missing_variable_is_a_warning_that_names_it(read: Any) -> None:
    config = read(LAB + 'api_key_env = "LAB_KEY"')
    assert list_warnings(config) == [(4, "providers.lab.api_key_env", "the environment variable LAB_KEY is not set")]
    assert config.providers["lab"].is_key_missing


@pytest.mark.parametrize("key", ["sk-a\nsk-b", "sk-a\rb", "sk-\0", "\u201csk-a\u201d"])
def test_a_key_that_no_header_can_have_is_a_warning(read: Any, key: str) -> None:
    what = "contains a character that no header can have"
    warned = [(4, "providers.lab.api_key_env", f"the key in K {what}")]
    assert list_warnings(read(LAB + 'api_key_env = "K"', K=key)) == warned
    assert list_warnings(read("", OPENAI_API_KEY=key)) == [(0, "openai", f"the key in OPENAI_API_KEY {what}")]
    accounts = LAB + '[[providers.lab.accounts]]\nname = "a"\napi_key_env = "K"'
    assert [text for _, _, text in list_warnings(read(accounts, K=key))] == [f"the key in K {what}"]
    assert list_warnings(read(LAB + f"api_key = {json.dumps(key)}"))[-1][2] == f"the key {what}"
    assert not list_warnings(read(LAB + 'api_key_env = "K"', K=" sk-a\n"))


def test_a_provider_that_a_rule_names_is_there_without_its_key(read: Any) -> None:
    config = read('[models.x]\nprovider = "anthropic"\nfallbacks = ["ollama/qwen"]')
    assert {"anthropic", "ollama"} <= set(config.providers)
    assert [(line, what) for line, _, what in list_warnings(config)] == [
        (2, "the environment variable ANTHROPIC_API_KEY is not set")
    ]


def test_the_header_of_the_key(read: Any) -> None:
    codec = find_codec("openai-chat")
    config = read(LAB + 'api_key_env = "K"\nauth_header = "Authorization"\n[providers.openrouter]', K="k")
    assert config.providers["lab"].credential(codec) == ("authorization", "Bearer k")
    assert config.providers["openrouter"].credential(codec) is None
    assert read("", ANTHROPIC_API_KEY="k").providers["anthropic"].credential(codec) == codec.http.write_credential("k")


def test_no_key_is_ever_shown(read: Any) -> None:
    text = LAB + 'api_key = "sk-hidden"\nheaders = { x-more = "sk-hidden" }\nproxy = "http://me:sk-hidden@proxy:1"'
    config = read(text, OPENAI_API_KEY="sk-hidden")
    lab = config.providers["lab"]
    shown = [repr(config), str(config), f"{lab}", repr(lab.__rich_repr__()), repr(lab.api_key), str(lab.api_key)]
    assert not [one for one in shown if "sk-hidden" in one]
    assert (4, "providers.lab.api_key", "the key is in the configuration file") in list_warnings(config)
    for write in (msgspec.to_builtins, msgspec.json.encode, pickle.dumps):
        with pytest.raises(TypeError):
            write(Secret("sk-hidden"))


def test_proxies_of_the_environment(read: Any) -> None:
    text = LAB + '[providers.near]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:5/v1"\n'
    config = read(text, https_proxy="proxy:3128", HTTP_PROXY="http://other:1")
    assert config.providers["lab"].proxies == {"openai-chat": "http://proxy:3128"}
    assert config.providers["near"].proxies == {}
    assert read(LAB + 'proxy = ""', HTTPS_PROXY="proxy:1").providers["lab"].proxies == {}
    config = read(LAB, ALL_PROXY="socks5://x:1")
    assert [where for _, where, _ in list_warnings(config)] == ["ALL_PROXY"]


@pytest.mark.parametrize(
    ("excepted", "proxied"),
    [
        ("example.com", False),
        (".example.com", False),
        ("*.example.com", False),
        ("other.com, LLM.example.com:443", False),
        ("llm.example.com:80", True),
        ("ample.com", True),
        ("*", False),
        ("10.0.0.0/8", True),
    ],
)
def test_exceptions_from_the_proxy(excepted: str, proxied: bool) -> None:
    environ = {"HTTPS_PROXY": "http://p:1", "NO_PROXY": excepted}
    assert bool(proxy_from_environment("https://llm.example.com/v1", environ)[0]) is proxied
    assert proxy_from_environment("https://10.1.2.3/", {**environ, "no_proxy": "10.0.0.0/8"}) == ("", "")


# --- mistakes ---

MISTAKES = [
    ("[server]\nprot = 1", (2, "unknown key `prot`", "did you mean `port`?")),
    ('[server]\n\nport = "x"', (3, "`port`: expected a whole number, got a string", "")),
    ("[server]\nworkers = 1.5", (2, "`workers`: expected a whole number, got 1.5", "")),
    ("[server]\nworkers = 0", (2, "`workers`: expected a whole number >= 1", "")),
    ('[server]\nlog_format = "jsn"', (2, "`log_format` has an invalid value", "did you mean `json`? Choose from: auto, json, text, none")),
    ("[server.timeouts]\nconect = 1", (2, "unknown key `conect`", "did you mean `connect`?")),
    ("server = 1", (1, "`server` must be a table", "write `[server]` above its keys")),
    ("[sever]", (1, "unknown section `sever`", "did you mean `server`?")),
    ("[policy]", (1, "`policy` must be a list of tables", "write `[[policy]]`")),
    ('[server]\nkeys = "x"', (2, "`server.keys` must be a list of tables", "write `[[server.keys]]`")),
    ('[[server.keys]]\nname = "a"', (1, "`sha256` is missing", "add `sha256 = …`")),
    ("a = 1\nb = ", (2, "invalid TOML: invalid value", "strings need quotes, tables need brackets")),
    ("[server]\nport = 1\nport = 2", (3, "invalid TOML: cannot overwrite a value", "the same key or table is defined twice")),
    ('[providers."a/b"]', (1, "invalid provider name `a/b`", "use no slashes, `*`, `?` or spaces")),
    ('[providers.x]\nkind = "mistrl"', (2, "unknown server `mistrl`", "did you mean `mistral`?")),
    ("[providers.deepsek]", (1, "`deepsek` is not a well-known server, and protocols and base_url are missing", "did you mean `deepseek`?")),
    ("[providers.azure]", (1, "`resource` is missing", "add it, or the whole `base_url`")),
    (LAB + "bas_url = 1", (4, "unknown key `bas_url`", "did you mean `base_url`?")),
    (LAB + 'headers = { "a b" = "c" }', (4, "`a b` is not a valid header", "")),
    (LAB + 'headers = { a = "\u201cc\u201d" }', (4, "`a` is not a valid header", "")),
    (LAB + '[providers.lab.headers]\nx = "y"\nHost = "c"', (6, "`Host` is set by the gateway", "remove it")),
    (LAB + 'ca_file = "none.pem"', (4, "the file does not exist", "it is relative to the folder of this file")),
    (LAB + 'proxy = "socks5://x:1"', (4, "a proxy URL must begin with http:// or https://", "")),
    (LAB + 'quirks = [\n  "nine-leter-ids",\n]', (5, "unknown quirk `nine-leter-ids` for openai-chat", "did you mean `nine-letter-ids`?")),
    (LAB + 'api_key_env = "A"\nforward_auth = true', (5, "api_key_env and forward_auth cannot be combined", "remove one of them")),
    ('[providers.x]\nprotocols = ["openai-caht"]\nbase_url = "http://a"', (2, "unknown protocol `openai-caht`", "did you mean `openai-chat`?")),
    ('[models.a]\nprovider = "lap"\n' + LAB, (2, "unknown provider `lap`", "did you mean `lab`?")),
    ('[models]\na = "gpt-5.5"', (2, "`gpt-5.5` names no provider", 'write "openai/gpt-5.5"')),
    ('[models.a]\nprovider = "gpt-5.5"', (2, "`gpt-5.5` names no provider", 'write "openai/gpt-5.5"')),
    (LAB + '[models.a]\nprovider = "lab"\nfallbacks = ["gpt-5.5"]', (6, "the fallback `gpt-5.5` does not exist", 'write "openai/gpt-5.5"')),
    ('[models]\na = "lap/x"\n' + LAB, (2, "unknown provider `lap`", "did you mean `lab`?")),
    ("[models]\na = 1", (2, '`a` must be a table or "provider/model"', "")),
    ("[models.a]", (1, "`provider` is missing", "add `provider = …`")),
    ('[models.a]\nprovider = "loopback"\nname = "b"', (3, "unknown key `name`", "the name is in the brackets: [models.NAME]")),
    (LAB + '[models.a]\nprovider = "lab"\nprotocol = "gemini"', (6, "`lab` does not speak `gemini`", "it speaks: openai-chat")),
    (LAB + '[models.a]\nprovider = "lab"\nfallbacks = ["lap/x"]', (6, "unknown provider `lap`", "did you mean `lab`?")),
    (LAB + '[models.quick]\nprovider = "lab"\n[models.b]\nprovider = "lab"\nfallbacks = ["qick"]', (8, "the fallback `qick` does not exist", "did you mean `quick`?")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
def test_a_mistake_is_told_with_its_line_and_a_suggestion(
    faults: Any, text: str, expected: tuple[int, str, str]
) -> None:
    assert faults(text) == [expected]


OLD_KEYS = """\
[server]
hosts = ["gateway.example"]
log = "text"
on_client_gone = "drain"
rest = 7
rest_after = 3
[server.deadlines]
first_byte = 8
retries = 9
[store]
url = "none"
lease = 4
[mcp.files]
command = "x"
models = ["*"]
parallel = 2
rounds = 5
shows = "text"
"""


def test_old_keys_still_work_with_a_warning_that_names_the_new_one(read: Any) -> None:
    config = read(OLD_KEYS)
    server, files = config.server, config.section(McpSettings).servers["files"]
    assert (server.allowed_hosts, server.log_format, server.on_disconnect) == (("gateway.example",), "text", "drain")
    assert (server.cooldown, server.cooldown_after) == (7, 3)
    assert (server.timeouts.first_byte, server.timeouts.all_attempts) == (8, 9)
    assert config.store.background_lease == 4
    assert (files.max_parallel, files.max_rounds, files.call_visibility) == (2, 5, "text")
    found = {(one.line, one.location): one.hint for one in config.warnings if "has been renamed" in one.message}
    assert found[5, "server.rest"] == "write `cooldown` instead of `rest`"
    assert found[7, "server.deadlines"] == "write `timeouts` instead of `deadlines`"
    assert found[17, "mcp.files.rounds"] == "write `max_rounds` instead of `rounds`"
    assert sorted(line for line, _ in found) == [2, 3, 4, 5, 6, 7, 9, 12, 16, 17, 18]
    assert len(found) == len(RENAMED_KEYS)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_that_the_file_does_not_have_has_its_defaults(read: Any, section: type[Section]) -> None:
    assert read("").section(section) == Config().section(section) == section()


@pytest.mark.parametrize("name", [name for section in SECTIONS for name in section.table_names()])
def test_what_is_not_a_table_of_a_section_is_a_problem_of_its_line(faults: Any, name: str) -> None:
    ((line, what, _),) = faults(f"{name} = 5")
    assert (line, f"`{name}` must be a" in what) == (1, True)


@pytest.mark.parametrize("place", REMOVED_KEYS, ids=".".join)
def test_a_key_without_effect_is_accepted_with_a_warning(read: Any, place: tuple[str, ...]) -> None:
    *table, key = (step.replace("*", "vllm") for step in place)
    (found,) = read(f"[{'.'.join(table)}]\n{key} = 3\n").warnings
    assert (found.line, found.location) == (2, ".".join((*table, key)))
    assert found.message == f"`{found.location}` has no effect any more; remove it"
    assert found.hint == REMOVED_KEYS[place]


def test_mistakes_below_an_old_key_keep_their_line(faults: Any) -> None:
    assert faults("[server]\nrest = 1\ncooldown = 2") == [
        (2, "`rest` is the old name of `cooldown`, and both are set", "remove `rest`")
    ]
    assert faults("[server]\n[server.deadlines]\n\nconect = 1")[0][:2] == (4, "unknown key `conect`")
    assert faults('[server]\n\nrest = "long"')[0][0] == 3


PROFILES = """[default]
region = ap-south-1
[profile work]
s3 =
    max_queue_size = 1
region = eu-central-1
"""


@pytest.mark.parametrize(
    ("text", "environ", "region"),
    [
        ("", {}, "ap-south-1"),
        ("", {"AWS_PROFILE": "work"}, "eu-central-1"),
        ("profile = 'work'", {}, "eu-central-1"),
        ("profile = 'work'", {"AWS_DEFAULT_REGION": "us-east-1"}, "us-east-1"),
        ("profile = 'work'\nregion = 'us-east-2'", {}, "us-east-2"),
    ],
)
def test_the_region_of_a_profile_of_aws(
    tmp_path: Path, read: Any, text: str, environ: dict[str, str], region: str
) -> None:
    (tmp_path / "config").write_text(PROFILES)
    given = {"AWS_CONFIG_FILE": str(tmp_path / "config"), **environ}
    provider = read(f"[providers.bedrock]\n{text}", **given).providers["bedrock"]
    assert provider.access.region == region
    assert f"bedrock-runtime.{region}." in provider.base_urls["anthropic"]


@pytest.mark.parametrize("data", [b"region = x", b"[default\n", b"\xff"])
def test_a_file_of_aws_without_the_profile_names_no_region(tmp_path: Path, read: Any, data: bytes) -> None:
    (tmp_path / "config").write_bytes(data)
    with pytest.raises(ConfigError, match="`region` is missing"):
        read("[providers.bedrock]", AWS_CONFIG_FILE=str(tmp_path / "config"))


CLOUDS = [
    ("[providers.bedrock]", "bedrock.region: `region` is missing; add it, or set AWS_REGION"),
    ('[providers.mine]\nkind = "vertex"', "mine.project: `project` is missing; add it, or set GOOGLE_CLOUD_PROJECT"),
    ("[providers.azure]\nauth = 'entra'", "azure.resource: `resource` is missing; add it, or the whole `base_url`"),
    (
        "[providers.azure]\nresource = 'a'\nauth = 'entra'\napi_key = 'k'",
        "azure.api_key: `api_key` and `auth` cannot be combined; remove one of them",
    ),
    (
        "[providers.azure]\nresource = 'a'\nauth = 'entra'\nauth_command = ['a']",
        'azure.auth_command: it cannot be combined with `auth = "entra"`; remove one of them',
    ),
    (
        "[providers.azure]\nresource = 'a'\nauth_command = []",
        'azure.auth_command: it names no program; write `["PROGRAM", "ARGUMENT"]`',
    ),
    (
        "[providers.bedrock]\nregion = 'eu-west-1'\nbase_url = 'http://models.example.com'",
        "bedrock.base_url: the key is sent over plain HTTP: everybody on the way can read it; use an address with https://",
    ),
    (
        "[providers.openai]\napi_key = 'k'\nregion = 'x'",
        "openai.region: `region` has no meaning here; it is for Bedrock and Vertex AI",
    ),
    (
        "[providers.azure]\nresource = 'a/b'\napi_key = 'k'",
        "azure.resource: this is not a valid `resource`; use letters, digits and `-`",
    ),
    (
        "[providers.vertex]\nproject = 'p'\naudience = 'x'",
        'vertex.audience: `audience` has no meaning here; it is for `auth = "entra"` and `"managed-identity"`',
    ),
    (
        "[providers.vertex]\nproject = 'p'\nprofile = 'x'",
        'vertex.profile: `profile` has no meaning here; it is for `auth = "aws"`',
    ),
    (
        "[providers.bedrock]\nregion = 'eu-west-1'\nauth = 'aws'\n[[providers.bedrock.accounts]]\nname = 'a'\napi_key = 'k'",
        "bedrock.auth: `auth` and `accounts` cannot be combined; give each account its key",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), CLOUDS, ids=[wanted.partition(";")[0] for _, wanted in CLOUDS])
def test_what_is_wrong_with_a_cloud_is_named(text: str, wanted: str) -> None:
    found = [f"{one.location.removeprefix('providers.')}: {one.message}; {one.hint}" for one in find_problems(text, {})]
    assert wanted in found


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("[providers.bedrock]\nregion = 'eu-west-1'", "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        ("[providers.bedrock]\nregion = 'cn-north-1'", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"),
        ("[providers.bedrock]\nregion = 'eusc-de-east-1'", "https://bedrock-runtime.eusc-de-east-1.amazonaws.eu"),
        ("[providers.vertex]\nproject = 'p'", "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/anthropic"),
        ("[providers.vertex]\nproject = 'p'\nregion = 'eu'", "https://aiplatform.eu.rep.googleapis.com/v1/projects/p/locations/eu/publishers/anthropic"),
        ("[providers.vertex]\nproject = 'p'\nregion = 'us-east5'", "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5/publishers/anthropic"),
        ("[providers.azure]\nresource = 'r'\napi_key = 'k'", "https://r.services.ai.azure.com/anthropic"),
        ("[providers.azure]\nbase_url = 'https://r.example.com'\napi_key = 'k'", "https://r.example.com/anthropic"),
    ],
)  # fmt: skip
def test_a_cloud_has_its_address_by_its_place(read: Any, text: str, url: str) -> None:
    (provider,) = (one for one in read(text).providers.values() if not one.embedded)
    assert provider.base_urls["anthropic"] == url


@pytest.mark.parametrize(
    ("text", "audience"),
    [
        ("resource = 'r'", "https://cognitiveservices.azure.com"),
        ("base_url = 'https://r.openai.azure.us'", "https://cognitiveservices.azure.us"),
        ("base_url = 'https://apim.example.com/openai/v1'\naudience = 'api://x'", "api://x"),
    ],
)
def test_tokens_are_for_the_cloud_of_the_address(read: Any, text: str, audience: str) -> None:
    """One of the other cloud is refused (cline/cline#8718)."""
    provider = read(f"[providers.azure]\nauth = 'entra'\n{text}").providers["azure"]
    assert provider.access.audience == audience


def test_keys_of_accounts_are_keys(read: Any) -> None:
    text = "[providers.bedrock]\nregion = 'eu-west-1'\n[[providers.bedrock.accounts]]\nname = 'a'\napi_key_env = 'K'"
    provider = read(text, K="k").providers["bedrock"]
    assert provider.access.method == ""
    assert provider.accounts[0].credential(find_codec("anthropic")) == ("authorization", "Bearer k")


@pytest.mark.parametrize("place", ["", "/openai"])
def test_a_version_of_azure_is_in_the_query_of_its_old_addresses(read: Any, place: str) -> None:
    text = f"[providers.azure]\nbase_url = 'https://r.example.com{place}'\napi_version = '2024-10-21'\napi_key = 'k'"
    urls = read(text).providers["azure"].base_urls
    assert urls["openai-chat"] == "https://r.example.com/openai?api-version=2024-10-21"
    assert "api-version" not in urls["anthropic"]


def test_a_key_of_a_cloud_without_its_place_is_a_warning(read: Any) -> None:
    config = read("", AWS_BEARER_TOKEN_BEDROCK="k")
    assert "bedrock" not in config.providers
    assert list_warnings(config) == [
        (0, "AWS_BEARER_TOKEN_BEDROCK", "there is a key for Amazon Bedrock, but no address")
    ]
    config = read("", AWS_BEARER_TOKEN_BEDROCK="k", AWS_REGION="eu-west-1")
    assert config.providers["bedrock"].credential(find_codec("anthropic")) == ("authorization", "Bearer k")


@pytest.mark.parametrize(
    "url", ["ftp://a", "llm.example.com", "https://", "http://a:x", "https://u:p@a", "http://a/ b"]
)
def test_a_bad_url_is_a_problem_and_is_not_repeated(faults: Any, url: str) -> None:
    found = faults(f'[providers.x]\nprotocols = ["openai-chat"]\nbase_url = "{url}"')
    assert [line for line, _, _ in found] == [3]


def test_a_base_url_for_each_protocol_that_is_spoken(faults: Any) -> None:
    text = '[providers.x]\nprotocols = ["openai-chat", "anthropic"]\nbase_url = { openai-chat = "http://a" }'
    assert faults(text) == [(3, "there is no base URL for anthropic", "add one for every protocol in `protocols`")]
    text = '[providers.deepseek]\nprotocols = ["openai-chat", "gemini"]'
    assert faults(text) == [(1, "there is no base URL for gemini", "add one for every protocol in `protocols`")]


def test_a_provider_may_speak_less_than_its_row(read: Any) -> None:
    config = read(
        '[providers.deepseek]\nprotocols = ["anthropic"]\n[providers.ollama]\nprotocols = ["openai-responses"]'
    )
    assert config.providers["deepseek"].base_urls == {"anthropic": "https://api.deepseek.com/anthropic"}
    assert config.providers["ollama"].base_urls == {"openai-responses": "http://127.0.0.1:11434/v1"}


def test_keys_of_clients_are_checked(faults: Any) -> None:
    text = f'[[server.keys]]\nname = "a"\nsha256 = "my-plain-key"\n[[server.keys]]\nname = "b"\nsha256 = "{HASH}"\n[[server.keys]]\nname = "b"\nsha256 = "{HASH.upper()}"\nmodels = ["*", 1]\n[[server.keys]]\nname = "b"\nsha256 = "{HASH}"'
    found = faults(text)
    assert [line for line, _, _ in found] == [3, 8, 9, 10, 12, 13]
    assert "my-plain-key" not in str(found)


def test_beyond_this_machine_there_must_be_keys(read: Any, faults: Any) -> None:
    assert faults('[server]\nhost = "0.0.0.0"')[0][0] == 2
    assert (
        read(f'[server]\nhost = "0.0.0.0"\n[[server.keys]]\nname = "a"\nsha256 = "{HASH}"').server.keys[0].name == "a"
    )


@pytest.mark.parametrize(
    ("url", "host", "here"),
    [
        ("http://127.0.0.1:8642", "127.0.0.1", True),
        ("http://localhost:8642/v1", "::1", True),
        ("http://0.0.0.0:8642/v1", "0.0.0.0", True),
        ("http://10.0.0.5:8642", "10.0.0.5", True),
        ("http://gate.local:8642", "10.0.0.5", True),
        ("http://127.0.0.1:8642", "10.0.0.5", False),
        ("http://127.0.0.1:8643", "127.0.0.1", False),
        ("http://127.0.0.1", "127.0.0.1", False),
        ("https://api.example.com:8642", "127.0.0.1", False),
    ],
)
def test_a_gateway_that_would_call_itself(url: str, host: str, here: bool) -> None:
    assert is_own_address(url, ServerSettings(host=host, allowed_hosts=("gate.local",))) is here


def test_a_provider_that_is_the_gateway_is_refused(faults: Any) -> None:
    text = '[server]\nport = 7000\n[providers.me]\nprotocols = ["openai-chat"]\nbase_url = "http://localhost:7000/v1"'
    assert faults(text)[0][:2] == (5, "this is the address of the gateway itself, which would call itself forever")
    text = "[server]\nport = 11434\n[providers.ollama]"
    assert faults(text)[0][:2] == (3, "this is the address of the gateway itself, which would call itself forever")


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        ('[models."c-*"]\nprovider = "lab"\nfallbacks = ["c-x"]', 6),
        ('[models.a]\nprovider = "lab"\nfallbacks = ["a"]', 6),
        ('[models.a]\nprovider = "lab"\nfallbacks = ["lab/x",\n"b"]\n[models.b]\nprovider = "lab"\nfallbacks = ["c"]\n[models.c]\nprovider = "lab"\nfallbacks = ["a"]', 7),
    ],
)  # fmt: skip
def test_fallbacks_in_a_circle(faults: Any, rules: str, line: int) -> None:
    found = faults(LAB + rules)
    assert found[0][0] == line
    assert "leads back to" in found[0][1]


def test_every_mistake_is_told_at_once(faults: Any) -> None:
    text = '[server]\nprot = 1\nworkers = -1\n[providers.x]\nprotocols = ["nix"]\nbase_url = "a"\n[models.y]\nprovider = "z"\n[store]\nttl = -1'
    assert [line for line, _, _ in faults(text)] == [2, 3, 5, 6, 8, 10]


def test_a_mistake_is_said_as_compilers_say_it() -> None:
    found = [Problem(location="a.b", message="no", line=3), Problem(location="VARIABLE", message="no")]
    assert [str(line) for line in report_problems(found, "x.toml")] == ["x.toml:3: no", "VARIABLE: no"]


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_bytes(b"[server]\nhost = '\xff'")
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    assert [(one.line, one.message) for one in caught.value.problems] == [(2, "the file is not valid UTF-8")]


# --- lines ---

TOML = (
    r"""
# [not.a.table]
title = "a # [b]"   # c
[server] # x = 1
"deadlines".connect = 1
deadlines . 'first byte' = '''
[no]
no = 1
'''
[[server.keys]]
name = "a\"]"
models = [  # x
  "*",
  { a = [1,
    2], b.c = 3 },
]
[[ server . keys ]]
name = 1
[server.keys.more]
x = <<<
a "" \<<< b">>>
y = 1
[models."claude-*[1m]"]
provider = {x=1,"y.z"={q=2}}
""".strip()
    .replace("<<<", '"' * 3)
    .replace(">>>", '"' * 3)
)


def _places(value: Any, place: KeyPath) -> Iterator[KeyPath]:
    """Every place of a document, as the standard reader sees it."""
    if place:
        yield place
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from _places(inner, (*place, key))


def test_where_keys_stand() -> None:
    lines = TomlLines(TOML)
    lines.find_keys()
    assert set(_places(tomllib.loads(TOML), ())) <= set(lines.line_numbers)
    expected = {
        ("title",): 2,
        ("server",): 3,
        ("server", "deadlines", "connect"): 4,
        ("server", "deadlines", "first byte"): 5,
        ("server", "keys"): 9,
        ("server", "keys", 0): 9,
        ("server", "keys", 0, "name"): 10,
        ("server", "keys", 0, "models", 0): 12,
        ("server", "keys", 0, "models", 1, "a", 1): 14,
        ("server", "keys", 0, "models", 1, "b", "c"): 14,
        ("server", "keys", 1): 16,
        ("server", "keys", 1, "more", "x"): 19,
        ("server", "keys", 1, "more", "y"): 21,
        ("models", "claude-*[1m]", "provider", "y.z", "q"): 23,
    }
    assert {place: lines.line_numbers.get(place) for place in expected} == expected
    assert lines.line_of(("server", "keys", 1, "nothing")) == 16
    assert lines.line_of(("nothing",)) == 0


# --- reading it again ---


class Told:
    def __init__(self) -> None:
        self.problems: list[str] = []

    def __call__(self, found: Any) -> None:
        self.problems += [problem.message for problem in found]


def _write(file: Path, text: str, age: int) -> None:
    """A change that a coarse clock would not hide."""
    file.write_text(text)
    os.utime(file, ns=(age, age))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file, told = tmp_path / "toolwire.toml", Told()
    _write(file, "[server]\nport = 1", 1)
    live = LiveConfig(file, {}, told)
    first = live.current
    assert not live.reload_if_changed()
    assert live.current is first
    _write(file, "[server]\nport = 2", 2)
    assert live.reload_if_changed()
    assert live.current.server.port == 2
    assert not live.reload_if_changed()
    assert live.reload_if_changed(force=True)
    assert told.problems == []


def test_a_bad_new_file_leaves_the_old_one_in_force(tmp_path: Path) -> None:
    file, told = tmp_path / "toolwire.toml", Told()
    _write(file, "[server]\nport = 1", 1)
    live = LiveConfig(file, {}, told)
    first = live.current
    _write(file, "[server]\nprot = 2", 2)
    assert not live.reload_if_changed()
    assert not live.reload_if_changed()
    assert live.current is first
    assert told.problems == ["unknown key `prot`"]
    file.unlink()
    assert not live.reload_if_changed()
    assert live.current is first
    assert told.problems[1:] == ["cannot be read: No such file or directory"]
    _write(file, "[server]\nport = 3", 3)
    assert live.reload_if_changed()
    assert live.current.server.port == 3


def test_warnings_are_reported_once_a_reading(tmp_path: Path) -> None:
    file, told = tmp_path / "toolwire.toml", Told()
    _write(file, LAB + 'api_key_env = "LAB_KEY"', 1)
    live = LiveConfig(file, {}, told)
    live.reload_if_changed()
    assert told.problems == ["the environment variable LAB_KEY is not set"]


# --- the rows ---


@pytest.mark.parametrize("name", known_servers())
def test_a_row_is_right(name: str) -> None:
    row = known_servers()[name]
    assert set(row.protocols) <= set(CODECS)
    urls = row.base_url if isinstance(row.base_url, dict) else dict.fromkeys(row.protocols, row.base_url)
    assert set(urls) == set(row.protocols)
    assert set(row.quirks) <= {quirk for protocol in row.protocols for quirk in find_codec(protocol).quirks}
    assert row.key_env or row.cloud.auth
    assert not row.local or row.base_url_env


def test_an_address_without_a_scheme_takes_what_is_usual() -> None:
    assert complete_base_url("box", "http://127.0.0.1:8000/v1", "") == "http://box:8000"
    assert complete_base_url("http://box", "http://127.0.0.1:8000/v1", "") == "http://box"
    assert complete_base_url("https://box", "", "/openai/v1") == "https://box/openai/v1"
