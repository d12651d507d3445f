"""LangChain's standard tests of a chat model, through Toolwire inside of the program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from waits import PATIENCE

FRAMEWORKS = Path(__file__).parents[1] / "frameworks"


def test_langchains_standard_tests_pass(frameworks_python: str) -> None:
    file = FRAMEWORKS / "langchain_standard.py"
    alone = [f"--confcutdir={FRAMEWORKS}", f"--rootdir={FRAMEWORKS}", "-c", "/dev/null", "-p", "no:cacheprovider"]
    command = [frameworks_python, "-m", "pytest", "-q", *alone, "-o", "asyncio_mode=auto", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stdout
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    assert int(passed[1]) > 60  # some are for models that see or hear, and are left out
