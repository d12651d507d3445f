"""`toolwire policy explain`: what the rules would do to a request, before and after, and which rule does it.
`toolwire policy presets` lists the rules that have a name."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from difflib import SequenceMatcher

import msgspec
from msgspec import Struct

from toolwire.cli import EXIT_BAD_INPUT, CommandError, terminal, translate
from toolwire.cli.check_config import print_problems
from toolwire.core.codec import Codec
from toolwire.core.ir import AnyTool, Call, Request, Text, Tool, ToolChoice, ToolsAdded, replace_fields, source_path
from toolwire.core.json_values import Json, Malformed, decode, encode, expect_object, json_pointer
from toolwire.core.losses import Ledger, Loss
from toolwire.gateway.config.catalogue import load_presets, preset_rules
from toolwire.gateway.config.config import Config
from toolwire.gateway.config.load import load_config
from toolwire.gateway.config.problems import ConfigError, suggest_name
from toolwire.gateway.pipeline.headers import load_agents, recognise_agent
from toolwire.gateway.pipeline.route import Router, Target, Unroutable, choose_codec
from toolwire.policy.apply_rules import apply_rules
from toolwire.policy.rules import Policy, Rule, RuleSubject, matches_tool, tool_name
from toolwire.protocols import CODECS, UnknownProtocol, find_codec

_SYSTEM_ROLES = ("system", "developer")
UNKNOWN_VALUE = "–"
NO_SUCH_TOOL = "(no such tool here)"
MAX_SHOWN_CALLS = 10
"""How many calls of the conversation are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("explain", "presets"), help="explain a request, or list the presets")
    parser.add_argument("file", nargs="?", metavar="REQUEST.json", help="the client's request (default: stdin)")
    parser.add_argument("--client", metavar="P", help=f"the protocol that the client speaks: {', '.join(CODECS)}")
    parser.add_argument("--model", default="", metavar="M", help="the model that is asked for (default: the request's)")
    parser.add_argument("--agent", default="", metavar="A", help="the agent, by its name or its user agent")
    parser.add_argument("--provider", default="", metavar="X", help="the provider (default: the model's, by the file)")
    parser.add_argument(
        "--preset", action="append", default=[], metavar="NAME", help="try a preset, after the file's rules"
    )
    parser.add_argument("--config", metavar="FILE", help="the file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace) -> int:
    if args.action == "presets":
        return print_presets(args.json)
    if not args.client:
        raise CommandError("--client is missing", f"name the protocol of the request: {', '.join(CODECS)}")
    try:
        config = load_config(args.config, os.environ)
        client = find_codec(args.client)
        request = client.read_request(expect_object(decode(terminal.read_input(args.file)), None))
    except ConfigError as problems:
        print_problems(problems.problems, problems.file)
        return EXIT_BAD_INPUT
    except UnknownProtocol as unknown:
        raise CommandError(str(unknown), "the client's protocol is named with --client") from None
    except Malformed as bad:
        raise CommandError(
            f"{args.file or 'the input'}: {bad}", f"it is read as {args.client}; is that what it is?"
        ) from None
    explained = explain_request(config, client, request, args)
    sys.stdout.write(_explanation_json(explained) if args.json else "".join(explanation_page(explained)))
    return 0


def print_presets(as_json: bool) -> int:
    """The presets, each with what it is for."""
    known = {name: preset.about for name, preset in load_presets().items()}
    if as_json:
        whole = {
            name: {"about": said, "rules": translate.node_as_json(preset_rules()[name])} for name, said in known.items()
        }
        sys.stdout.write(msgspec.json.format(encode(whole), indent=2).decode() + "\n")
    else:
        sys.stdout.write(terminal.format_table(known.items()))
    return 0


# --- what happens ---------------------------------------------------------------------------------------------------


class Explanation(Struct, frozen=True):
    """A request before and after its rules."""

    subject: RuleSubject
    rules: tuple[Rule, ...]
    before: Request
    after: Request
    report: tuple[Loss, ...]
    refused: str = ""


def explain_request(config: Config, client: Codec, request: Request, args: argparse.Namespace) -> Explanation:
    asked = args.model or request.model
    target = _find_target(config, args.provider, asked)
    agent, product = (args.agent, args.agent) if args.agent in load_agents() else recognise_agent(args.agent)
    provider, model = (target.provider.name, target.model) if target is not None else (args.provider, asked)
    subject = RuleSubject(client.name, agent, provider, model, asked, product)
    tried = [rule for name in args.preset for rule in _find_preset(name)]
    rules = Policy((*config.policy, *tried)).active_rules(subject)
    request = replace_fields(request, model=subject.model) if subject.model != request.model else request
    ledger = Ledger(client.name, client.name)
    forces = (
        choose_codec(target, client, lambda: bool(request.tools)).constraints.can_force_tools
        if target is not None
        else None
    )
    try:
        after, _ = apply_rules(request, rules, ledger, forces)
    except Malformed as bad:
        return Explanation(subject, rules, request, request, ledger.losses, str(bad))
    return Explanation(subject, rules, request, after, ledger.losses)


def _find_preset(name: str) -> tuple[Rule, ...]:
    if name not in preset_rules():
        raise CommandError(f"no preset is called {name!r}", suggest_name(name, preset_rules()))
    return preset_rules()[name]


def _find_target(config: Config, provider: str, asked: str) -> Target | None:
    """Who would be asked, and for what; None where the file does not say."""
    found = Router(config).route(asked, None)
    if not provider and not isinstance(found, Unroutable):
        return found[0]
    if provider in config.providers:
        routed = [] if isinstance(found, Unroutable) else [one for one in found if one.provider.name == provider]
        return routed[0] if routed else Target(config.providers[provider], asked)
    said = (
        f"no provider is called `{provider}` ({suggest_name(provider, config.providers)})"
        if provider
        else "no provider is known"
    )
    sys.stderr.write(f"note: {said}, so what depends on it is left out\n")
    return None


# --- for people -----------------------------------------------------------------------------------------------------


def explanation_page(explanation: Explanation) -> Iterator[str]:
    subject, out = explanation.subject, sys.stdout
    told = (
        ("client", subject.client),
        ("agent", subject.agent or subject.user_agent_product),
        ("provider", subject.provider),
        ("model", subject.model),
    )
    yield terminal.format_table([(name, value or UNKNOWN_VALUE) for name, value in told])
    yield terminal.paint_text("\nrules in force\n", "head", out)
    names = [tool_name(tool) for tool in declared_tools(explanation.before)]
    spoken = [
        (f"  {rule.name}", "" if any(matches_tool(rule, name) for name in names) else NO_SUCH_TOOL)
        for rule in explanation.rules
    ]
    yield terminal.format_table(spoken) or "  none\n"
    if explanation.refused:
        yield terminal.paint_text("\nrefused\n", "lost", out) + f"  {explanation.refused}\n"
    yield terminal.paint_text("\ntools\n", "head", out)
    rows = [(f"  {row.verdict}", row.before, row.after, row.rule) for row in tool_rows(explanation)]
    colours = {"dropped": "lost", "kept": "ok"}
    yield terminal.format_table(rows, [colours.get(row[0].strip(), "changed") for row in rows]) or "  none\n"
    yield from _choice_section(explanation)
    yield from _call_section(explanation)
    yield from _other_section(explanation)
    yield from _instruction_section(explanation)


class ToolRow(Struct, frozen=True):
    """What became of one tool."""

    name: str
    verdict: str
    before: str
    after: str
    rule: str


_CHANGE_WORDS = {"policy-renamed": "renamed", "policy-reshaped": "reshaped", "policy-described": "described"}


def tool_rows(explanation: Explanation) -> list[ToolRow]:
    """A row a tool: what was done to it, both forms where they differ, and the rules."""
    noted: dict[str, list[Loss]] = {}
    for loss in explanation.report:
        noted.setdefault(loss.path, []).append(loss)
    rows: list[ToolRow] = []
    left = list(declared_tools(explanation.after))
    for tool in declared_tools(explanation.before):
        said, name = noted.get(json_pointer(source_path(tool)), []), tool_name(tool).name
        dropped = [loss for loss in said if loss.code == "policy-dropped"]
        rule = ", ".join(dict.fromkeys(_rule_name(loss) for loss in dropped or said))
        if dropped:
            rows.append(ToolRow(name, "dropped", tool_signature(tool), "", rule))
            continue
        new = left.pop(0) if left else tool
        verbs = [_CHANGE_WORDS[loss.code] for loss in said if loss.code in _CHANGE_WORDS]
        verdict = verbs[0] if len(verbs) == 1 else "kept" if new == tool else "changed"
        shown = f"→ {tool_signature(new)}" if tool_signature(new) != tool_signature(tool) else ""
        rows.append(ToolRow(name, verdict, tool_signature(tool), shown, rule))
    return rows


def declared_tools(request: Request) -> tuple[AnyTool, ...]:
    """All tools of a request, those that come in later too."""
    added = (part.tools for turn in request.turns for part in turn.parts if isinstance(part, ToolsAdded))
    return (*request.tools, *(tool for tools in added for tool in tools))


def _rule_name(loss: Loss) -> str:
    return loss.why.removeprefix("the rule ").strip("`")


def tool_signature(tool: AnyTool) -> str:
    """A tool in a line: its name and its parameters, `?` behind those that need not be given."""
    name = tool_name(tool)
    if not isinstance(tool, Tool) or not isinstance(tool.parameters, dict):
        return f"{name.name} ({name.kind})" if name.kind not in ("function", name.name) else name.name
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    keys = properties if isinstance(properties, dict) else {}
    needed = required if isinstance(required, list) else []
    return f"{tool.name}({', '.join(key if key in needed else f'{key}?' for key in keys)})"


def _choice_section(explanation: Explanation) -> Iterator[str]:
    before, after = choice_text(explanation.before.choice), choice_text(explanation.after.choice)
    if before != after:
        wanted = (
            [tool.name for tool in explanation.before.choice.tools] if explanation.before.choice is not None else []
        )
        rules = [row.rule for row in tool_rows(explanation) if row.name in wanted and row.rule]
        rules = rules or [_rule_name(loss) for loss in explanation.report if loss.code == "policy-choice"]
        yield terminal.paint_text("\nchoice\n", "head", sys.stdout)
        yield terminal.format_table([(f"  {before}", f"→ {after}", ", ".join(dict.fromkeys(rules)))])


def choice_text(choice: ToolChoice | None) -> str:
    if choice is None:
        return "(none said)"
    return " ".join((choice.mode, *(tool.name for tool in choice.tools)))


def _call_section(explanation: Explanation) -> Iterator[str]:
    """Calls of the conversation that the model sees otherwise than the client made them."""
    pairs = zip(history_calls(explanation.before), history_calls(explanation.after), strict=True)
    rows = [(f"  {old.name} {old.arguments}", f"→ {new.name} {new.arguments}") for old, new in pairs if old != new]
    if rows:
        more = f"  and {len(rows) - MAX_SHOWN_CALLS} more\n" if len(rows) > MAX_SHOWN_CALLS else ""
        yield (
            terminal.paint_text("\ncalls in the conversation\n", "head", sys.stdout)
            + terminal.format_table(rows[:MAX_SHOWN_CALLS])
            + more
        )


def history_calls(request: Request) -> list[Call]:
    return [part for turn in request.turns for part in turn.parts if isinstance(part, Call)]


def _other_section(explanation: Explanation) -> Iterator[str]:
    """What else is in the report, apart from tools and choice."""
    told = {"policy-dropped", "policy-choice", *_CHANGE_WORDS}
    rows = [(f"  {loss.what}", _rule_name(loss)) for loss in explanation.report if loss.code not in told]
    if rows:
        yield terminal.paint_text("\nelse\n", "head", sys.stdout)
        yield terminal.format_table(rows)


def _instruction_section(explanation: Explanation) -> Iterator[str]:
    before, after = instruction_text(explanation.before).splitlines(), instruction_text(explanation.after).splitlines()
    if before != after:
        yield terminal.paint_text("\ninstructions\n", "head", sys.stdout)
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(1):
        yield terminal.paint_text(f"  line {group[0][1] + 1}\n", "dim", sys.stdout)
        for what, old, old_end, new, new_end in group:
            same = what == "equal"
            yield from (f"    {line}\n" for line in before[old:old_end] if same)
            yield from (
                terminal.paint_text(f"  - {line}".rstrip(), "lost", sys.stdout) + "\n"
                for line in before[old:old_end]
                if not same
            )
            yield from (
                terminal.paint_text(f"  + {line}".rstrip(), "ok", sys.stdout) + "\n"
                for line in after[new:new_end]
                if not same
            )


def instruction_text(request: Request) -> str:
    """All that the model is told by others than the user."""
    turns = (turn.parts for turn in request.turns if turn.role in _SYSTEM_ROLES)
    return "\n\n".join(part.text for parts in (request.system, *turns) for part in parts if isinstance(part, Text))


# --- for programs ---------------------------------------------------------------------------------------------------


def _explanation_json(explanation: Explanation) -> str:
    whole: Json = {
        "subject": msgspec.to_builtins(explanation.subject),
        "rules": [rule.name for rule in explanation.rules],
        "before": _request_document(explanation.before),
        "after": _request_document(explanation.after) if not explanation.refused else None,
        "tools": [msgspec.to_builtins(row) for row in tool_rows(explanation)] if not explanation.refused else [],
        "report": [msgspec.to_builtins(loss) for loss in explanation.report],
        "refused": explanation.refused,
    }
    return msgspec.json.format(encode(whole), indent=2).decode() + "\n"


def _request_document(request: Request) -> Json:
    return {
        "tools": [translate.node_as_json(tool) for tool in declared_tools(request)],
        "choice": None if request.choice is None else translate.node_as_json(request.choice),
        "instructions": instruction_text(request),
        "calls": [translate.node_as_json(call) for call in history_calls(request)],
    }
