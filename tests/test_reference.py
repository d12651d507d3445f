"""Reference pages that are made from the code: losses, options, the configuration, the catalogue, and the command line; and
the list of well-known servers in the guide to providers.

After a change, `python tests/test_reference.py` writes them again.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from toolwire.cli.commands import COMMANDS
from toolwire.cli.help import full_help
from toolwire.cli.translation.tools import tool_rows, type_text
from toolwire.cli.usage import CommandParser
from toolwire.core.codec import ModelFacts
from toolwire.core.losses import LOSS_CODES
from toolwire.gateway.configuration.load import SECTIONS
from toolwire.gateway.settings import config as gateway
from toolwire.gateway.settings.policies import PolicyTable, load_catalogue, load_presets, preset_rules
from toolwire.gateway.settings.prices import Prices, PriceTier, Rates
from toolwire.gateway.settings.providers import AccountTable, ProviderTable, known_servers
from toolwire.policy.effects import CONVERSIONS
from toolwire.policy.rules import Rule
from toolwire.protocols import CODECS
from toolwire.translation.options import Options

PAGES = Path(__file__).parent.parent / "docs" / "reference"
PROVIDERS = "../guides/providers.md"
SERVERS_START, SERVERS_END = "<!-- the list of servers, from providers.toml -->\n", "<!-- end of the list -->\n"


def losses() -> str:
    lines = [
        "# Losses",
        "",
        "Every loss has a code, a place in the input (a JSON Pointer; `event/N/…` in a stream), a severity, what happened and why.",
        "`lost` is gone, `changed` was renamed, moved or rewritten, `added` was made up because the target requires it,",
        "`repaired` was a fault of the model or its server, or looked like one. This page is generated from `core/losses.py`.",
    ]
    for severity in ("lost", "changed", "added", "repaired"):
        lines += ["", f"## {severity}", "", "| code | why |", "|---|---|"]
        rows = sorted((code, why) for code, (kind, why) in LOSS_CODES.items() if kind == severity)
        lines += [f"| `{code}` | {why} |".format(source="the source", target="the target") for code, why in rows]
    return "\n".join(lines) + "\n"


def options() -> str:
    lines = [
        "# Options",
        "",
        "Keywords of `translate`, `Stream` and `Options`. This page is generated from `translation/options.py`.",
        "",
        "| option | default | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | `{default!r}` | {meaning} |" for name, default, meaning in read_fields(Options)]
    return "\n".join(lines) + "\n"


def read_fields(shape: type[msgspec.Struct]) -> Iterator[tuple[str, object, str]]:
    """The fields of a Struct, its own before those that it shares: name, default (None too where a field has none), and
    the docstring below it."""
    source = "".join(inspect.getsource(each) for each in shape.__mro__ if each.__module__.startswith("toolwire"))
    docs = dict(re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL))
    shared = getattr(shape.__base__, "__struct_fields__", ())
    for field in sorted(msgspec.structs.fields(shape), key=lambda field: field.name in shared):
        yield field.name, field.default, " ".join(docs[field.name].split())


CALLS = tuple(gateway.CallSettings.__struct_fields__)
"""Both a provider and a model have these keys."""
OLD_KEYS = {"[mcp.NAME]": ("clients",)}
TABLES: tuple[tuple[str, type[msgspec.Struct], tuple[str, ...]], ...] = (
    ("[server]", gateway.ServerSettings, ("timeouts", "keys")),
    ("[server.timeouts]", gateway.Timeouts, ()),
    ("[[server.keys]]", gateway.ClientKey, ()),
    ("[providers.NAME]", ProviderTable, CALLS),
    ("[[providers.NAME.accounts]]", AccountTable, ()),
    ("[models.NAME]", gateway.ModelRule, ("name", *CALLS)),
    ("[providers.NAME]` and `[models.NAME]", gateway.CallSettings, ()),
    ("[models.NAME.facts]", ModelFacts, ()),
    ("[models.NAME.facts.prices]", Prices, ("tiers",)),
    ("[[models.NAME.facts.prices.tiers]]", PriceTier, tuple(Rates.__struct_fields__)),
    ("[translate]", gateway.TranslateSettings, ()),
    ("[store]", gateway.StoreSettings, ()),
    ("[[policy]]", PolicyTable, ("within",)),
    *((title, shape, OLD_KEYS.get(title, ())) for one in SECTIONS for title, shape in one.list_tables().items()),
)


def configuration() -> str:
    lines = [
        "# Configuration",
        "",
        "Toolwire uses the first file that it finds: `--config`, `$TOOLWIRE_CONFIG`, `./toolwire.toml` (only if you trust it, except for",
        "`serve` and `doctor config`: see [Security](../security.md#the-working-folder)), or `toolwire/toolwire.toml` in",
        "the XDG configuration folder. A file is optional: a key in the environment is enough for a provider. `toolwire doctor config`",
        "shows what is configured and what is wrong with it. [Providers](../guides/providers.md) has examples. This page is generated",
        "from the package `gateway/settings` and the `settings.py` of features and the console.",
    ]
    for title, shape, left_out in TABLES:
        lines += [
            "",
            f"## `{title}`",
            "",
            str(inspect.getdoc(shape)),
            "",
            "| key | default | meaning |",
            "|---|---|---|",
        ]
        lines += [
            f"| `{name}` | {write_default(default)} | {meaning} |"
            for name, default, meaning in read_fields(shape)
            if name not in left_out
        ]
    lines += [
        "",
        'A rule with only a provider and a model can be written in one line: `[models]`, then `fast = "groq/MODEL"`.',
        "",
        "## Conversions of a parameter",
        "",
        "For `as` in `reshape`, the client's form first.",
        "",
        "| conversion | meaning |",
        "|---|---|",
        *(f"| `{name}` | {one.description} |" for name, one in CONVERSIONS.items()),
    ]
    lines += ["", "## Quirks", "", "| protocol | quirk | |", "|---|---|---|"]
    lines += [
        f"| `{place.name}` | `{name}` | {q.about} |" for place in CODECS.values() for name, q in place.quirks.items()
    ]
    return "\n".join(lines) + "\n"


def providers() -> str:
    """The guide to providers, with its list of servers written again."""
    start, _, rest = (PAGES / PROVIDERS).read_text().partition(SERVERS_START)
    _, mark, end = rest.partition(SERVERS_END)
    return start + SERVERS_START + "\n".join(["", *list_servers(), ""]) + mark + end


def list_servers() -> Iterator[str]:
    servers = known_servers()
    yield "| name | | variable for the key | protocols | address; variable for another | its models without a prefix | quirks |"
    yield "|---" * 7 + "|"
    for name, row in servers.items():
        urls = [row.base_url] if isinstance(row.base_url, str) else row.base_url.values()
        link = f"[{row.title}]({row.source[0]})"
        key = list_words(row.key_env) + (" *" if row.only_if_named else "")
        cells = (
            key,
            list_words(row.protocols),
            "; ".join(filter(None, (list_words(filter(None, urls)), list_words(row.base_url_env)))),
            list_words(row.models),
            list_words(row.quirks),
        )
        yield f"| `{name}` | {link} | {' | '.join(cells)} |"
    yield ""
    yield "\\* This variable is often set for other things, so it makes no provider by itself: write `[providers.NAME]` into the file."
    yield ""
    yield from (f"- **{row.title}**: {row.docs}" for row in servers.values() if row.docs)


def list_words(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def write_default(default: object) -> str:
    """A default as the file would have it; what has none must be given."""
    if default is msgspec.NODEFAULT:
        return "needed"
    if default is None or isinstance(default, msgspec.Struct) or default in ("", (), {}):
        return ""
    return f"`{json.dumps(default)}`"


def command_line() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "110")
        pages = [("toolwire", "".join(full_help()))]
        pages += [(f"toolwire {command}", CommandParser(command).format_help()) for command in COMMANDS]
    lines = [
        "# Command line",
        "",
        "Standard output carries data only; all else goes to standard error. This page is made from `--help`.",
    ]
    for name, text in pages:
        lines += ["", f"## {name}", "", "```text", text.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def tools() -> str:
    known = load_catalogue()
    titles = [agent.title for agent in known.agents.values()]
    lines = [
        "# Tools and presets",
        "",
        "The tools of coding agents, and what each agent calls them. Older names are in brackets. `toolwire tools` shows the same",
        "table. This page is made from `policy/catalogue.toml` and `policy/presets.toml`.",
        "",
        f"| tool | {' | '.join(titles)} |",
        "|---" * (len(titles) + 1) + "|",
        *(f"| [`{row[0]}`](#{row[0]}) | {' | '.join(row[1:])} |" for row in tool_rows(known)),
    ]
    for name, entry in known.tools.items():
        lines += [
            "",
            f"## {name}",
            "",
            entry.about,
            "",
            "| agent | name | parameter | type | | meaning |",
            "|---" * 6 + "|",
        ]
        for agent, its in known.agents.items():
            for row in entry.tools_of(agent):
                kind = f" ({row.kind})" if row.kind != "function" else ""
                first = f"{its.title} | `{row.name}`{kind}"
                for one in row.parameters:
                    marks = (("required", one.required), ("older", one.older or row.older))
                    marked = ", ".join(mark for mark, given in marks if given)
                    lines.append(
                        f"| {first} | `{one.name}` | {type_text(one)} | {marked} | {entry.parameter_meaning(one)} |"
                    )
                    first = " | "
                lines += [] if row.parameters else [f"| {first} | | | | |"]
    lines += ["", "## Presets", "", "The [guide](../guides/presets.md) shows how to use them."]
    for name, preset in load_presets().items():
        lines += ["", f"### {name}", "", preset.about, "", "| rule | does |", "|---|---|"]
        lines += [f"| {rule.name} | {effects(rule)} |" for rule in preset_rules()[name]]
    return "\n".join(lines) + "\n"


def effects(rule: Rule) -> str:
    """What a rule of a preset does, in a line."""
    reshaped = {name: f"{one.to}` as `{one.conversion}" for name, one in rule.reshape.items()}
    texts = [f"`{old}` becomes `{new}`" for old, new in (rule.parameters | reshaped).items()]
    texts += [f"without {list_words(rule.hide)}"] if rule.hide else []
    texts += [f"`{name}` is filled in" for name in rule.defaults]
    texts += [
        f"`{name} = {json.dumps(getattr(rule, name))}`"
        for name in ("drop", "max_tools", "describe_at_most", "parallel")
        if getattr(rule, name) is not None
    ]
    texts += [f"guidance: {rule.guidance}"] if rule.guidance else []
    texts += [f"keeps, in this order: {list_words(rule.keep)}"] if rule.keep else []
    return "; ".join(texts) or "only the name changes"


MADE = {
    "losses.md": losses,
    "options.md": options,
    "cli.md": command_line,
    "configuration.md": configuration,
    "tools.md": tools,
    PROVIDERS: providers,
}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="help is spelled a little differently by each Python")
@pytest.mark.parametrize("page", MADE)
def test_reference_says_what_the_code_says(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert (PAGES / page).read_text() == MADE[page]()


if __name__ == "__main__":
    for page, make in MADE.items():
        (PAGES / page).write_text(make())
