"""One run of an agent: choose its model, find or start a gateway, check that the model answers, start the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from msgspec import Struct
from msgspec.structs import replace

from toolwire.agents import Agent, find_program, load_agents, search_path
from toolwire.agents.gateway import GatewayClient, GatewayDied, PrivateGateway, server_origin, start_gateway
from toolwire.agents.layout import (
    RUN_FOLDER_VARIABLE,
    Layout,
    agent_home,
    has_own_home,
    limit_texts,
    plan_layout,
    use_own_settings,
    write_layout,
    write_shell_script,
)
from toolwire.core.codec import ModelFacts
from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.gateway.configuration.load import ConfigFile, read_opened_config
from toolwire.gateway.models.facts import find_facts
from toolwire.gateway.settings.client_keys import (
    CLIENT_KEY_VARIABLE,
    NEW_KEY_COMMAND,
    OLD_CLIENT_KEY_VARIABLE,
    find_client_variable,
    find_key,
    make_key,
)
from toolwire.gateway.settings.config import ClientKey, Config
from toolwire.gateway.settings.model_rules import ROUTE_OPTION
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.settings.providers import LOOPBACK_NAME
from toolwire.gateway.settings.router import Router
from toolwire.gateway.surfaces.console.settings import ConsoleSettings
from toolwire.terminal import EXIT_FAILED, CommandError

KEY_HINT = f"set {CLIENT_KEY_VARIABLE} to a key of this gateway; `{NEW_KEY_COMMAND}` makes one"
PLACEHOLDER_KEY = "toolwire"
"""Used if the gateway needs no key: agents do not start without one."""
EXIT_CANNOT_RUN, EXIT_NOT_FOUND = 126, 127
FAILURE_HINTS = {
    "not_found": "`toolwire models` lists the models; --model takes one of them, or `provider/model`",
    "authentication": "`toolwire doctor --try-keys` says which key is wrong, and where it comes from",
    "rate": "wait, or choose another model with --model; --no-check starts the agent anyway",
}
OTHER_FAILURE_HINT = "`toolwire doctor` says what is wrong; --no-check starts the agent anyway"


class ModelChoice(Struct, frozen=True, kw_only=True):
    """The model name that the agent is given, and the model behind it."""

    shown_name: str
    model: str
    routes: dict[str, str]
    """Routes that a private gateway needs in addition to the configuration."""
    mismatch: str = ""
    """Why the running gateway cannot be used."""


def choose_model(
    options: RunOptions, config: Config, running: GatewayClient | None, key: ClientKey | None
) -> ModelChoice:
    """Raises CommandError if providers are configured, but not which of their models to use."""
    agent = options.agent
    is_configured, is_allowed = _make_route_check(config, None), _make_route_check(config, key)
    checks = [is_allowed] if running is None else [running.knows_model, is_allowed]
    # The agent's default, the configured models, then the defaults of the other agents.
    plain_names = [rule.name for rule in config.models if "*" not in rule.name and "?" not in rule.name]
    candidates = [agent.model, *plain_names, *(other.model for other in load_agents().values())]
    chosen = options.model or next((name for knows in checks for name in candidates if name and knows(name)), "")
    if not chosen:
        if names := ", ".join(provider.name for provider in config.providers.values() if not provider.embedded):
            hint = f"name one with --model NAME or --model PROVIDER/NAME; providers: {names}"
            raise CommandError("no model is chosen", hint)
        chosen = LOOPBACK_NAME
    shown_name = options.shown_name or chosen
    # A route also adds the provider it names, so a model that is not configured gets one too.
    routes = {shown_name: chosen} if shown_name != chosen or not is_configured(chosen) else {}
    helpers = {**agent.helper_models, **agent.rare_models}
    routes |= {pattern: chosen for pattern, sample in helpers.items() if not is_configured(sample)}
    mismatch = _find_mismatch(agent, shown_name, running) if running else ""
    return ModelChoice(shown_name=shown_name, model=chosen, routes=routes, mismatch=mismatch)


def _find_mismatch(agent: Agent, shown_name: str, running: GatewayClient) -> str:
    for name in (shown_name, *agent.helper_models.values()):
        failure = running.find_model_failure(name)
        if failure is not None:
            return f"the one at {running.origin} does not serve {name}: {failure.message}"
    return ""


def _make_route_check(config: Config, key: ClientKey | None) -> Callable[[str], bool]:
    """A check whether the configuration has a provider for a model, with a key if it needs one, and whether the client
    may use it."""
    router = Router(config)

    def knows(name: str) -> bool:
        targets = router.route(name, key)
        return not isinstance(targets, Failure) and not targets[0].provider.is_key_missing

    return knows


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of `toolwire run`."""

    agent: Agent
    protocol: str
    model: str = ""
    shown_name: str = ""
    """The model name that the agent is given, if it is not the model's own."""
    config: str | None = None
    """The file that the user named."""
    file: ConfigFile | None = None
    """The file that is used, named or not."""
    log: str = ""
    """The log file of a private gateway; in the temporary folder if empty."""
    key: str = ""
    """A client's key for the gateway; by default the one in the environment."""
    check_model: bool = True
    own_settings: bool = False
    """The agent uses the user's own settings."""
    agent_arguments: Sequence[str] = ()


