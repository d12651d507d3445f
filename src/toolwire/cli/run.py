"""`toolwire run`: an agent, led to the gateway by a configuration of its own. Terminal and exit code are its."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from toolwire.agents import Agent, load_agents
from toolwire.agents.process import find_program
from toolwire.cli import CommandError, terminal
from toolwire.cli.serve import MISSING_PACKAGES

INSTALL_HINT = "pip install 'toolwire[gateway]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "toolwire run [AGENT] [--model M] [--as NAME] [options] [-- arguments of the agent]"
    parser.add_argument("agent", metavar="AGENT", nargs="?", help=f"one of: {', '.join(load_agents())}")
    parser.add_argument("stray", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--model", default="", metavar="M", help="a name that the gateway knows, or `provider/model`")
    parser.add_argument(
        "--as",
        dest="told",
        default="",
        metavar="NAME",
        help="what the agent is told instead: some bring other tools for models whose names they know",
    )
    parser.add_argument("--protocol", metavar="P", help="what the agent speaks, where it has a choice")
    parser.add_argument("--config", metavar="FILE", help="the gateway's file; the run has a gateway of its own then")
    parser.add_argument("--log", default="", metavar="FILE", help="append the log of a gateway of its own to FILE")
    parser.add_argument("--no-check", action="store_true", help="start the agent without asking the model first")
    parser.add_argument("--print", action="store_true", help="show environment, files and command, and start nothing")
    parser.add_argument("--list", action="store_true", help="list the agents, and where each is installed")
    parser.set_defaults(passed=[])


def run(args: argparse.Namespace) -> int:
    if args.list or not args.agent:
        return print_agents()
    agent = find_agent(args)
    try:
        from toolwire.agents.session import AgentSession, RunOptions, SessionError
    except ImportError as error:
        if error.name is not None and error.name.startswith("toolwire"):
            raise
        raise CommandError(f"{MISSING_PACKAGES}: {error.name}", INSTALL_HINT) from None
    wanted = RunOptions(
        agent=agent,
        protocol=choose_protocol(agent, args.protocol),
        model=args.model,
        shown_name=args.told,
        config=args.config,
        log=args.log,
        check_model=not args.no_check,
        agent_arguments=args.passed,
    )
    try:
        session = AgentSession(wanted, os.environ, print_status)
        if not args.print:
            return session.run_agent()
        sys.stdout.write(session.describe_plan())
        return 0
    except SessionError as trouble:
        raise CommandError(str(trouble), trouble.hint, trouble.code) from None


def print_status(line: str) -> None:
    sys.stderr.write(f"{terminal.paint_text('toolwire:', 'dim', sys.stderr)} {line}\n")
    sys.stderr.flush()


def find_agent(args: argparse.Namespace) -> Agent:
    """The agent. Words behind it are meant for it, and need two dashes before them."""
    agent = load_agents().get(args.agent)
    if agent is None:
        raise CommandError(f"no agent is called `{args.agent}`", f"there is: {', '.join(load_agents())}")
    if args.stray:
        words = " ".join(args.stray)
        raise CommandError(f"`{words}` is not for toolwire", f"for {agent.title}: toolwire run {agent.name} -- {words}")
    return agent


def choose_protocol(agent: Agent, wanted: str | None) -> str:
    protocol = wanted.replace("_", "-") if wanted else next(iter(agent.speaks))
    if protocol not in agent.speaks:
        raise CommandError(f"{agent.title} does not speak `{wanted}`", f"it speaks: {', '.join(agent.speaks)}")
    return protocol


def print_agents() -> int:
    """Every agent, and where it is or how it gets there."""
    places = [find_program(agent, os.environ, Path.cwd()) for agent in load_agents().values()]
    pairs = zip(load_agents().values(), places, strict=True)
    rows = [(agent.name, agent.title, place or f"not installed: {agent.install_command}") for agent, place in pairs]
    sys.stdout.write(terminal.format_table(rows, ["ok" if place else "dim" for place in places]))
    return 0
