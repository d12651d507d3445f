"""Tests the wheel with every Python that is found, in a clean environment: the first request, the laws and the cases.

    python .ci/pythons.py        PYTHONS="/path/to/python3.14 …" names interpreters that are looked at first
    python .ci/pythons.py --this only the Python that runs this

Prints a line for each version, also for those that were not found, and fails if one that was found does not pass.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lock import read_lock
from package import PROJECT, ROOT, Failed, build, install, pip_install, run, try_out

TEST_PACKAGES = ("pytest", "pytest-xdist", "hypothesis", "jsonschema", "jiter")
TESTS = ("tests/laws", "tests/conformance/test_cases.py", "tests/test_sse.py", "tests/test_times.py")
TEST_SECONDS = 600


def find_versions() -> list[str]:
    """The versions that the project claims to support."""
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"])
    return [match[1] for match in found if match]


def find_candidates(version: str) -> Iterator[str]:
    yield from os.environ.get("PYTHONS", "").split()
    yield from sorted(map(str, Path.home().glob(f".pyenv/versions/{version}*/bin/python")), reverse=True)
    yield f"python{version}"


def find_python(version: str) -> str | None:
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for candidate in find_candidates(version):
        try:
            done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, timeout=30, check=False)
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


def test_python(python: str, wheel: Path) -> str:
    """Raises Failed; gives what was done."""
    with tempfile.TemporaryDirectory(prefix="toolwire-python-") as scratch:
        folder = Path(scratch) / "environment"
        interpreter = install(wheel, folder, python)
        try_out(interpreter, folder)
        constraints = folder / "constraints.txt"
        locked = read_lock(ROOT / "requirements" / "dev.txt")
        constraints.write_text("".join(f"{package.name}=={package.version}\n" for package in locked))
        pip_install(interpreter, python, ["--constraint", str(constraints), *TEST_PACKAGES])
        command = [interpreter, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-m", "not slow", *TESTS]
        done = run(command, ROOT, {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}, TEST_SECONDS)
    version = run([python, "-c", "import platform; print(platform.python_version())"], ROOT).stdout.strip()
    passed = re.search(r"(\d+) passed", done.stdout)
    return f"Python {version}: the first request and {passed[1] if passed else 'no'} tests passed"


def main(words: list[str]) -> int:
    status = 0
    this = ".".join(map(str, sys.version_info[:2]))
    versions = [this] if words == ["--this"] else find_versions()
    with tempfile.TemporaryDirectory(prefix="toolwire-wheel-") as folder:
        _, wheel = build(Path(folder))
        for version in versions:
            python = sys.executable if words == ["--this"] else find_python(version)
            if python is None:
                sys.stdout.write(
                    f"Python {version}: not found, not tested (PYTHONS=/path/to/python{version} names it)\n"
                )
                continue
            started = time.monotonic()
            try:
                what = test_python(python, wheel)
            except Failed as error:
                what, status = f"Python {version}: FAILED ({python})\n{error}", 1
            sys.stdout.write(f"{what} ({time.monotonic() - started:.0f} s)\n")
            sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
