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

from toolwire.cli import BAD_INPUT, Complaint, files, screen, show
from toolwire.cli.check_config import complain
from toolwire.gateway.agents import agents, recognised
from toolwire.gateway.settings.catalogue import about_presets, presets
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.configfile import load
from toolwire.gateway.settings.problems import Problems, meant
from toolwire.gateway.settings.routing import Router, Target, Unroutable, chosen_room
from toolwire.ir import AnyTool, Call, Request, Text, Tool, ToolChoice, ToolsAdded, changed, place
from toolwire.loss import Ledger, Loss
from toolwire.policy.match import Policy, means, named
from toolwire.policy.out import applied
from toolwire.policy.rules import Rule, Subject
from toolwire.protocols import ROOMS, UnknownProtocol, room
from toolwire.room import Room
from toolwire.wire import Json, Malformed, as_object, decode, encode, pointer

_SYSTEM = ("system", "developer")
UNKNOWN = "–"
IDLE = "(no such tool here)"
CALLS = 10
"""How many calls of the conversation are shown."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("explain", "presets"), help="explain a request, or list the presets")
    parser.add_argument("file", nargs="?", metavar="REQUEST.json", help="the client's request (default: stdin)")
    parser.add_argument("--client", metavar="P", help=f"the protocol that the client speaks: {', '.join(ROOMS)}")
    parser.add_argument("--model", default="", metavar="M", help="the model that is asked for (default: the request's)")
    parser.add_argument("--agent", default="", metavar="A", help="the agent, by its name or its user agent")
    parser.add_argument("--provider", default="", metavar="X", help="the provider (default: the model's, by the file)")
    parser.add_argument(
        "--preset", action="append", default=[], metavar="NAME", help="try a preset, after the file's rules"
    )
    parser.add_argument("--config", metavar="FILE", help="the file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(chosen: argparse.Namespace) -> int:
    if chosen.action == "presets":
        return listed(chosen.json)
    if not chosen.client:
        raise Complaint("--client is missing", f"name the protocol of the request: {', '.join(ROOMS)}")
    try:
        config = load(chosen.config, os.environ)
        client = room(chosen.client)
        request = client.read_request(as_object(decode(files.read(chosen.file)), None))
    except Problems as problems:
        complain(problems.found, problems.file)
        return BAD_INPUT
    except UnknownProtocol as unknown:
        raise Complaint(str(unknown), "the client's protocol is named with --client") from None
    except Malformed as bad:
        raise Complaint(
            f"{chosen.file or 'the input'}: {bad}", f"it is read as {chosen.client}; is that what it is?"
        ) from None
    explained = explain(config, client, request, chosen)
    sys.stdout.write(_json(explained) if chosen.json else "".join(page(explained)))
    return 0


def listed(as_json: bool) -> int:
    """The presets, each with what it is for."""
    known = {name: preset.about for name, preset in about_presets().items()}
    if as_json:
        whole = {name: {"about": said, "rules": show.plain(presets()[name])} for name, said in known.items()}
        sys.stdout.write(msgspec.json.format(encode(whole), indent=2).decode() + "\n")
    else:
        sys.stdout.write(screen.table(known.items()))
    return 0


# --- what happens ---------------------------------------------------------------------------------------------------


class Explained(Struct, frozen=True):
    """A request before and after its rules."""

    subject: Subject
    rules: tuple[Rule, ...]
    before: Request
    after: Request
    report: tuple[Loss, ...]
    refused: str = ""


def explain(config: Config, client: Room, request: Request, chosen: argparse.Namespace) -> Explained:
    asked = chosen.model or request.model
    target = _target(config, chosen.provider, asked)
    agent, product = (chosen.agent, chosen.agent) if chosen.agent in agents() else recognised(chosen.agent)
    provider, model = (target.provider.name, target.model) if target is not None else (chosen.provider, asked)
    subject = Subject(client.name, agent, provider, model, asked, product)
    tried = [rule for name in chosen.preset for rule in _preset(name)]
    rules = Policy((*config.policy, *tried)).active(subject)
    request = changed(request, model=subject.model) if subject.model != request.model else request
    ledger = Ledger(client.name, client.name)
    forces = chosen_room(target, client, lambda: bool(request.tools)).rules.forces if target is not None else None
    try:
        after, _ = applied(request, rules, ledger, forces)
    except Malformed as bad:
        return Explained(subject, rules, request, request, ledger.losses, str(bad))
    return Explained(subject, rules, request, after, ledger.losses)


def _preset(name: str) -> tuple[Rule, ...]:
    if name not in presets():
        raise Complaint(f"no preset is called {name!r}", meant(name, presets()))
    return presets()[name]


def _target(config: Config, provider: str, asked: str) -> Target | None:
    """Who would be asked, and for what; None where the file does not say."""
    found = Router(config).route(asked, None)
    if not provider and not isinstance(found, Unroutable):
        return found[0]
    if provider in config.providers:
        routed = [] if isinstance(found, Unroutable) else [one for one in found if one.provider.name == provider]
        return routed[0] if routed else Target(config.providers[provider], asked)
    said = (
        f"no provider is called `{provider}` ({meant(provider, config.providers)})"
        if provider
        else "no provider is known"
    )
    sys.stderr.write(f"note: {said}, so what depends on it is left out\n")
    return None


# --- for people -----------------------------------------------------------------------------------------------------


def page(explained: Explained) -> Iterator[str]:
    subject, out = explained.subject, sys.stdout
    told = (
        ("client", subject.client),
        ("agent", subject.agent or subject.product),
        ("provider", subject.provider),
        ("model", subject.model),
    )
    yield screen.table([(name, value or UNKNOWN) for name, value in told])
    yield screen.paint("\nrules in force\n", "head", out)
    names = [named(tool) for tool in declared(explained.before)]
    spoken = [(f"  {rule.name}", "" if any(means(rule, name) for name in names) else IDLE) for rule in explained.rules]
    yield screen.table(spoken) or "  none\n"
    if explained.refused:
        yield screen.paint("\nrefused\n", "lost", out) + f"  {explained.refused}\n"
    yield screen.paint("\ntools\n", "head", out)
    rows = [(f"  {row.verdict}", row.before, row.after, row.rule) for row in tools(explained)]
    colours = {"dropped": "lost", "kept": "ok"}
    yield screen.table(rows, [colours.get(row[0].strip(), "changed") for row in rows]) or "  none\n"
    yield from _choice(explained)
    yield from _calls(explained)
    yield from _others(explained)
    yield from _texts(explained)


class Row(Struct, frozen=True):
    """What became of one tool."""

    name: str
    verdict: str
    before: str
    after: str
    rule: str


_CHANGES = {"policy-renamed": "renamed", "policy-reshaped": "reshaped", "policy-described": "described"}


def tools(explained: Explained) -> list[Row]:
    """A row a tool: what was done to it, both forms where they differ, and the rules."""
    noted: dict[str, list[Loss]] = {}
    for loss in explained.report:
        noted.setdefault(loss.path, []).append(loss)
    rows: list[Row] = []
    left = list(declared(explained.after))
    for tool in declared(explained.before):
        said, name = noted.get(pointer(place(tool)), []), named(tool).name
        dropped = [loss for loss in said if loss.code == "policy-dropped"]
        rule = ", ".join(dict.fromkeys(_rule(loss) for loss in dropped or said))
        if dropped:
            rows.append(Row(name, "dropped", signature(tool), "", rule))
            continue
        new = left.pop(0) if left else tool
        verbs = [_CHANGES[loss.code] for loss in said if loss.code in _CHANGES]
        verdict = verbs[0] if len(verbs) == 1 else "kept" if new == tool else "changed"
        shown = f"→ {signature(new)}" if signature(new) != signature(tool) else ""
        rows.append(Row(name, verdict, signature(tool), shown, rule))
    return rows


def declared(request: Request) -> tuple[AnyTool, ...]:
    """All tools of a request, those that come in later too."""
    added = (part.tools for turn in request.turns for part in turn.parts if isinstance(part, ToolsAdded))
    return (*request.tools, *(tool for tools in added for tool in tools))


def _rule(loss: Loss) -> str:
    return loss.why.removeprefix("the rule ").strip("`")


def signature(tool: AnyTool) -> str:
    """A tool in a line: its name and its parameters, `?` behind those that need not be given."""
    name = named(tool)
    if not isinstance(tool, Tool) or not isinstance(tool.parameters, dict):
        return f"{name.name} ({name.kind})" if name.kind not in ("function", name.name) else name.name
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    keys = properties if isinstance(properties, dict) else {}
    needed = required if isinstance(required, list) else []
    return f"{tool.name}({', '.join(key if key in needed else f'{key}?' for key in keys)})"


def _choice(explained: Explained) -> Iterator[str]:
    before, after = chosen_tool(explained.before.choice), chosen_tool(explained.after.choice)
    if before != after:
        wanted = [tool.name for tool in explained.before.choice.tools] if explained.before.choice is not None else []
        rules = [row.rule for row in tools(explained) if row.name in wanted and row.rule]
        rules = rules or [_rule(loss) for loss in explained.report if loss.code == "policy-choice"]
        yield screen.paint("\nchoice\n", "head", sys.stdout)
        yield screen.table([(f"  {before}", f"→ {after}", ", ".join(dict.fromkeys(rules)))])


def chosen_tool(choice: ToolChoice | None) -> str:
    if choice is None:
        return "(none said)"
    return " ".join((choice.mode, *(tool.name for tool in choice.tools)))


def _calls(explained: Explained) -> Iterator[str]:
    """Calls of the conversation that the model sees otherwise than the client made them."""
    pairs = zip(calls(explained.before), calls(explained.after), strict=True)
    rows = [(f"  {old.name} {old.arguments}", f"→ {new.name} {new.arguments}") for old, new in pairs if old != new]
    if rows:
        more = f"  and {len(rows) - CALLS} more\n" if len(rows) > CALLS else ""
        yield screen.paint("\ncalls in the conversation\n", "head", sys.stdout) + screen.table(rows[:CALLS]) + more


def calls(request: Request) -> list[Call]:
    return [part for turn in request.turns for part in turn.parts if isinstance(part, Call)]


def _others(explained: Explained) -> Iterator[str]:
    """What else is in the report, apart from tools and choice."""
    told = {"policy-dropped", "policy-choice", *_CHANGES}
    rows = [(f"  {loss.what}", _rule(loss)) for loss in explained.report if loss.code not in told]
    if rows:
        yield screen.paint("\nelse\n", "head", sys.stdout)
        yield screen.table(rows)


def _texts(explained: Explained) -> Iterator[str]:
    before, after = instructions(explained.before).splitlines(), instructions(explained.after).splitlines()
    if before != after:
        yield screen.paint("\ninstructions\n", "head", sys.stdout)
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(1):
        yield screen.paint(f"  line {group[0][1] + 1}\n", "dim", sys.stdout)
        for what, old, old_end, new, new_end in group:
            same = what == "equal"
            yield from (f"    {line}\n" for line in before[old:old_end] if same)
            yield from (
                screen.paint(f"  - {line}".rstrip(), "lost", sys.stdout) + "\n"
                for line in before[old:old_end]
                if not same
            )
            yield from (
                screen.paint(f"  + {line}".rstrip(), "ok", sys.stdout) + "\n" for line in after[new:new_end] if not same
            )


def instructions(request: Request) -> str:
    """All that the model is told by others than the user."""
    turns = (turn.parts for turn in request.turns if turn.role in _SYSTEM)
    return "\n\n".join(part.text for parts in (request.system, *turns) for part in parts if isinstance(part, Text))


# --- for programs ---------------------------------------------------------------------------------------------------


def _json(explained: Explained) -> str:
    whole: Json = {
        "subject": msgspec.to_builtins(explained.subject),
        "rules": [rule.name for rule in explained.rules],
        "before": _side(explained.before),
        "after": _side(explained.after) if not explained.refused else None,
        "tools": [msgspec.to_builtins(row) for row in tools(explained)] if not explained.refused else [],
        "report": [msgspec.to_builtins(loss) for loss in explained.report],
        "refused": explained.refused,
    }
    return msgspec.json.format(encode(whole), indent=2).decode() + "\n"


def _side(request: Request) -> Json:
    return {
        "tools": [show.plain(tool) for tool in declared(request)],
        "choice": None if request.choice is None else show.plain(request.choice),
        "instructions": instructions(request),
        "calls": [show.plain(call) for call in calls(request)],
    }
