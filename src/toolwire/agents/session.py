"""Which model an agent is told of, which it really gets, and the routes that this takes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from toolwire.agents import Agent, load_agents, process
from toolwire.agents import gateway as private_gateway
from toolwire.agents.gateway import GatewayClient, server_origin
from toolwire.agents.layout import RUN_FOLDER_VARIABLE, Layout, plan_layout, write_layout, write_shell_script
from toolwire.agents.process import AgentProcess, forward_signals
from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.gateway.config.config import Config
from toolwire.gateway.config.load import ROUTE_OPTION, load_config
from toolwire.gateway.config.problems import ConfigError
from toolwire.gateway.config.providers import LOOPBACK_NAME
from toolwire.gateway.pipeline.route import Router, Unroutable

KnowsModel = Callable[[str], bool]


class ModelChoice(Struct, frozen=True, kw_only=True):
    """What an agent is told, what it gets for it, and why a gateway that is running will not do."""

    shown_name: str
    model: str
    routes: dict[str, str]
    """What a gateway of its own would need besides the file."""
    mismatch: str = ""


def choose_model(
    agent: Agent, model: str, shown_name: str, config: Config, running: GatewayClient | None
) -> ModelChoice | None:
    """The choice; None when there are providers but nobody can guess which of their models is meant."""
    here = _make_route_check(config)
    places: list[KnowsModel] = [here] if running is None else [running.knows_model, here]
    named = model or next(filter(None, (_first_known_model(agent, config, knows) for knows in places)), "")
    if not named:
        if any(not provider.embedded for provider in config.providers.values()):
            return None
        named = LOOPBACK_NAME
    shown_name = shown_name or named
    routes = (
        {shown_name: named} if shown_name != named or not here(named) else {}
    )  # a route brings a provider that nobody named
    helpers = {**agent.helpers, **agent.seldom}
    routes |= {pattern: named for pattern, sample in helpers.items() if not here(sample)}
    return ModelChoice(
        shown_name=shown_name,
        model=named,
        routes=routes,
        mismatch=_find_mismatch(agent, shown_name, running) if running else "",
    )


def _find_mismatch(agent: Agent, shown_name: str, running: GatewayClient) -> str:
    for name in (shown_name, *agent.helpers.values()):
        failure = running.find_model_failure(name)
        if failure is not None:
            return f"the one at {running.origin} does not serve {name}: {failure.message}"
    return ""


def _first_known_model(agent: Agent, config: Config, knows: KnowsModel) -> str:
    """The agent's own, a configured one, or what another agent would take of the same vendor's."""
    return next((name for name in _candidate_models(agent, config) if knows(name)), "")


def _candidate_models(agent: Agent, config: Config) -> Iterator[str]:
    yield from (agent.model,) if agent.model else ()
    yield from (rule.name for rule in config.models if "*" not in rule.name and "?" not in rule.name)
    yield from (other.model for other in load_agents().values() if other.model)


def _make_route_check(config: Config) -> KnowsModel:
    """Does this configuration lead somewhere, with a key where one is needed?"""
    router = Router(config)

    def knows(name: str) -> bool:
        targets = router.route(name, None)
        return not isinstance(targets, Unroutable) and not targets[0].provider.is_key_missing

    return knows


KEY_VARIABLE = "TOOLWIRE_KEY"
PLACEHOLDER_KEY = "toolwire"
"""Shown where none is wanted: agents do not start without one."""
EXIT_FAILED, EXIT_BAD_INPUT, EXIT_CANNOT_RUN, EXIT_NOT_FOUND = 1, 2, 126, 127


class SessionError(Exception):
    """Why an agent is not started, what to do about it, and the exit code."""

    def __init__(self, problem: str, hint: str = "", code: int = EXIT_FAILED) -> None:
        self.hint, self.code = hint, code
        super().__init__(problem)


class RunOptions(Struct, frozen=True, kw_only=True):
    """What somebody asks for."""

    agent: Agent
    protocol: str
    model: str = ""
    shown_name: str = ""
    """The name that the agent is told, where it is another than the model's."""
    config: str | None = None
    log: str = ""
    """Where the log of a gateway of its own goes; into the folder that goes with the run when left out."""
    check_model: bool = True
    agent_arguments: Sequence[str] = ()
    """Arguments of the agent's own."""


