"""What is easily forgotten when something is added: its row in the documentation, or in a table elsewhere."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import get_args

import msgspec

from gateway.exchange_records import make_record
from toolwire.gateway.features.limits.counters import UNIT_SECONDS, Unit, find_window
from toolwire.gateway.features.limits.settings import AMOUNTS
from toolwire.gateway.settings.config import LimitAmounts
from toolwire.gateway.settings.providers import known_servers
from toolwire.gateway.telemetry.log import LogLine, json_line_head
from toolwire.gateway.telemetry.metrics import METRICS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "toolwire"
OBSERVE = (ROOT / "docs" / "guides" / "observe.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in OBSERVE.splitlines() if line.startswith("|")]


def test_every_metric_has_its_row_with_its_labels() -> None:
    rows = {name: row[1] for row in ROWS for name in re.findall(r"`(toolwire_\w+)`", row[0])}
    assert rows.keys() == METRICS.keys()
    for name, labels in rows.items():
        shown = set(re.findall(r"\w+", labels))
        assert {*METRICS[name].labels} <= shown, name


def test_every_field_of_a_log_line_has_its_row() -> None:
    full = make_record(
        key_name="k", team="t", agent="a", user_agent="u/1", client_address="::1", method="POST", path="/p",
        client_protocol="c", provider_protocol="c", provider="p", account="a", requested_model="m", model="m",
        stream=True, is_passthrough=True, status=200, failure="f", client_disconnected=True, losses=("tool-dropped",),
    )  # fmt: skip
    head = json.loads(b'{"event":' + bytes(json_line_head(full)) + b"}")
    fields = {*head, *(field.name for field in msgspec.structs.fields(LogLine))}
    assert fields - {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])} == set()


def _texts() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        yield from (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_every_event_of_the_log_is_named() -> None:
    """The names of events are the texts that a function for events gets first, or that a type or a choice lists."""
    listed = re.search(r"Other lines have another `event`:(.*?)\n\n", OBSERVE, re.DOTALL)
    assert listed is not None
    shown = {*re.findall(r"`([a-z]+(?:_[a-z]+)*)`", listed[1])} - {"log_bodies"}
    named = set()
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("log_event", "_write_event")):
                named |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
    assert named - shown == set(), "see `Log` in docs/guides/observe.md"
    assert shown - {*_texts()} == set(), "no such events are left"


def test_every_header_of_ours_has_its_row() -> None:
    page = (ROOT / "docs" / "reference" / "http.md").read_text("utf-8")
    rows = {
        name for line in page.splitlines() if line.startswith("|") for name in re.findall(r"x-toolwire-[a-z-]+", line)
    }
    assert rows == {name for text in _texts() for name in re.findall(r"^x-toolwire-[a-z-]+$", text)}


INNER_VARIABLES = {
    "TOOLWIRE_DEMO_SECRET": "the demo sets it for its own gateway",
    "TOOLWIRE_KEY": "the old name of TOOLWIRE_CLIENT_KEY, which is read with a warning",
    "TOOLWIRE_SECRET": "only a name in an example that a message shows",
}


def test_every_variable_of_ours_is_documented() -> None:
    pages = "".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
    named = {text for text in _texts() if re.fullmatch(r"TOOLWIRE_[A-Z_]+", text)}
    assert named - {*re.findall(r"TOOLWIRE_[A-Z_]+", pages)} == INNER_VARIABLES.keys()


def test_every_server_has_its_name_in_traces() -> None:
    """OpenTelemetry has names of its own for some providers; the others keep ours."""
    theirs = "anthropic azure.ai.openai cohere deepseek gcp.gemini groq mistral_ai moonshot_ai openai perplexity x_ai"
    renamed = msgspec.json.decode(files("toolwire.gateway.telemetry").joinpath("spans.json").read_bytes())
    assert {renamed.get(name, name) for name in known_servers()} >= {*theirs.split()}


def test_every_amount_of_a_limit_has_a_counter() -> None:
    assert AMOUNTS.keys() == {field.name for field in msgspec.structs.fields(LimitAmounts)}
    assert {unit for _, unit in AMOUNTS.values()} <= {*get_args(Unit)}
    assert {*get_args(Unit)} == {*UNIT_SECONDS, "month", "none"}
    for unit in get_args(Unit):
        start, end = find_window(unit, 1_800_000_000.0)
        assert start <= 1_800_000_000 < end
