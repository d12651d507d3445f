"""Every configuration in docs/recipes works: a whole tool call, from the OpenAI and the Anthropic SDK, with servers on
loopback that imitate those of the page."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from anthropic import Anthropic
from botocore.credentials import Credentials
from openai import OpenAI

from gateway.conftest import serve_config
from gateway.fake_clouds import Answer, Seen, serve_cloud, service_account
from gateway.imitations import (
    ANTHROPIC,
    AWS_KEYS,
    AZURE,
    AZURE_TOKEN,
    BEDROCK,
    BEDROCK_KEY,
    CALLED,
    DEEPSEEK,
    DONE,
    FOUNDRY,
    LM_STUDIO,
    OLLAMA,
    OPENROUTER,
    VERTEX,
    VERTEX_KEY,
    VLLM,
    Imitation,
    serve_imitation,
)
from toolwire.gateway.configuration.load import find_problems

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
NO_KEY = VLLM._replace(key=None)
ROLE_KEYS = Credentials("AKIDROLE", "secret-of-the-role", "token-of-the-role")
EUROPE, AMERICA = (AZURE._replace(key=("api-key", name)) for name in ("AZURE_EU_KEY", "AZURE_US_KEY"))


class Recipe(NamedTuple):
    """A block of a page, the servers that stand for its addresses, and the models to ask for."""

    page: str
    block: int
    servers: dict[str, Imitation]
    models: tuple[str, ...]


TABLE = [
    Recipe("ollama", 0, {"http://127.0.0.1:11434": OLLAMA}, ("local", "ollama/qwen3-coder:30b", "claude-haiku-5")),
    Recipe("vllm", 0, {"http://127.0.0.1:8000": VLLM}, ("qwen", "vllm/Qwen/Qwen3-32B")),
    Recipe("vllm", 1, {"http://gpu-1:8000": NO_KEY, "http://gpu-2:8000": NO_KEY}, ("qwen", "small/Qwen/Qwen3-8B")),
    Recipe("lm-studio", 0, {"http://127.0.0.1:1234": LM_STUDIO}, ("local", "lmstudio/qwen/qwen3-coder-30b")),
    Recipe("openrouter", 0, {"https://openrouter.ai": OPENROUTER}, ("fast", "claude-sonnet-5")),
    Recipe("azure", 0, {"[providers.azure]": AZURE}, ("gpt-5.5", "azure/my-deployment")),
    Recipe("azure", 1, {"[providers.azure]": AZURE_TOKEN}, ("gpt-5.5",)),
    Recipe("azure", 2, {"[providers.azure]": AZURE_TOKEN}, ("gpt-5.5",)),
    Recipe("azure", 3, {"[providers.azure]": FOUNDRY}, ("claude-haiku-5", "azure/claude-opus-5-5")),
    Recipe("azure", 4, {"[providers.europe]": EUROPE, "[providers.america]": AMERICA}, ("gpt-5.5", "america/my-deployment")),
    Recipe("bedrock", 0, {"[providers.bedrock]": BEDROCK}, ("claude-opus-5-5", "claude-haiku-5", "gpt-5.5", "nova")),
    Recipe("bedrock", 1, {"[providers.bedrock]": BEDROCK}, ("nova",)),
    Recipe("bedrock", 2, {"[providers.bedrock]": BEDROCK._replace(signed_for=(ROLE_KEYS, "us-east-1"))}, ("gpt-5.5",)),
    Recipe("bedrock", 3, {"[providers.bedrock]": BEDROCK_KEY}, ("claude-opus-5-5",)),
    Recipe("bedrock", 4, {"[providers.bedrock]": BEDROCK._replace(signed_for=(AWS_KEYS, "us-east-1"))}, ("ours",)),
    Recipe("vertex", 0, {"[providers.vertex]": VERTEX}, ("claude-haiku-5", "vertex/claude-opus-5-5")),
    Recipe("vertex", 1, {"[providers.vertex]": VERTEX}, ("claude-haiku-5",)),
    Recipe("vertex", 2, {"[providers.vertex]": VERTEX}, ("claude-haiku-5",)),
    Recipe("vertex", 3, {"https://aiplatform.googleapis.com": VERTEX_KEY}, ("gemini-2.5-pro", "vertex/gemini-3.8-flash")),
    Recipe("team", 0, {"https://api.anthropic.com": ANTHROPIC, "https://api.deepseek.com": DEEPSEEK}, ("fast", "claude-opus-5-5")),
]  # fmt: skip


def _blocks(page: str) -> list[str]:
    return re.findall(r"^```toml\n(.*?)^```$", (RECIPES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)


def test_every_block_is_in_the_table() -> None:
    pages = {page.stem: range(len(_blocks(page.stem))) for page in RECIPES.glob("*.md")}
    assert sorted((name, number) for name, numbers in pages.items() for number in numbers) == sorted(
        (recipe.page, recipe.block) for recipe in TABLE
    )


def _client_key(number: int) -> str:
    return f"key-number-{number}-of-a-client"


def _prepare(recipe: Recipe, addresses: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The block with the addresses of the imitations, and with the keys of clients."""
    text = _blocks(recipe.page)[recipe.block]
    for variable in re.findall(r'api_key_env = "(\w+)"', text):
        monkeypatch.setenv(variable, variable)
    for variable in ("OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.setenv(variable, variable)
    for shown, address in addresses.items():
        assert shown in text
        is_table = shown.startswith("[")  # the address is made from a region, a project or a resource
        text = text.replace(shown, f'{shown}\nbase_url = "{address}"' if is_table else address)
    numbers = iter(range(1, 100))
    hashed = lambda _: hashlib.sha256(_client_key(next(numbers)).encode()).hexdigest()  # noqa: E731
    text = re.sub(r'(?<=sha256 = ")…', hashed, text)
    return text.replace('"0.0.0.0"', '"127.0.0.1"') + '\n[store]\nurl = "none"\n'


def _two_turns_in_chat(url: str, key: str, model: str) -> None:
    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        tools: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]
        asked: list[Any] = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Weather in Paris?"},
        ]
        first = client.chat.completions.create(model=model, messages=asked, tools=tools).choices[0].message
        assert first.tool_calls is not None
        call: Any = first.tool_calls[0]
        assert (call.function.name, call.function.arguments.replace(" ", "")) == ("get_weather", '{"city":"Paris"}')
        asked += [first, {"role": "tool", "tool_call_id": call.id, "content": "15 degrees"}]
        assert (
            client.chat.completions.create(model=model, messages=asked, tools=tools).choices[0].message.content == DONE
        )