class AgentSession:
    def __init__(self, options: RunOptions, environ: Mapping[str, str], print_status: Callable[[str], None]) -> None:
        self._options, self._environ, self._print_status = options, environ, print_status
        self._key = environ.get(KEY_VARIABLE) or PLACEHOLDER_KEY
        try:
            self._config: Config = load_config(options.config, environ)
        except ConfigError as problems:
            raise SessionError(*problems.message_and_hint, EXIT_BAD_INPUT) from None

    def describe_plan(self) -> str:
        """What would be done, without doing any of it."""
        choice = self._choose_model(None)
        key = PLACEHOLDER_KEY if self._key == PLACEHOLDER_KEY else f"${KEY_VARIABLE}"
        layout = self._plan_layout(
            server_origin(self._config.server) or "http://127.0.0.1:PORT", key, choice, RUN_FOLDER_VARIABLE
        )
        return write_shell_script(layout, choice.routes, self._options.config, self._options.agent_arguments)

    def run_agent(self) -> int:
        """The agent's exit code. Raises `Trouble`."""
        agent = self._options.agent
        program = process.find_program(agent, self._environ, Path.cwd())
        if not program:
            raise SessionError(
                f"{agent.title} is not installed",
                f"{agent.install_command} (Node {agent.node} or newer)",
                EXIT_NOT_FOUND,
            )
        with ExitStack() as stack:
            child = stack.enter_context(forward_signals())
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="toolwire-run-", ignore_cleanup_errors=True))
            )
            running = self._find_running_gateway()
            choice = self._choose_model(running)
            if running is not None and not choice.mismatch:
                self._print_status(
                    f"{agent.title} on {describe_choice(choice)}, through the gateway at {running.origin}"
                )
                return self._start_agent(program, running, choice, folder, child)
            gateway = self._start_private_gateway(stack, choice, folder)
            why = choice.mismatch or self._private_gateway_reason()
            self._print_status(f"{agent.title} on {describe_choice(choice)}, through a gateway of its own: {why}")
            code = self._start_agent(program, self._client_at(gateway.origin), choice, folder, child)
            if gateway.death_message:
                self._print_status(f"the gateway ended before the agent did; its last words:\n{gateway.death_message}")
            return code

    # --- the gateway ---

    def _client_at(self, origin: str) -> GatewayClient:
        return GatewayClient(origin, self._key, self._options.protocol)

    def _find_running_gateway(self) -> GatewayClient | None:
        """The one at the usual address, where it can do what is wanted."""
        origin = server_origin(self._config.server)
        usual = self._client_at(origin)
        is_wanted = not self._options.config and not self._options.shown_name and bool(origin)
        return usual if is_wanted and usual.is_alive() else None

    def _private_gateway_reason(self) -> str:
        asked = {"--config": self._options.config, "--as": self._options.shown_name}
        wanted = next((option for option, value in asked.items() if value), "")
        return f"{wanted} asks for one" if wanted else f"none is running at {server_origin(self._config.server)}"

    def _start_private_gateway(
        self, stack: ExitStack, choice: ModelChoice, folder: Path
    ) -> private_gateway.PrivateGateway:
        environ, server, file = self._environ, self._config.server, self._options.config
        try:
            load_config(file, environ, EMPTY_MAPPING, choice.routes)
        except ConfigError as problems:
            problem, hint = problems.message_and_hint
            raise SessionError(problem.replace(ROUTE_OPTION, "--model"), hint) from None
        log = Path(self._options.log) if self._options.log else folder / "gateway.log"
        try:
            return stack.enter_context(private_gateway.start_gateway(file, choice.routes, environ, server, log))
        except private_gateway.GatewayDied as died:
            raise SessionError(f"the gateway could not start:\n{died}", "`toolwire check-config` says more") from None
        except OSError as error:
            raise SessionError(
                f"{log}: {error.strerror}", "--log names a file that can be written", EXIT_BAD_INPUT
            ) from None

    # --- the model ---

    def _choose_model(self, running: GatewayClient | None) -> ModelChoice:
        wanted = self._options
        choice = choose_model(wanted.agent, wanted.model, wanted.shown_name, self._config, running)
        if choice is None:
            names = ", ".join(provider.name for provider in self._config.providers.values() if not provider.embedded)
            raise SessionError(
                "which model?", f"say --model NAME or --model PROVIDER/NAME; providers: {names}", EXIT_BAD_INPUT
            )
        return choice

    def _check_model(self, gateway: GatewayClient, choice: ModelChoice) -> None:
        failure = gateway.find_model_failure(choice.shown_name)
        if failure is not None:
            hint = (
                f"set {KEY_VARIABLE} to a key of this gateway"
                if failure.kind == "authentication"
                else _failure_hint(failure)
            )
            raise SessionError(f"the gateway does not serve {choice.shown_name}: {failure.message}", hint)
        if not self._options.check_model:
            return
        failure = gateway.probe_model(choice.shown_name)
        if failure is not None:
            raise SessionError(f"{describe_choice(choice)} does not answer: {failure.message}", _failure_hint(failure))

    # --- the agent ---

    def _plan_layout(self, origin: str, key: str, choice: ModelChoice, run: str) -> Layout:
        wanted = self._options
        texts = {"protocol": wanted.protocol, "origin": origin, "key": key, "model": choice.shown_name, "run": run}
        return plan_layout(wanted.agent, self._environ, **texts)

    def _start_agent(
        self, program: str, gateway: GatewayClient, choice: ModelChoice, folder: Path, child: AgentProcess
    ) -> int:
        self._check_model(gateway, choice)
        layout = self._plan_layout(gateway.origin, self._key, choice, str(folder))
        environ = {**layout.apply_to_environment(self._environ), "PATH": process.search_path(program, self._environ)}
        try:
            write_layout(layout)
            return child.run((program, *layout.command[1:], *self._options.agent_arguments), environ)
        except OSError as error:
            raise SessionError(
                f"cannot start {program}: {error.filename}: {error.strerror}", "", EXIT_CANNOT_RUN
            ) from None


def describe_choice(choice: ModelChoice) -> str:
    return choice.model if choice.shown_name == choice.model else f"{choice.model} (as {choice.shown_name})"


def _failure_hint(failure: Failure) -> str:
    """What usually helps, where the message does not say it."""
    return FAILURE_HINTS.get(
        failure.kind, "`toolwire check-config` says what is configured; --no-check starts the agent anyway"
    )


FAILURE_HINTS = {
    "not_found": "`toolwire check-config` lists what there is; --model takes a name of it, or `provider/model`",
    "authentication": "`toolwire check-config` says where the provider's key is from",
    "rate_limit": "wait, or choose another model with --model; --no-check starts the agent anyway",
}
