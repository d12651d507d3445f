"""The real agents and a Node that suits them, pinned, installed from npm into a folder of their own.

`python tests/agents/install.py` does it once; as long as the lock file stays, it has nothing to do.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
BIN = MODULES / ".bin"
STAMP = MODULES / ".toolwire"
NODE = 22
"""The oldest that all of the agents run on."""
SCRIPTED = ("@anthropic-ai/claude-code", "opencode-ai")
"""Packages that put their program in its place by a script; no other script is run."""
NO_NPM = "npm is not here: the real agents are left out"
NOT_YET = "the real agents are not installed, so they are left out: run make test-agents"


def versions() -> dict[str, str]:
    packages: dict[str, str] = json.loads((HERE / "package.json").read_text())["dependencies"]
    return packages


def hash_lock_files() -> str:
    """What is wanted, in one word."""
    files = (HERE / "package.json", HERE / "package-lock.json")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def ready() -> bool:
    return STAMP.exists() and STAMP.read_text() == hash_lock_files()


def missing() -> str:
    """Why the agents cannot be run; "" if they can."""
    if ready():
        return ""
    return NO_NPM if shutil.which("npm") is None else NOT_YET


def install(npm: str) -> None:
    """All of them. On a terminal npm shows its own progress; elsewhere it is silent for minutes, so the size is told."""
    wanted = ", ".join(f"{name} {version}" for name, version in versions().items())
    sys.stderr.write(f"Installing into tests/agents/node_modules, once (2.2 GB): {wanted}\n")
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    # Not `ci`: a registry need not hold the packages of every other platform, and `ci` wants them all in the lock file.
    for command in (["install", "--no-save", "--ignore-scripts", *quiet], ["rebuild", *SCRIPTED, *quiet]):
        with subprocess.Popen([npm, *command], cwd=HERE) as process:
            while (code := wait_for_end(process)) is None:
                if not sys.stderr.isatty():
                    sys.stderr.write(f"  {_size(MODULES) / 1e9:.1f} GB\n")
        if code:
            raise SystemExit(f"npm {command[0]} failed with code {code}: the real agents are not installed")
    STAMP.write_text(hash_lock_files())


def wait_for_end(process: subprocess.Popen[bytes]) -> int | None:
    """How it ended; None after some seconds if it has not."""
    try:
        return process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return None


def _size(folder: Path) -> int:
    """What its files take; those that come and go meanwhile do not matter."""
    total = 0
    for at, _, names in os.walk(folder):
        with suppress(OSError):
            files = [os.lstat(f"{at}/{name}") for name in names]
            total += sum(file.st_size // file.st_nlink for file in files)
    return total


def node() -> str:
    """The Node to run them with. Ends with a line that says what is missing."""
    for found in (shutil.which("node", path=str(BIN)), shutil.which("node")):
        if found:
            said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
            if int(said.removeprefix("v").partition(".")[0]) >= NODE:
                return found
    raise SystemExit(f"the agents need Node {NODE} or newer, and there is no package of one for this machine")


def main() -> int:
    if ready():
        return 0
    npm = shutil.which("npm")
    if npm is None:
        sys.stderr.write(f"Note: {NO_NPM}.\n")
        return 0
    install(npm)
    node()
    return 0


if __name__ == "__main__":
    sys.exit(main())
