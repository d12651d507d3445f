"""Commands in processes of their own, without the environment of whoever runs the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

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
    return _run_toolwire(",".join(missing), arguments, cwd, environ)


def find_imported(packages: Sequence[str], *arguments: str, cwd: Path, **environ: str) -> list[str]:
    """Those of the packages that `toolwire ARGUMENT …` looks for."""
    done = _run_toolwire("?" + ",".join(packages), arguments, cwd, environ)
    return [name for name in packages if f"looks for {name}\n" in done.stderr]


def _run_toolwire(
    restriction: str, arguments: Sequence[str], cwd: Path, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RESTRICTED, restriction, *arguments],
        cwd=cwd,
        env=clean_environment(cwd, **environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
