"""The log on a terminal: one line for each request, which fits the width, as golden text and from real processes."""

from __future__ import annotations

import json
import random
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cli.terminal_golden import compare_with_golden, start_on_terminal
from gateway.test_telemetry import exchange
from toolwire.core.ir import Usage
from toolwire.core.losses import LOSS_CODES
from toolwire.gateway.telemetry.record import CallUsage, ExchangeRecord
from toolwire.gateway.telemetry.text_lines import UNLIMITED, event_line, exchange_line
from toolwire.terminal.text import remove_colours, text_width

LONG_TOOL = ("mcp__a_very_long_server_name__and_its_tool", "mcp__a_very_long_c119ea564112")
REFUSED_KEY = (
    "the provider `groq` (api.groq.com) refused its key (401): Invalid API Key. Check GROQ_API_KEY, then restart the "
    "gateway"
)
LINES: dict[str, ExchangeRecord] = {
    "plain": exchange(ended=100.25, losses=(), requested_model="llama-4", usage=Usage(input=12, output=3)),
    "an alias, a stream, a cache": exchange(ended=101.5, losses=("id-rewritten",)),
    "tools called": exchange(ended=101.5, losses=(), tool_calls=(("Bash", "Bash"), ("Bash", "Bash"), ("Read", "Read"))),
    "a renamed tool": exchange(ended=101.5, losses=("name-rewritten",), tool_calls=(LONG_TOOL,)),
    "a dropped tool": exchange(ended=101.5, losses=("tool-dropped", "tool-dropped", "max-tokens-added", "system-moved")),
    "everything": exchange(
        ended=112.75,
        losses=("tool-dropped", "seal-dropped", "seal-dropped", "id-rewritten", "turns-joined", "max-tokens-added"),
        tool_calls=(("Bash", "Bash"), LONG_TOOL, ("Read", "Read")),
        tool_runs=[("search", "ok"), ("fetch", "error")],
        usage=Usage(input=123_456, output=1234, cache_read=120_000),
        requested_model="claude-opus-4-5-20251101",
        model="moonshotai/kimi-k2-instruct-0905",
        attempts=[("groq", "429", 0.1), ("openrouter", "ok", 0.2)],
        provider="openrouter",
        key_name="team-of-three",
    ),
    "an estimate": exchange(ended=100.1, losses=(), usage_estimated=True),
    "a fallback": exchange(ended=100.9, losses=(), attempts=[("openai", "429", 0.1), ("groq", "ok", 0.2)]),
    "another account": exchange(
        ended=100.9, losses=(), account="b", attempts=[("groq/a", "429", 0.1), ("groq/b", "ok", 0.2)],
    ),
    "an account that fails": exchange(
        ended=100.2, status=429, failure="rate", losses=(), usage=None, account="a", attempts=[("groq/a", "429", 0.1)],
        message="Slow down.",
    ),
    "the client left": exchange(ended=100.9, losses=(), client_disconnected=True),
    "a failure": exchange(
        ended=100.2, status=401, failure="authentication", losses=(), usage=None, stream=False, message=REFUSED_KEY,
        attempts=[("groq", "401", 0.1)],
    ),
    "a refusal of the gateway": exchange(
        ended=100.0, status=400, failure="invalid", losses=(), usage=None, provider="", provider_protocol="", model="", requested_model="groq/x",
        attempts=[("groq", "refused_here", 0.0)], message="losses are not allowed here",
    ),
    "a price that is not known": exchange(
        ended=100.2, losses=(), is_priced=True, calls=(CallUsage("groq", "llama-4"),)
    ),
    "a short failure": exchange(
        ended=100.2, status=400, failure="invalid", losses=(), usage=None, provider="", model="", message="no model",
        requested_model="",
    ),
    "a stream that broke": exchange(ended=102.0, losses=(), failure="upstream", message="the stream ended (groq)"),
    "a page": exchange(
        ended=100.02, operation="models", method="GET", path="/v1/models", losses=(), usage=None, provider="",
        model="", requested_model="", user_agent="", client_protocol="openai-chat",
    ),
    "wide characters": exchange(ended=100.2, losses=(), tool_calls=(("天気を調べる", "tool_1"),), requested_model="通義"),
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 120, UNLIMITED])
@pytest.mark.parametrize("colour", [False, True])
def test_golden_lines(width: int, colour: bool) -> None:
    lines = [f"# {name}\n{exchange_line(record, '14:03:12', width, colour)}" for name, record in LINES.items()]
    fields = {
        "message": "no traces: opentelemetry is missing",
        "hint": "install the packages: pip install 'toolwire[otel]'",
    }
    lines.append("# an event\n" + event_line("config_problem", fields, "14:03:12", "warn", width, colour))
    lines.append(
        "# a short event\n" + event_line("config_reloaded", {"file": "x.toml"}, "14:03:12", "info", width, colour)
    )
    name = f"log/{'unlimited' if width == UNLIMITED else width}{'-colour' if colour else ''}"
    compare_with_golden(name, "".join(lines))


