"""Commands in processes of their own, without the environment of whoever runs the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from forked_commands import Output

RESTRICTED = [sys.executable, str(Path(__file__).with_name("restricted.py"))]
EXTRA_PACKAGES = ("asyncpg", "cryptography", "mcp", "opentelemetry", "redis", "yaml")
SECONDS = 60


def clean_environment(folder: Path, **more: str) -> dict[str, str]:
    """Without keys and settings, and with a home of its own."""
    unwanted = ("_API_KEY", "_BASE_URL", "_proxy", "_PROXY")
    kept = {name: text for name, text in os.environ.items() if not name.endswith(unwanted)}
    for name in ("TOOLWIRE_CONFIG", "PYTHONSTARTUP"):
        kept.pop(name, None)
    folders = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    return {**kept, **folders, **more}


def start_restricted(
    missing: str, words: Sequence[str], folder: Path, environ: Mapping[str, str], streams: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    """`toolwire WORDS` without a module; see `restricted.py`."""
    given, out, err = streams
    return subprocess.Popen(
        [*RESTRICTED, missing, *words], cwd=folder, env=environ, stdin=given, stdout=out, stderr=err
    )


def run_restricted(
    missing: Sequence[str], *arguments: str, cwd: Path = Path("/"), **environ: str
) -> subprocess.CompletedProcess[str]:
    """`toolwire ARGUMENT …` without these modules; see `restricted.py`."""
    return subprocess.run(
        [*RESTRICTED, ",".join(missing), *arguments],
        cwd=cwd,
        env=clean_environment(cwd, **environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


class ForkedRuns:
    """Commands that start in half of the time; see `--jobs` in `restricted.py`."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._outputs = (folder / "out", folder / "err")

    def run_without(self, package: str, *arguments: str, cwd: Path, **environ: str) -> Output:
        """`toolwire ARGUMENT …` without this package."""
        return self._run(package, arguments, cwd, environ)

    def find_imported(self, packages: Sequence[str], *arguments: str, cwd: Path, **environ: str) -> list[str]:
        """Those of the packages that `toolwire ARGUMENT …` looks for."""
        done = self._run("?" + ",".join(packages), arguments, cwd, environ)
        return [name for name in packages if f"looks for {name}\n" in done.err]

    def _run(self, given: str, arguments: Sequence[str], folder: Path, environ: Mapping[str, str]) -> Output:
        job = {
            "given": given, "arguments": arguments, "folder": str(folder), "environ": clean_environment(folder, **environ),
            "outputs": [*map(str, self._outputs)], "seconds": SECONDS,
        }  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        assert code >= 0, f"signal {-code} ended {arguments}"
        return Output(code, *(file.read_text() for file in self._outputs))


@contextmanager
def forked_runs(folder: Path) -> Iterator[ForkedRuns]:
    with subprocess.Popen([*RESTRICTED, "--jobs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield ForkedRuns(process, folder)
