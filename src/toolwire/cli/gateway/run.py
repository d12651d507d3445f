"""`toolwire run`: start a coding agent that uses the gateway. It gets the terminal, and its exit code is ours."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from toolwire import terminal
from toolwire.agents import Agent, find_program, load_agents
from toolwire.cli import usage
from toolwire.terminal import EXIT_FAILED, CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.usage = "toolwire run [AGENT] [--model M] [--as NAME] [options] [-- agent arguments]"
    add("agent", metavar="AGENT", nargs="?", help=f"one of: {', '.join(load_agents())}")
    add("extra_words", nargs="*", help=argparse.SUPPRESS)
    add("--model", default="", metavar="M", help="a model that the gateway knows, or `provider/model`")
    shown = "model name to give the agent instead: some agents have extra tools for models they know"
    add("--as", dest="shown_name", default="", metavar="NAME", help=shown)
    add("--protocol", metavar="PROTOCOL", help="protocol to use, for an agent that supports several")
    add("--config", metavar="FILE", help="configuration file of the gateway; always starts a private gateway")
    key = "a client's key, if the gateway needs one; $TOOLWIRE_CLIENT_KEY is safer: others can see a command"
    add("--key", default="", metavar="KEY", help=key)
    add("--log", default="", metavar="FILE", help="append the log of the private gateway to FILE")
    add("--own-settings", action="store_true", help="let the agent use your own settings, not a folder of Toolwire's")
    add("--no-check", action="store_true", help="start the agent without testing the model first")
    add("--print", action="store_true", help="print the environment, files and command, and start nothing")
    add("--list", action="store_true", help="list the agents and where they are installed")
    parser.set_defaults(agent_arguments=[])


def run(args: argparse.Namespace) -> int:
    if args.list or not args.agent:
        return print_agents()
    agent = find_agent(args)
    from toolwire.agents.session import AgentSession, RunOptions
    from toolwire.cli.config import refuse_config
    from toolwire.cli.trust import may_use_program, open_file
    from toolwire.gateway.settings.problems import ConfigError

    protocol = choose_protocol(agent, args.protocol)
    try:
        options = RunOptions(
            agent=agent,
            protocol=protocol,
            model=args.model,
            shown_name=args.shown_name,
            config=args.config,
            file=open_file(args.config),
            log=args.log,
            key=args.key,
            check_model=not args.no_check,
            own_settings=args.own_settings,
            agent_arguments=args.agent_arguments,
        )
        session = AgentSession(options, os.environ, terminal.print_note, may_use_program)
    except ConfigError as error:
        raise refuse_config(error) from None
    if args.print:
        sys.stdout.write(session.describe_plan())
        return 0
    try:
        return session.run_agent()
    except ConfigError as error:  # of the file together with --model
        raise refuse_config(error, EXIT_FAILED) from None


def find_agent(args: argparse.Namespace) -> Agent:
    agent = load_agents().get(args.agent)
    if agent is None:
        raise CommandError(f"unknown agent `{args.agent}`", usage.suggest_name(args.agent, load_agents()))
    if args.extra_words:
        words = " ".join(args.extra_words)
        hint = f"to pass them to {agent.title}: toolwire run {agent.name} -- {words}"
        raise CommandError(f"unexpected arguments: `{words}`", hint)
    return agent


def choose_protocol(agent: Agent, name: str | None) -> str:
    protocol = name.replace("_", "-") if name else next(iter(agent.protocols))
    if protocol not in agent.protocols:
        problem = f"{agent.title} does not support the protocol `{name}`"
        raise CommandError(problem, f"it supports: {', '.join(agent.protocols)}")
    return protocol


def print_agents() -> int:
    """List every agent, and where it is or how to install it."""
    rows, colours = [], []
    for name, agent in load_agents().items():
        program = find_program(agent, os.environ, Path.cwd())
        left_out = f"left out, because you have not trusted it: {program.left_out}" if program.left_out else ""
        rows.append((name, agent.title, program.path or left_out or f"not installed: {agent.install_command}"))
        colours.append("ok" if program.path else "dim")
    sys.stdout.write(terminal.format_table(rows, colours))
    return 0
