"""`toolwire policy explain`: what the policy rules do to a request, and which rule does it.
`toolwire policy presets`: the predefined rules."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from difflib import SequenceMatcher

import msgspec
from msgspec import Struct

from toolwire import terminal
from toolwire.cli import usage
from toolwire.cli.config import load_or_report
from toolwire.cli.translation.translate import node_as_json
from toolwire.core import ir
from toolwire.core.codec import Codec
from toolwire.core.json_values import Json, Malformed, json_pointer, parse_object
from toolwire.core.losses import Ledger, Loss
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.policies import load_presets, preset_rules
from toolwire.gateway.settings.problems import suggest_name
from toolwire.gateway.settings.router import Router, Target, choose_codec
from toolwire.gateway.telemetry.agents import load_agents, recognise_agent
from toolwire.policy.apply_rules import apply_rules
from toolwire.policy.rules import Policy, Rule, RuleSubject, matches_tool, tool_name
from toolwire.protocols import CODECS
from toolwire.terminal import CommandError

UNKNOWN_VALUE = "–"
NO_SUCH_TOOL = "(matches no tool of this request)"
MAX_SHOWN_CALLS = 10
CHANGE_WORDS = {"policy-renamed": "renamed", "policy-reshaped": "reshaped", "policy-described": "described"}
VERDICT_COLOURS = {"dropped": "lost", "kept": "ok"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=("explain", "presets"), help="explain a request, or list the presets")
    add("file", nargs="?", metavar="REQUEST.json", help="the client's request (default: standard input)")
    add("--client", metavar="PROTOCOL", help=f"protocol of the request: {', '.join(CODECS)}")
    add("--model", default="", metavar="M", help="the requested model (default: the one in the request)")
    add("--key", default="", metavar="NAME", help="the name of the client key that it is sent with")
    add("--team", default="", metavar="TEAM", help="the team of the client key (default: that of --key in the file)")
    add("--agent", default="", metavar="A", help="the agent that sends it, by its name or its user agent")
    add("--provider", default="", metavar="X", help="the provider (default: the configured one for the model)")
    add("--preset", action="append", default=[], metavar="NAME", help="also apply this preset, after the file's rules")
    usage.add_config_argument(parser)
    add("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    if args.action == "presets":
        return print_presets(args.json)
    if not args.client:
        raise CommandError("--client is missing", f"name the protocol of the request: {', '.join(CODECS)}")
    client = usage.find_protocol(args.client, "--client")
    config = load_or_report(args.config)
    try:
        request = client.read_request(parse_object(terminal.read_input(args.file)))
    except Malformed as bad:
        hint = f"the input was read as {args.client}; check --client"
        raise CommandError(f"{args.file or 'the input'}: {bad}", hint) from None
    explained = explain_request(config, client, request, args)
    if args.json:
        sys.stdout.write(terminal.format_json(explanation_document(explained)))
    else:
        sys.stdout.writelines(explanation_page(explained))
    return 0


def print_presets(as_json: bool) -> int:
    presets = {name: preset.about for name, preset in load_presets().items()}
    document = {name: {"about": about, "rules": node_as_json(preset_rules()[name])} for name, about in presets.items()}
    sys.stdout.write(terminal.format_json(document) if as_json else terminal.format_table(presets.items()))
    return 0


# --- applying the rules ---------------------------------------------------------------------------------------------


class Explanation(Struct, frozen=True):
    """A request before and after the rules were applied."""

    subject: RuleSubject
    rules: tuple[Rule, ...]
    before: ir.Request
    after: ir.Request
    report: tuple[Loss, ...]
    refused: str = ""


def explain_request(config: Config, client: Codec, request: ir.Request, args: argparse.Namespace) -> Explanation:
    requested = args.model or request.model
    target = _find_target(config, args.provider, requested)
    agent, product = (args.agent, args.agent) if args.agent in load_agents() else recognise_agent(args.agent)
    provider, model = (target.provider.name, target.model) if target is not None else (args.provider, requested)
    team = args.team or next((key.team for key in config.server.keys if key.name == args.key), "")
    subject = RuleSubject(client.name, agent, provider, model, requested, product, args.key, team)
    presets = [rule for name in args.preset for rule in _find_preset(name)]
    rules = Policy((*config.policy, *presets)).active_rules(subject)
    request = ir.replace_fields(request, model=subject.model) if subject.model != request.model else request
    ledger = Ledger(client.name, client.name)
    codec = choose_codec(target, client, lambda: bool(request.tools)) if target is not None else None
    can_force = codec.constraints.can_force_tools if codec is not None else None
    try:
        after, _ = apply_rules(request, rules, ledger, can_force)
    except Malformed as bad:
        return Explanation(subject, rules, request, request, ledger.losses, str(bad))
    return Explanation(subject, rules, request, after, ledger.losses)


def _find_preset(name: str) -> tuple[Rule, ...]:
    if name not in preset_rules():
        raise CommandError(f"unknown preset {name!r}", suggest_name(name, preset_rules()))
    return preset_rules()[name]


def _find_target(config: Config, provider: str, model: str) -> Target | None:
    """The provider and model that the request would go to; None if the configuration does not tell."""
    routed = Router(config).route(model, None)
    targets = () if isinstance(routed, ir.Failure) else routed
    if not provider and targets:
        return targets[0]
    if provider in config.providers:
        routed_there = (target for target in targets if target.provider.name == provider)
        return next(routed_there, Target(config.providers[provider], model))
    problem = "the provider is unknown"
    if provider:
        problem = f"unknown provider `{provider}` ({suggest_name(provider, config.providers)})"
    sys.stderr.write(f"note: {problem}, so rules that depend on it are not applied\n")
    return None


# --- as a page ------------------------------------------------------------------------------------------------------


def explanation_page(explanation: Explanation) -> Iterator[str]:
    subject = explanation.subject
    facts = (
        ("client", subject.client),
        ("agent", subject.agent or subject.user_agent_product),
        ("provider", subject.provider),
        ("model", subject.model),
    )
    yield terminal.format_table([(name, value or UNKNOWN_VALUE) for name, value in facts])
    yield "\n" + terminal.heading("rules in force")
    names = [tool_name(tool) for tool in ir.list_declared_tools(explanation.before)]
    told = {_rule_name(loss) for loss in explanation.report}
    rules = [
        (f"  {rule.name}", "" if rule.name in told or any(matches_tool(rule, name) for name in names) else NO_SUCH_TOOL)
        for rule in explanation.rules
    ]
    yield terminal.format_table(rules) or "  none\n"
    if explanation.refused:
        yield terminal.paint_text("\nrefused\n", "lost") + f"  {explanation.refused}\n"
    yield "\n" + terminal.heading("tools")
    tools = tool_rows(explanation)
    rows = [(f"  {row.verdict}", row.before, row.after, row.rule) for row in tools]
    yield terminal.format_table(rows, [VERDICT_COLOURS.get(row.verdict, "changed") for row in tools]) or "  none\n"
    yield from _choice_section(explanation)
    yield from _call_section(explanation)
    yield from _other_section(explanation)
    yield from _instruction_section(explanation)


class ToolRow(Struct, frozen=True):
    """What the rules did to one tool."""

    name: str
    verdict: str
    before: str
    after: str
    rule: str


def tool_rows(explanation: Explanation) -> list[ToolRow]:
    """One row per tool: what was done to it, its old and new form, and the rules that did it."""
    losses_by_path: dict[str, list[Loss]] = {}
    for loss in explanation.report:
        losses_by_path.setdefault(loss.path, []).append(loss)
    rows: list[ToolRow] = []
    remaining = list(ir.list_declared_tools(explanation.after))
    for tool in ir.list_declared_tools(explanation.before):
        losses, name = losses_by_path.get(json_pointer(ir.source_path(tool)), []), tool_name(tool).name
        dropped = [loss for loss in losses if loss.code == "policy-dropped"]
        rule = ", ".join(dict.fromkeys(_rule_name(loss) for loss in dropped or losses))
        if dropped:
            rows.append(ToolRow(name, "dropped", tool_signature(tool), "", rule))
            continue
        new = remaining.pop(0) if remaining else tool
        changes = [CHANGE_WORDS[loss.code] for loss in losses if loss.code in CHANGE_WORDS]
        verdict = changes[0] if len(changes) == 1 else "kept" if new == tool else "changed"
        shown = f"→ {tool_signature(new)}" if tool_signature(new) != tool_signature(tool) else ""
        rows.append(ToolRow(name, verdict, tool_signature(tool), shown, rule))
    return rows


def _rule_name(loss: Loss) -> str:
    return loss.why.removeprefix("the rule ").strip("`")


def tool_signature(tool: ir.AnyTool) -> str:
    """A tool as `name(parameter, optional?)`."""
    name = tool_name(tool)
    if not isinstance(tool, ir.Tool) or not isinstance(tool.parameters, dict):
        return f"{name.name} ({name.kind})" if name.kind not in ("function", name.name) else name.name
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    keys = properties if isinstance(properties, dict) else {}
    needed = required if isinstance(required, list) else []
    return f"{tool.name}({', '.join(key if key in needed else f'{key}?' for key in keys)})"


def _choice_section(explanation: Explanation) -> Iterator[str]:
    before, after = choice_text(explanation.before.choice), choice_text(explanation.after.choice)
    if before == after:
        return
    choice = explanation.before.choice
    chosen = [tool.name for tool in choice.tools] if choice is not None else []
    rules = [row.rule for row in tool_rows(explanation) if row.name in chosen and row.rule]
    rules = rules or [_rule_name(loss) for loss in explanation.report if loss.code == "policy-choice"]
    yield "\n" + terminal.heading("choice")
    yield terminal.format_table([(f"  {before}", f"→ {after}", ", ".join(dict.fromkeys(rules)))])


def choice_text(choice: ir.ToolChoice | None) -> str:
    return "(not set)" if choice is None else " ".join((choice.mode, *(tool.name for tool in choice.tools)))


def _call_section(explanation: Explanation) -> Iterator[str]:
    """Earlier calls that the model sees in another form than the client sent."""
    pairs = zip(history_calls(explanation.before), history_calls(explanation.after), strict=True)
    rows = [(f"  {old.name} {old.arguments}", f"→ {new.name} {new.arguments}") for old, new in pairs if old != new]
    if rows:
        yield "\n" + terminal.heading("calls in the conversation") + terminal.format_table(rows[:MAX_SHOWN_CALLS])
        yield f"  and {len(rows) - MAX_SHOWN_CALLS} more\n" if len(rows) > MAX_SHOWN_CALLS else ""


def history_calls(request: ir.Request) -> list[ir.Call]:
    return [part for turn in request.turns for part in turn.parts if isinstance(part, ir.Call)]


def _other_section(explanation: Explanation) -> Iterator[str]:
    """Changes other than to tools and the tool choice."""
    shown = {"policy-dropped", "policy-choice", *CHANGE_WORDS}
    rows = [(f"  {loss.what}", _rule_name(loss)) for loss in explanation.report if loss.code not in shown]
    if rows:
        yield "\n" + terminal.heading("other changes") + terminal.format_table(rows)


def _instruction_section(explanation: Explanation) -> Iterator[str]:
    before, after = instruction_text(explanation.before).splitlines(), instruction_text(explanation.after).splitlines()
    if before != after:
        yield "\n" + terminal.heading("instructions")
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(1):
        yield terminal.paint_text(f"  line {group[0][1] + 1}\n", "dim")
        for change, old, old_end, new, new_end in group:
            if change == "equal":
                yield from (f"    {line}\n" for line in before[old:old_end])
                continue
            for mark, colour, lines in (("-", "lost", before[old:old_end]), ("+", "ok", after[new:new_end])):
                for line in lines:
                    yield terminal.paint_text(f"  {mark} {line}".rstrip(), colour) + "\n"


def instruction_text(request: ir.Request) -> str:
    """The system prompt and the system and developer messages."""
    turns = (turn.parts for turn in request.turns if turn.role in ("system", "developer"))
    return "\n\n".join(part.text for parts in (request.system, *turns) for part in parts if isinstance(part, ir.Text))


# --- as JSON --------------------------------------------------------------------------------------------------------


def explanation_document(explanation: Explanation) -> Json:
    is_refused = bool(explanation.refused)
    return {
        "subject": msgspec.to_builtins(explanation.subject),
        "rules": [rule.name for rule in explanation.rules],
        "before": _request_document(explanation.before),
        "after": None if is_refused else _request_document(explanation.after),
        "tools": [] if is_refused else [msgspec.to_builtins(row) for row in tool_rows(explanation)],
        "report": [msgspec.to_builtins(loss) for loss in explanation.report],
        "refused": explanation.refused,
    }


def _request_document(request: ir.Request) -> Json:
    return {
        "tools": [node_as_json(tool) for tool in ir.list_declared_tools(request)],
        "choice": None if request.choice is None else node_as_json(request.choice),
        "instructions": instruction_text(request),
        "calls": [node_as_json(call) for call in history_calls(request)],
    }
