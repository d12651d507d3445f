"""Runs `toolwire` as if some modules were not there:

    python restricted.py NAME,NAME [ARGUMENT …]      `toolwire ARGUMENT …` without these modules
    python restricted.py NAME,NAME --import-all      import every module of Toolwire, and print their number
    python restricted.py ?NAME,NAME [ARGUMENT …]     `toolwire ARGUMENT …`, and a line on standard error for each of
                                                     these modules that it looks for
    python restricted.py --jobs                      run a command for each line of standard input, and print its exit code

With `--jobs` each command is a fork of a process that has imported the library, which is half of the time that a command
takes. A line has the arguments of `run_job`, as JSON. The library must not import a module that is taken away.

The name `windows` stands for all modules, functions and signals that Python lacks on Windows. An event loop of Windows
knows no signals and no pipes either.
"""

from __future__ import annotations

import asyncio
import json
import os
import pkgutil
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder

WINDOWS = "windows"
POSIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "crypt", "curses", "readline")
LACKING = {
    os: (
        "fork", "forkpty", "register_at_fork", "killpg", "getpgrp", "setsid", "tcgetpgrp", "pread", "pwrite", "sysconf",
        "memfd_create", "geteuid", "getuid", "uname", "mkfifo", "fchmod", "wait", "O_CLOEXEC", "O_NOCTTY", "O_NONBLOCK",
    ),
    signal: ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGALRM", "SIGPIPE", "pthread_sigmask"),
    select: ("poll", "PIPE_BUF"),
}  # fmt: skip
OF_EXTRAS = {
    "toolwire.gateway.store.postgres": "asyncpg",
    "toolwire.gateway.store.postgres_pool": "asyncpg",
    "toolwire.gateway.features.limits.counters_postgres": "asyncpg",
    "toolwire.gateway.features.costs.ledger_postgres": "asyncpg",
    "toolwire.gateway.features.limits.counters_redis": "redis",
    "toolwire.gateway.features.mcp.server_connection": "mcp",
    "toolwire.gateway.telemetry.spans": "opentelemetry",
}
"""Modules that are loaded only if an extra is used."""


class WindowsLoop(asyncio.SelectorEventLoop):
    def add_signal_handler(self, *_: object) -> None:
        raise NotImplementedError

    async def connect_read_pipe(self, *_: object) -> None:  # type: ignore[override]
        raise NotImplementedError


def remove(names: set[str]) -> None:
    if WINDOWS in names:
        names |= {*POSIX_MODULES, "uvloop"}
        for module, attributes in LACKING.items():
            for attribute in attributes:
                if hasattr(module, attribute):
                    delattr(module, attribute)
        asyncio.SelectorEventLoop = WindowsLoop  # type: ignore[misc]
    for name in [*sys.modules]:
        if any(name == one or name.startswith(f"{one}.") for one in names):
            del sys.modules[name]
    for name in names - {WINDOWS}:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it fails from now on


class ImportNoter(MetaPathFinder):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in self.names:
            self.names.remove(fullname)
            sys.stderr.write(f"looks for {fullname}\n")


def import_all(missing: set[str]) -> int:
    import toolwire

    names = [found.name for found in pkgutil.walk_packages(toolwire.__path__, "toolwire.")]
    wanted = [name for name in names if OF_EXTRAS.get(name) not in missing and not name.endswith("__main__")]
    for name in wanted:
        import_module(name)
    return len(wanted)


def main(given: str, *arguments: str) -> int:
    names = set(given.removeprefix("?").split(","))
    if given.startswith("?"):
        sys.meta_path.insert(0, ImportNoter(names))
    else:
        remove(names)
    if arguments == ("--import-all",):
        sys.stdout.write(f"{import_all(names)}\n")
        return 0
    from toolwire.cli import main as run_toolwire

    return run_toolwire(arguments)


def run_jobs() -> int:
    import toolwire  # noqa: F401

    for line in sys.stdin:
        if not (pid := os.fork()):
            return run_job(**json.loads(line))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return 0


def run_job(
    given: str, arguments: Sequence[str], folder: str, environ: Mapping[str, str], outputs: Sequence[str], seconds: int
) -> int:
    """`outputs` are the files for standard output and error. After so many seconds a signal ends it."""
    signal.alarm(seconds)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    for number, name in enumerate((os.devnull, *outputs)):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    loaded = [name for name in given.removeprefix("?").split(",") if name in sys.modules]
    assert not loaded, f"the library imports {loaded}"
    return main(given, *arguments)


if __name__ == "__main__":
    sys.exit(run_jobs() if sys.argv[1:] == ["--jobs"] else main(*sys.argv[1:]))