def test_every_line_fits_and_colour_changes_nothing() -> None:
    """Any mixture of parts, at any width; and what must be in the line is in it from 80 columns on."""
    chance = random.Random(18)
    for _ in range(600):
        some = [LINES[chance.choice([*LINES])] for _ in range(4)]
        record = exchange(
            ended=100.0 + chance.random() * 1000,
            losses=tuple(chance.choices([*LOSS_CODES], k=chance.randrange(9))),
            tool_calls=some[0].answer.tool_calls, tool_runs=some[1].answer.tool_runs, usage=some[2].answer.usage,
            requested_model=some[3].asked.model, model=some[3].upstream.model, message=some[1].message,
            attempts=some[2].attempts, key_name="k" * chance.randrange(30), status=some[1].status,
        )  # fmt: skip
        width = chance.randrange(40, 200)
        plain = exchange_line(record, "14:03:12", width, False)
        assert max(map(text_width, plain.splitlines())) <= width
        assert remove_colours(exchange_line(record, "14:03:12", width, True)) == plain
        line = plain.splitlines()[0]
        assert record.message or "\n" not in plain[:-1]
        lost = [code for code in record.answer.losses if LOSS_CODES[code][0] == "lost"]
        if width >= 80 and lost and len(record.attempts) < 2:
            assert any(code[:8] in line for code in lost), line


def test_the_sentence_of_a_failure_is_whole_at_every_width() -> None:
    for width in range(40, 200):
        assert REFUSED_KEY in " ".join(exchange_line(LINES["a failure"], "14:03:12", width, False).split())


# --- real processes -------------------------------------------------------------------------------------------------

MESSAGE = {
    "model": "loopback", "max_tokens": 50, "messages": [{"role": "user", "content": "call get_weather"}],
    "tools": [{"name": "get_weather", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "get_weather"},
}  # fmt: skip


def post(origin: str, path: str, body: object) -> int:
    request = urllib.request.Request(
        origin + path, json.dumps(body).encode(), {"content-type": "application/json", "user-agent": "claude-cli/2.1.0"}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.read()
        return error.code


ORIGIN = r"http://127\.0\.0\.1:\d+"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toolwire.toml").write_text('[store]\nurl = "none"\n')
    return tmp_path


@pytest.mark.parametrize("colour", [False, True])
def test_a_terminal_shows_one_line_that_fits(folder: Path, colour: bool) -> None:
    environ = {} if colour else {"NO_COLOR": "1"}
    with start_on_terminal(["serve", "--port", "0"], folder, 80, environ) as process:
        origin = re.findall(ORIGIN, process.read_until(rf"{ORIGIN}.*\n[^$]*export.*\n"))[0]
        assert post(origin, "/v1/messages", MESSAGE) == 200
        process.read_until(r"calls get_weather.*\n")
        assert post(origin, "/v1/messages", {**MESSAGE, "model": "nobody-serves-this"}) == 404
        text = process.read_until(r"nobody-serves-this[\s\S]*unknown model[\s\S]*\n")
    line = next(one for one in text.splitlines() if "get_weather" in one)
    assert ("\x1b[" in line) is colour
    # How many digits the milliseconds have decides whether the tokens are written long or short.
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d 200 claude.* → loopback.*  loopback  calls get_weather  "
        r".*(?:\d+ in, \d+ out.*|\d+/\d+ tok)  \d+ ms",
        remove_colours(line),
    )
    assert text_width(line) <= 80
    assert all(text_width(one) <= 80 for one in text[text.index(line) :].splitlines())


@pytest.mark.parametrize("words", [["--log-format", "json"], []])
def test_json_when_it_is_asked_for_on_a_terminal(folder: Path, words: list[str]) -> None:
    if not words:
        (folder / "toolwire.toml").write_text('[server]\nlog_format = "json"\n[store]\nurl = "none"\n')
    with start_on_terminal(["serve", "--port", "0", *words], folder, 80) as process:
        origin = re.findall(ORIGIN, process.read_until(rf"{ORIGIN}.*\n[^$]*export.*\n"))[0]
        post(origin, "/v1/messages", MESSAGE)
        text = process.read_until(r'"event":"exchange".*\n')
    line = json.loads(next(one for one in text.splitlines() if '"event":"exchange"' in one))
    assert line["tool_calls"] == [["get_weather", "get_weather"]]