def _two_turns_in_messages(url: str, key: str, model: str) -> None:
    with Anthropic(base_url=url, api_key=key, max_retries=0) as client:
        schema: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        tools: Any = [{"name": "get_weather", "input_schema": schema}]
        asked: list[Any] = [{"role": "user", "content": "Weather in Paris?"}]
        first = client.messages.create(model=model, max_tokens=100, system="Be brief.", messages=asked, tools=tools)
        call: Any = first.content[0]
        assert (call.name, call.input) == ("get_weather", CALLED)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "15 degrees"}
        asked += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second: Any = client.messages.create(model=model, max_tokens=100, messages=asked, tools=tools)
        assert second.content[0].text == DONE


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where credentials of the clouds come from: keys, a profile, a service account, metadata servers, and programs that
    are called as the clouds' own."""

    def respond(seen: Seen) -> Answer:
        if seen.form.get("Action") == "AssumeRole":
            return Answer(200, ASSUMED_ROLE.encode(), {"content-type": "text/xml"})
        token = {"access_token": "token-of-the-cloud", "expires_in": 3599}
        return Answer(200, token, {"metadata-flavor": "Google"})

    (tmp_path / "bin").mkdir()
    exported = {"Version": 1, "AccessKeyId": AWS_KEYS.access_key, "SecretAccessKey": AWS_KEYS.secret_key}
    for program, printed in (
        ("gcloud", "token-of-the-cloud"),
        ("az", "token-of-the-cloud"),
        ("aws", json.dumps(exported)),
    ):
        file = tmp_path / "bin" / program
        file.write_text(f"#!/bin/sh\necho '{printed}'\n")
        file.chmod(0o700)
    (tmp_path / "config").write_text("[profile work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = of-work\n")
    with serve_cloud(respond) as server:
        variables = {
            "HOME": str(tmp_path),
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "AWS_ACCESS_KEY_ID": AWS_KEYS.access_key,
            "AWS_SECRET_ACCESS_KEY": AWS_KEYS.secret_key,
            "AWS_CONFIG_FILE": str(tmp_path / "config"),
            "AWS_ENDPOINT_URL_STS": server.url,
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": server.url,
            "GCE_METADATA_HOST": server.url.removeprefix("http://"),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        service_account(tmp_path, server.url)
        yield


ASSUMED_ROLE = f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{ROLE_KEYS.access_key}</AccessKeyId><SecretAccessKey>{ROLE_KEYS.secret_key}</SecretAccessKey>
<SessionToken>{ROLE_KEYS.token}</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("recipe", TABLE, ids=[f"{recipe.page}-{recipe.block}" for recipe in TABLE])
def test_the_recipe_works(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        running = {shown: stack.enter_context(serve_imitation(server)) for shown, server in recipe.servers.items()}
        addresses = {shown: address for shown, (address, _) in running.items()}
        text = _prepare(recipe, addresses, monkeypatch)
        assert [problem for problem in find_problems(text, {}) if problem.severity == "error"] == []
        file = tmp_path / "toolwire.toml"
        file.write_text(text + "\n")
        url = stack.enter_context(serve_config(file))
        for model in recipe.models:
            _two_turns_in_chat(url, _client_key(1), model)
            _two_turns_in_messages(url, _client_key(1), model)
        assert all(seen for _, seen in running.values()), "a server of the page was not asked"


def test_a_fallback_of_a_recipe_answers_when_the_first_server_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = next(recipe for recipe in TABLE if recipe.page == "team")
    with serve_imitation(DEEPSEEK) as (address, seen):
        addresses = {"https://api.deepseek.com": address, "https://api.anthropic.com": "http://127.0.0.1:1"}
        text = _prepare(recipe, addresses, monkeypatch).replace("[server]\n", "[server]\nretries = 0\n")
        (tmp_path / "toolwire.toml").write_text(text)
        with serve_config(tmp_path / "toolwire.toml") as url:
            _two_turns_in_messages(url, _client_key(2), "claude-opus-5-5")
        assert seen == ["openai-chat", "openai-chat"]


def test_a_key_of_the_team_reaches_its_models_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from openai import APIStatusError

    recipe = next(recipe for recipe in TABLE if recipe.page == "team")
    with serve_imitation(DEEPSEEK) as (address, _):
        addresses = {"https://api.deepseek.com": address, "https://api.anthropic.com": "http://127.0.0.1:1"}
        (tmp_path / "toolwire.toml").write_text(_prepare(recipe, addresses, monkeypatch))
        with serve_config(tmp_path / "toolwire.toml") as url:
            _two_turns_in_chat(url, _client_key(3), "fast")
            with pytest.raises(APIStatusError) as refused:
                _two_turns_in_chat(url, _client_key(3), "claude-opus-5-5")
            assert refused.value.status_code in (403, 404)
