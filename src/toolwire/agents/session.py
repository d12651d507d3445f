"""One run of an agent: the gateway, a question to the model, the agent itself; afterwards nothing of them is left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from toolwire.agents import finding, own
from toolwire.agents.asking import Gateway, origin_of
from toolwire.agents.child import Child, listening
from toolwire.agents.choosing import Choice, chosen
from toolwire.agents.data import Agent
from toolwire.agents.layout import Layout, laid_out, written
from toolwire.agents.shown import RUN, script
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.configfile import ROUTE, load
from toolwire.gateway.settings.problems import Problems
from toolwire.ir import NOTHING, Failure

KEY = "TOOLWIRE_KEY"
NO_KEY = "toolwire"
"""Shown where none is wanted: agents do not start without one."""
FAILED, BAD_INPUT, CANNOT_RUN, NOT_FOUND = 1, 2, 126, 127


class Trouble(Exception):
    """Why an agent is not started, what to do about it, and the exit code."""

    def __init__(self, problem: str, hint: str = "", code: int = FAILED) -> None:
        self.hint, self.code = hint, code
        super().__init__(problem)


class Wanted(Struct, frozen=True, kw_only=True):
    """What somebody asks for."""

    agent: Agent
    protocol: str
    model: str = ""
    told: str = ""
    """The name that the agent is told, where it is another than the model's."""
    config: str | None = None
    log: str = ""
    """Where the log of a gateway of its own goes; into the folder that goes with the run when left out."""
    checks: bool = True
    passed: Sequence[str] = ()
    """Arguments of the agent's own."""


class Session:
    def __init__(self, wanted: Wanted, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._wanted, self._environ, self._say = wanted, environ, say
        self._key = environ.get(KEY) or NO_KEY
        try:
            self._config: Config = load(wanted.config, environ)
        except Problems as problems:
            raise Trouble(*problems.told, BAD_INPUT) from None

    def printed(self) -> str:
        """What would be done, without doing any of it."""
        choice = self._chosen(None)
        key = NO_KEY if self._key == NO_KEY else f"${KEY}"
        layout = self._laid_out(origin_of(self._config.server) or "http://127.0.0.1:PORT", key, choice, RUN)
        return script(layout, choice.routes, self._wanted.config, self._wanted.passed)

    def run(self) -> int:
        """The agent's exit code. Raises `Trouble`."""
        agent = self._wanted.agent
        program = finding.found(agent, self._environ, Path.cwd())
        if not program:
            raise Trouble(f"{agent.title} is not installed", f"{agent.install} (Node {agent.node} or newer)", NOT_FOUND)
        with ExitStack() as stack:
            child = stack.enter_context(listening())
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="toolwire-run-", ignore_cleanup_errors=True))
            )
            running = self._running()
            choice = self._chosen(running)
            if running is not None and not choice.unfit:
                self._say(f"{agent.title} on {spelled(choice)}, through the gateway at {running.origin}")
                return self._begun(program, running, choice, folder, child)
            gateway = self._own(stack, choice, folder)
            why = choice.unfit or self._alone()
            self._say(f"{agent.title} on {spelled(choice)}, through a gateway of its own: {why}")
            code = self._begun(program, self._at(gateway.origin), choice, folder, child)
            if gateway.died:
                self._say(f"the gateway ended before the agent did; its last words:\n{gateway.died}")
            return code

    # --- the gateway ---

    def _at(self, origin: str) -> Gateway:
        return Gateway(origin, self._key, self._wanted.protocol)

    def _running(self) -> Gateway | None:
        """The one at the usual address, where it can do what is wanted."""
        origin = origin_of(self._config.server)
        usual = self._at(origin)
        is_wanted = not self._wanted.config and not self._wanted.told and bool(origin)
        return usual if is_wanted and usual.alive() else None

    def _alone(self) -> str:
        asked = {"--config": self._wanted.config, "--as": self._wanted.told}
        wanted = next((option for option, value in asked.items() if value), "")
        return f"{wanted} asks for one" if wanted else f"none is running at {origin_of(self._config.server)}"

    def _own(self, stack: ExitStack, choice: Choice, folder: Path) -> own.Own:
        environ, server, file = self._environ, self._config.server, self._wanted.config
        try:
            load(file, environ, NOTHING, choice.routes)
        except Problems as problems:
            problem, hint = problems.told
            raise Trouble(problem.replace(ROUTE, "--model"), hint) from None
        log = Path(self._wanted.log) if self._wanted.log else folder / "gateway.log"
        try:
            return stack.enter_context(own.started(file, choice.routes, environ, server, log))
        except own.Died as died:
            raise Trouble(f"the gateway could not start:\n{died}", "`toolwire check-config` says more") from None
        except OSError as error:
            raise Trouble(f"{log}: {error.strerror}", "--log names a file that can be written", BAD_INPUT) from None

    # --- the model ---

    def _chosen(self, running: Gateway | None) -> Choice:
        wanted = self._wanted
        choice = chosen(wanted.agent, wanted.model, wanted.told, self._config, running)
        if choice is None:
            names = ", ".join(provider.name for provider in self._config.providers.values() if not provider.embedded)
            raise Trouble("which model?", f"say --model NAME or --model PROVIDER/NAME; providers: {names}", BAD_INPUT)
        return choice

    def _checked(self, gateway: Gateway, choice: Choice) -> None:
        failure = gateway.refuses(choice.told)
        if failure is not None:
            hint = f"set {KEY} to a key of this gateway" if failure.kind == "authentication" else _hint(failure)
            raise Trouble(f"the gateway does not serve {choice.told}: {failure.message}", hint)
        if not self._wanted.checks:
            return
        failure = gateway.answers(choice.told)
        if failure is not None:
            raise Trouble(f"{spelled(choice)} does not answer: {failure.message}", _hint(failure))

    # --- the agent ---

    def _laid_out(self, origin: str, key: str, choice: Choice, run: str) -> Layout:
        wanted = self._wanted
        texts = {"protocol": wanted.protocol, "origin": origin, "key": key, "model": choice.told, "run": run}
        return laid_out(wanted.agent, self._environ, **texts)

    def _begun(self, program: str, gateway: Gateway, choice: Choice, folder: Path, child: Child) -> int:
        self._checked(gateway, choice)
        layout = self._laid_out(gateway.origin, self._key, choice, str(folder))
        environ = {**layout.changed(self._environ), "PATH": finding.search_path(program, self._environ)}
        try:
            written(layout)
            return child.run((program, *layout.command[1:], *self._wanted.passed), environ)
        except OSError as error:
            raise Trouble(f"cannot start {program}: {error.filename}: {error.strerror}", "", CANNOT_RUN) from None


def spelled(choice: Choice) -> str:
    return choice.model if choice.told == choice.model else f"{choice.model} (as {choice.told})"


def _hint(failure: Failure) -> str:
    """What usually helps, where the message does not say it."""
    return HINTS.get(
        failure.kind, "`toolwire check-config` says what is configured; --no-check starts the agent anyway"
    )


HINTS = {
    "not_found": "`toolwire check-config` lists what there is; --model takes a name of it, or `provider/model`",
    "authentication": "`toolwire check-config` says where the provider's key is from",
    "rate_limit": "wait, or choose another model with --model; --no-check starts the agent anyway",
}
