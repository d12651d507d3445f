"""Claude Code as companies start it that have a cloud: in its modes for Amazon Bedrock and Vertex AI."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.agent import AgentResult, AgentWorkspace
from agents.claude import AGENT, headless, shell
from agents.conftest import gateway, laid
from agents.received import pairs
from agents.scenes import DONE, ended_well
from gateway.provider import Provider, Script, ScriptedAnswer
from waits import PATIENCE

KEY = "key-of-the-client"
OTHER_KEY = "another-key-of-nobody"
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
BEDROCK = {
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "ANTHROPIC_BEDROCK_BASE_URL": "{base}",
    "AWS_REGION": "eu-west-1",
    "ANTHROPIC_MODEL": "eu.anthropic.claude-opus-5-5",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "eu.anthropic.claude-opus-5-5",
}
VERTEX = {
    "CLAUDE_CODE_USE_VERTEX": "1",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
    "ANTHROPIC_VERTEX_BASE_URL": "{base}/v1",
    "ANTHROPIC_VERTEX_PROJECT_ID": "our-project",
    "CLOUD_ML_REGION": "global",
    "ANTHROPIC_MODEL": "claude-opus-5-5",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "claude-opus-5-5",
    "ANTHROPIC_CUSTOM_HEADERS": "Authorization: Bearer {key}",
}
MODES = {
    "bedrock signed": {**BEDROCK, "AWS_ACCESS_KEY_ID": "{key}", "AWS_SECRET_ACCESS_KEY": "{key}"},
    "bedrock bearer": {**BEDROCK, "AWS_BEARER_TOKEN_BEDROCK": "{key}"},
    "vertex": VERTEX,
}
REFUSALS = dict.fromkeys(MODES, "unknown API key") | {"bedrock wrong secret": "the signature does not match"}
WRONG_SECRET = {**BEDROCK, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": OTHER_KEY}


@pytest.fixture
def desk(provider: Provider, tmp_path: Path) -> Iterator[AgentWorkspace]:
    """A desk of its own, and a gateway that wants the key."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    with gateway(tmp_path, provider, "anthropic", f'[[server.keys]]\nname = "ann"\nsha256 = "{digest}"') as config:
        yield laid(tmp_path, config)


def find_base(desk: AgentWorkspace) -> str:
    [port] = [line for line in desk.config.read_text().splitlines() if line.startswith("port = ")]
    return f"http://127.0.0.1:{port.removeprefix('port = ')}"


def play(desk: AgentWorkspace, mode: dict[str, str], key: str, talk: Script) -> AgentResult:
    base = find_base(desk)
    environ = {name: value.format(base=base, key=key) for name, value in mode.items()}
    done = subprocess.run(
        ["claude", *headless(f"Do as you are told. {talk.mark}")],
        cwd=desk.workspace,
        env={**desk.environ(AGENT), **QUIET, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE,
        check=False,
    )
    return AgentResult(done.returncode, done.stdout, done.stderr, looped=False, late=False)


@pytest.mark.parametrize("mode", MODES)
def test_a_call_and_its_end(desk: AgentWorkspace, provider: Provider, mode: str) -> None:
    call = ScriptedAnswer("I shall make it.", (shell("echo made-$((40+2)) | tee made.txt"),), thinking="A file.")
    talk = provider.script(call, ScriptedAnswer(DONE), signed=True)
    ended_well(talk, play(desk, MODES[mode], KEY, talk), 2)
    assert (desk.workspace / "made.txt").read_text() == "made-42\n"
    [(_, result)] = pairs(talk.asked[-1])
    assert "made-42" in result


@pytest.mark.parametrize("mode", REFUSALS)
def test_a_wrong_key_is_refused(desk: AgentWorkspace, provider: Provider, mode: str) -> None:
    talk = provider.script(ScriptedAnswer(DONE))
    ran = play(desk, MODES.get(mode, WRONG_SECRET), OTHER_KEY, talk)
    assert ran.code == 1, str(ran)
    assert REFUSALS[mode] in ran.out, str(ran)
    assert talk.asked == []
