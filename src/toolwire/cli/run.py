"""`toolwire run`: an agent, led to the gateway by a configuration of its own. Terminal and exit code are its."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from toolwire.agents.data import Agent, agents
from toolwire.agents.finding import found
from toolwire.cli import Complaint, screen
from toolwire.cli.serve import MISSING

EXTRA = "pip install 'toolwire[gateway]'"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "toolwire run [AGENT] [--model M] [--as NAME] [options] [-- arguments of the agent]"
    parser.add_argument("agent", metavar="AGENT", nargs="?", help=f"one of: {', '.join(agents())}")
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


def run(given: argparse.Namespace) -> int:
    if given.list or not given.agent:
        return listed()
    agent = named(given)
    try:
        from toolwire.agents.session import Session, Trouble, Wanted
    except ImportError as error:
        if error.name is not None and error.name.startswith("toolwire"):
            raise
        raise Complaint(f"{MISSING}: {error.name}", EXTRA) from None
    wanted = Wanted(
        agent=agent,
        protocol=spoken(agent, given.protocol),
        model=given.model,
        told=given.told,
        config=given.config,
        log=given.log,
        checks=not given.no_check,
        passed=given.passed,
    )
    try:
        session = Session(wanted, os.environ, said)
        if not given.print:
            return session.run()
        sys.stdout.write(session.printed())
        return 0
    except Trouble as trouble:
        raise Complaint(str(trouble), trouble.hint, trouble.code) from None


def said(line: str) -> None:
    sys.stderr.write(f"{screen.paint('toolwire:', 'dim', sys.stderr)} {line}\n")
    sys.stderr.flush()


def named(given: argparse.Namespace) -> Agent:
    """The agent. Words behind it are meant for it, and need two dashes before them."""
    agent = agents().get(given.agent)
    if agent is None:
        raise Complaint(f"no agent is called `{given.agent}`", f"there is: {', '.join(agents())}")
    if given.stray:
        words = " ".join(given.stray)
        raise Complaint(f"`{words}` is not for toolwire", f"for {agent.title}: toolwire run {agent.name} -- {words}")
    return agent


def spoken(agent: Agent, wanted: str | None) -> str:
    protocol = wanted.replace("_", "-") if wanted else next(iter(agent.speaks))
    if protocol not in agent.speaks:
        raise Complaint(f"{agent.title} does not speak `{wanted}`", f"it speaks: {', '.join(agent.speaks)}")
    return protocol


def listed() -> int:
    """Every agent, and where it is or how it gets there."""
    places = [found(agent, os.environ, Path.cwd()) for agent in agents().values()]
    pairs = zip(agents().values(), places, strict=True)
    rows = [(agent.name, agent.title, place or f"not installed: {agent.install}") for agent, place in pairs]
    sys.stdout.write(screen.table(rows, ["ok" if place else "dim" for place in places]))
    return 0
