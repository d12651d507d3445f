"""Rights come from keys alone: what a client claims (its user agent, a name in another header) never gives it anything."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs import load_config
from gateway.mcp_gateway import COMMAND
from gateway.raw_exchange import CLIENTS, Served, call, stage, whole_answer
from toolwire.gateway.features.mcp.servers import McpClient, is_offered_to
from toolwire.gateway.features.mcp.settings import McpServer, McpSettings
from toolwire.gateway.settings.config import Config
from toolwire.policy.rules import Policy, RuleSubject

KEYS = {name: f"tw-{name}-key-0123456789" for name in ("admin", "guest", "anthropic")}
KEY_TABLES = "".join(
    f'[[server.keys]]\nname = "{name}"\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n'
    for name, key in KEYS.items()
)
SELECTED = {
    "keyed": 'keys = ["admin"]',
    "globbed": 'keys = ["adm*"]\nmodels = ["*"]',
    "limited": 'keys = ["admin"]\nagents = ["codex"]',
    "claimed": 'agents = ["*"]',
    "spoken": 'protocols = ["unified"]',
}
AUDIENCE = {
    "keyed": {"admin"},
    "globbed": {"admin"},
    "limited": set(),
    "claimed": set(),
}
"""The keys that get the tools of a server, in every protocol and with every user agent that is not Codex."""
CLAIMS = ("admin/1.0", "admin", "keyed", "*", "adm", "anthropic/1", "guest, admin", "openai-chat", "python-httpx/0.28")


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    # One program is enough to see a server's tools on the wire; the table of all is below.
    more = f'[mcp.keyed]\n{COMMAND}\ntools = ["echo"]\n{SELECTED["keyed"]}\n'
    more += f'[mcp.limited]\n{COMMAND}\ntools = ["echo"]\n{SELECTED["limited"]}\n'
    more += f'[mcp.searching]\n{COMMAND}\ntools = ["echo"]\nkeys = ["admin"]\nagents = ["nobody"]\n'
    more += '[translate]\nweb_search = "mcp:searching/echo"\n'
    more += '[[policy]]\ntool = "shell"\ndrop = true\n[[policy]]\ntool = "shell"\nagent = "codex"\ndrop = false\n'
    more += '[[policy]]\ntool = "shell"\nkey = "admin"\ndrop = false\n'
    with stage(tmp_path_factory.mktemp("rights"), f"retries = 0\ncooldown_after = 9999\n{KEY_TABLES}", more) as staged:
        yield staged


def _tools(served: Served, client: str, key: str, agent: str, **more: object) -> set[str]:
    """The tools that the provider was told of."""
    scene = served.scene("openai-chat", whole_answer("openai-chat"))
    headers = {"authorization": f"Bearer {KEYS[key]}", "user-agent": agent}
    assert call(served, client, scene.model, False, headers, **more).status == 200
    return {tool["function"]["name"] for tool in scene.asked[0].json().get("tools", ())}


@pytest.mark.parametrize("agent", CLAIMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_user_agent_gives_no_tools(served: Served, client: str, agent: str) -> None:
    assert _tools(served, client, "guest", agent) == set()
    assert _tools(served, client, "admin", agent) == {"keyed__echo"}


def test_a_user_agent_takes_tools_away(served: Served) -> None:
    assert _tools(served, "openai-chat", "admin", "codex_exec/0.99") == {"keyed__echo", "limited__echo"}
    assert _tools(served, "openai-chat", "guest", "codex_exec/0.99") == set()


def test_a_tool_that_replaces_a_providers_own_is_for_its_keys_too(served: Served) -> None:
    asked = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    assert "searching__echo" in str(_tools(served, "anthropic", "admin", "x", **asked))
    assert not any("echo" in name for name in _tools(served, "anthropic", "guest", "x", **asked))


SHELL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize("agent", [*CLAIMS, "codex_exec/0.99", "codex"])
def test_a_user_agent_does_not_undo_a_rule(served: Served, agent: str) -> None:
    assert "shell" not in _tools(served, "openai-chat", "guest", agent, tools=[SHELL])
    assert "shell" in _tools(served, "openai-chat", "admin", agent, tools=[SHELL])


# --- every selector, without programs ---


def _load_rights(folder: Path, keys: str = KEY_TABLES, more: str = "") -> Config:
    servers = "".join(f'[mcp.{name}]\ncommand = "x"\n{lines}\n' for name, lines in SELECTED.items())
    file = folder / "toolwire.toml"
    file.write_text(f"{keys}{servers}{more}")
    return load_config(file, {})


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, McpServer]:
    return dict(_load_rights(tmp_path_factory.mktemp("servers")).section(McpSettings).servers)


NAMES = (
    st.sampled_from(["admin", "guest", "anthropic", "*", "", "openai-chat", "unified", "adm", "admin/1.0"]) | st.text()
)


@given(st.sampled_from([*AUDIENCE]), st.sampled_from([*KEYS, ""]), st.sampled_from(CLIENTS), NAMES, NAMES)
def test_whatever_is_claimed_only_the_key_counts(
    servers: dict[str, McpServer], name: str, key: str, protocol: str, agent: str, product: str
) -> None:
    given_tools = is_offered_to(servers[name], McpClient(("m", "n"), protocol, key, (agent, product)))
    assert given_tools == (key in AUDIENCE[name])


def test_what_is_ambiguous_is_warned_of(tmp_path: Path) -> None:
    found = [(problem.location, problem.message) for problem in _load_rights(tmp_path).warnings]
    assert ("mcp.claimed", "no client gets these tools") in found
    assert ("mcp.keyed.keys.0", "there is no client key `admin`") in [
        (problem.location, problem.message) for problem in _load_rights(tmp_path, "").warnings
    ]


GRANTS = {
    "drop": ("drop = true", "drop = false"),
    "validate": ('validate = "refuse"', 'validate = "off"'),
    "strict": ("strict = true", "strict = false"),
    "parallel": ("parallel = false", "parallel = true"),
}


@pytest.mark.parametrize("selected", ['agent = "codex"', 'agent = ["*"]', 'agent = "codex"\nclient = "anthropic"'])
@pytest.mark.parametrize("effect", GRANTS)
def test_an_agent_never_undoes_what_is_forbidden(tmp_path: Path, effect: str, selected: str) -> None:
    forbids, allows = GRANTS[effect]
    text = f'[[policy]]\ntool = "t"\n{forbids}\n[[policy]]\ntool = "t"\n{selected}\n{allows}\n'
    subject = RuleSubject("anthropic", "codex", "p", "m", "m", "codex_exec", "guest")

    def last_word(config: Config) -> object:
        values = [getattr(rule, effect) for rule in Policy(config.policy).active_rules(subject)]
        return [value for value in values if value not in (None, "")][-1]

    forbidden = re.split(" = ", forbids)[1]
    config = _load_rights(tmp_path, more=text)
    assert last_word(config) == json.loads(forbidden)
    assert any("would allow by the agent" in problem.message for problem in config.warnings)
    # On one's own machine, without keys, there is nobody to protect it from; and a key may allow.
    allowed = re.split(" = ", allows)[1]
    assert last_word(_load_rights(tmp_path, "", more=text)) == json.loads(allowed)
    keyed = text.replace(selected, f'{selected}\nkey = "guest"')
    assert last_word(_load_rights(tmp_path, more=keyed)) == json.loads(allowed)
    other = text.replace(selected, f'{selected}\nkey = "admin"')
    assert last_word(_load_rights(tmp_path, more=other)) == json.loads(forbidden)