class GivenKey(Struct, frozen=True):
    """A client's key that the user gave, and where; both are empty if there is none."""

    text: str = ""
    source: str = ""


def find_given_key(option: str, config: Config, environ: Mapping[str, str]) -> GivenKey:
    """Raises CommandError if it cannot be sent in a header."""
    variable = find_client_variable(config, environ)
    given = GivenKey(option, "--key") if option else GivenKey(environ.get(variable, "").strip(), variable)
    if not (given.text.isascii() and given.text.isprintable()):
        hint = "a key has ASCII letters, digits and signs only: copy it again"
        raise CommandError(f"the key in {given.source} is not valid", hint)
    # An agent has the placeholder in its environment, and may start another one.
    return given if given.text not in ("", PLACEHOLDER_KEY) else GivenKey()


class AgentSession:
    def __init__(
        self,
        options: RunOptions,
        environ: Mapping[str, str],
        print_status: Callable[[str], None],
        may_use_program: Callable[[Path], bool],
    ) -> None:
        """`may_use_program` is asked about a program that the working folder brings."""
        self._options, self._environ, self._print_status = options, environ, print_status
        self._may_use_program = may_use_program
        if options.own_settings and options.agent.own_settings_problem:
            title, problem = options.agent.title, options.agent.own_settings_problem
            raise CommandError(f"{title} cannot use your own settings: {problem}")
        self._config: Config = read_opened_config(options.file, environ)
        self._given_key = find_given_key(options.key, self._config, environ)

    def describe_plan(self) -> str:
        """What `run_agent` would do, as shell lines."""
        choice = self._choose_model(None)
        given = self._given_key
        variable = OLD_CLIENT_KEY_VARIABLE if given.source == OLD_CLIENT_KEY_VARIABLE else CLIENT_KEY_VARIABLE
        key = f"${variable}" if given.text or self._config.server.needs_keys else PLACEHOLDER_KEY
        origin = server_origin(self._config.server) or "http://127.0.0.1:PORT"
        facts = find_facts(self._config, choice.model)
        layout = self._plan_layout(origin, key, choice, RUN_FOLDER_VARIABLE, facts)
        lines = write_shell_script(layout, choice.routes, self._options.config)
        return "\n".join(lines) + "\n"

    def run_agent(self) -> int:
        """Run the agent; gives its exit code. Raises CommandError."""
        agent = self._options.agent
        program = find_program(agent, self._environ, Path.cwd(), self._may_use_program)
        if not program.path:
            hint = agent.install_command + (f" ({agent.needs})" if agent.needs else "")
            left_out = f", except {program.left_out}, which you have not trusted" if program.left_out else ""
            raise CommandError(f"{agent.title} is not installed{left_out}", hint, EXIT_NOT_FOUND)
        if program.left_out:
            self._print_status(f"left out {program.left_out}: you have not trusted this program of the working folder")
        self._print_status(describe_settings(self._options, self._environ))
        with ExitStack() as stack:
            child = stack.enter_context(forward_signals())
            temporary = tempfile.TemporaryDirectory(prefix="toolwire-run-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
            if self._given_key.source == OLD_CLIENT_KEY_VARIABLE:
                self._print_status(f"{OLD_CLIENT_KEY_VARIABLE} is the old name of {CLIENT_KEY_VARIABLE}: rename it")
            running = self._find_running_gateway()
            choice = self._choose_model(running)
            model = describe_choice(choice)
            if not agent.knows_model(choice.shown_name):
                self._print_status(f"{agent.title} does not know {choice.shown_name}: {agent.unknown_model}")
            if running is not None and not choice.mismatch:
                self._print_status(f"{agent.title} uses {model} through the gateway at {running.origin}")
                return self._start_agent(program.path, running, choice, folder, child)
            key = self._given_key.text or (make_key() if self._config.server.needs_keys else PLACEHOLDER_KEY)
            gateway = self._start_private_gateway(stack, choice, folder, key)
            needed_by = "--config" if self._options.config else "--as" if self._options.shown_name else ""
            none_running = f"none is running at {server_origin(self._config.server)}"
            reason = choice.mismatch or (f"{needed_by} needs one" if needed_by else none_running)
            self._print_status(f"{agent.title} uses {model} through a private gateway: {reason}")
            if self._config.section(ConsoleSettings).is_on(self._config.server):
                self._print_status(f"watch it at {gateway.origin}/")
            code = self._start_agent(program.path, self._client_at(gateway.origin, key), choice, folder, child)
            if gateway.death_message:
                self._print_status(f"the gateway ended before the agent; the end of its log:\n{gateway.death_message}")
            return code

    # --- the gateway ---

    def _client_at(self, origin: str, key: str) -> GatewayClient:
        return GatewayClient(origin, key, self._options.protocol)

    def _find_running_gateway(self) -> GatewayClient | None:
        """The gateway at the configured address, unless an option needs a private one."""
        client = self._client_at(server_origin(self._config.server), PLACEHOLDER_KEY)
        is_wanted = client.origin and not self._options.config and not self._options.shown_name
        if not is_wanted or not client.is_alive():
            return None
        is_known = bool(self._given_key.text) and client.proves_key(self._given_key.text)
        if is_known:
            client = self._client_at(client.origin, self._given_key.text)
        may_be_open = not self._given_key.text or not self._config.server.needs_keys
        if (is_known or may_be_open) and client.find_key_failure() is None:
            return client
        source = self._given_key.source
        what = f"does not know the key in {source}" if source else "needs a client's key"
        raise CommandError(f"the gateway at {client.origin} {what}", KEY_HINT, EXIT_FAILED)

    def _start_private_gateway(self, stack: ExitStack, choice: ModelChoice, folder: Path, key: str) -> PrivateGateway:
        environ, server, file = self._environ, self._config.server, self._options.file
        if self._given_key.text and server.keys and not server.store_keys and self._client_key is None:
            raise CommandError(
                f"{self._config.file} does not have the key in {self._given_key.source}", KEY_HINT, EXIT_FAILED
            )
        run_key = key if server.needs_keys and not self._given_key.text else ""
        try:
            read_opened_config(file, environ, EMPTY_MAPPING, choice.routes)
        except ConfigError as error:
            named = [
                replace(problem, location="--model") if problem.location == ROUTE_OPTION else problem
                for problem in error.problems
            ]
            raise ConfigError(named, error.file) from None
        log = Path(self._options.log) if self._options.log else folder / "gateway.log"
        try:
            return stack.enter_context(start_gateway(file, choice.routes, environ, server, log, run_key))
        except GatewayDied as died:
            hint = "`toolwire doctor` says what is wrong"
            raise CommandError(f"the gateway could not start:\n{died}", hint, EXIT_FAILED) from None
        except OSError as error:
            hint = "--log must name a file that can be written"
            raise CommandError(f"{log}: {error.strerror}", hint) from None

    # --- the model ---

    @property
    def _client_key(self) -> ClientKey | None:
        """The given key, if the file has it."""
        return find_key(self._given_key.text, self._config.server.keys)

    def _choose_model(self, running: GatewayClient | None) -> ModelChoice:
        return choose_model(self._options, self._config, running, self._client_key)

    def _check_model(self, gateway: GatewayClient, choice: ModelChoice) -> None:
        failure = gateway.find_model_failure(choice.shown_name)
        if failure is not None:
            problem = f"the gateway does not serve {choice.shown_name}: {failure.message}"
            raise CommandError(problem, _failure_hint(failure), EXIT_FAILED)
        if not self._options.check_model:
            return
        failure = gateway.probe_model(choice.shown_name)
        if failure is not None:
            raise CommandError(
                f"{describe_choice(choice)} does not answer: {failure.message}", _failure_hint(failure), EXIT_FAILED
            )

    # --- the agent ---

    def _plan_layout(self, origin: str, key: str, choice: ModelChoice, run: str, facts: ModelFacts) -> Layout:
        options = self._options
        texts = {"origin": origin, "key": key, "model": choice.shown_name, "run": run, **limit_texts(facts)}
        agent = use_own_settings(options.agent) if options.own_settings else options.agent
        return plan_layout(agent, self._environ, options.protocol, options.agent_arguments, texts)

    def _start_agent(
        self, program: str, gateway: GatewayClient, choice: ModelChoice, folder: Path, child: AgentProcess
    ) -> int:
        self._check_model(gateway, choice)
        facts = gateway.find_model_facts(choice.shown_name)
        layout = self._plan_layout(gateway.origin, gateway.key, choice, str(folder), facts)
        environ = {**layout.apply_to_environment(self._environ), "PATH": search_path(program, self._environ)}
        try:
            write_layout(layout)
            return child.run((program, *layout.command[1:]), environ)
        except OSError as error:
            problem = f"cannot start {program}: {error.filename}: {error.strerror}"
            raise CommandError(problem, "", EXIT_CANNOT_RUN) from None


def describe_settings(options: RunOptions, environ: Mapping[str, str]) -> str:
    agent = options.agent
    if options.own_settings or not has_own_home(agent):
        return f"{agent.title} uses your own settings, and Toolwire's for the server and the model"
    home, user = agent_home(agent, environ), environ.get("HOME", "")
    shown = f"~{home.removeprefix(user)}" if user and home.startswith(f"{user}/") else home
    offer = "" if agent.own_settings_problem else ", unless you add --own-settings"
    return f"{agent.title} has its settings in {shown}, and does not use yours{offer}"


def describe_choice(choice: ModelChoice) -> str:
    return choice.model if choice.shown_name == choice.model else f"{choice.model} (as {choice.shown_name})"


def _failure_hint(failure: Failure) -> str:
    return FAILURE_HINTS.get(failure.kind, OTHER_FAILURE_HINT)


# --- the agent's process --------------------------------------------------------------------------------------------

FORWARDED_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
TERMINAL_SIGNALS = ("SIGINT", "SIGQUIT")
"""A terminal sends these to every process in the foreground, so the agent gets them without our help."""


class AgentProcess:
    """The agent's process. A signal before it has started ends us; after that, it goes to the agent."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._process is None:
            raise SystemExit(128 + number)
        if signal.Signals(number).name not in TERMINAL_SIGNALS or not is_foreground():
            self._process.send_signal(number)

    def run(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """Run the agent to its end; gives the exit code as a shell does. Raises OSError if it cannot start."""
        self._process = subprocess.Popen(command, env=environ)
        code = self._process.wait()
        return code if code >= 0 else 128 - code


@contextmanager
def forward_signals() -> Iterator[AgentProcess]:
    """An agent's process that gets our signals. Signals that we ignore (`nohup`) stay ignored."""
    child = AgentProcess()
    numbers = [getattr(signal, name) for name in FORWARDED_SIGNALS if hasattr(signal, name)]
    forwarded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, child.on_signal) for number in forwarded}
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_foreground() -> bool:
    """Are we in the foreground of our terminal, so that the agent got the signal too?"""
    if not hasattr(os, "tcgetpgrp"):  # Windows, whose consoles send it to every process, too
        return True
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
