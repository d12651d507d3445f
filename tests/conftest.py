"""For all tests: generated examples are the same in every run, a slow machine is no failure, and nothing is kept."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from material import CORPUS

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every process that a test starts would compile all modules again

settings.register_profile("toolwire", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "toolwire"))
if settings().derandomize:
    # Or it draws from the numbers and texts in all modules that happen to be imported, which are others in every worker.
    providers._get_local_constants = lambda: providers._local_constants

for name, handler in {"SIGHUP": lambda number, frame: None, "SIGINT": signal.default_int_handler}.items():
    number = getattr(signal, name, None)  # Windows has no SIGHUP
    if (
        number is not None
        and signal.getsignal(number) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        # Under `nohup`, or in the background of a script, every process that a test starts would ignore it too, and some
        # are sent one. A signal that is handled here, and not ignored, starts in others with its default.
        signal.signal(number, handler)

COMMANDS = {Path(__file__).parent / name for name in ("agents", "console")}
"""The real agents and the console in a browser have commands of their own: `make test-agents`, `make test-console`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path not in COMMANDS:
        return None
    asked_for = any(Path(word.partition("::")[0]).resolve().is_relative_to(collection_path) for word in config.args)
    return None if asked_for else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """25,000 tests and their modules stay until the end: the garbage collector need not look at them again and again."""
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a gateway keeps goes into a folder of the tests, never into the one of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


_FAILED = pytest.StashKey[bool]()
_DESCRIPTORS = Path("/dev/fd")
_open: dict[str, int] = {}
"""How many descriptors were open after each test of this file."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What a test leaves open never fails a test of another file.

    Writers, clients and loops are in cycles: the garbage collector finds them, some time later. It is asked when the last test
    of a file has ended (to ask it after every test would take minutes), and when one has failed. What a failed test left is
    held by its traceback, and nobody is to blame for it.
    """
    try:
        return (yield)
    finally:
        failed = item.stash.get(_FAILED, False)
        sys.last_type = sys.last_value = sys.last_traceback = sys.last_exc = None
        is_last = nextitem is None or nextitem.path != item.path
        left = _collect_garbage() if failed or is_last else []
        _open[item.name] = len(os.listdir(_DESCRIPTORS)) if _DESCRIPTORS.exists() else 0
        counts = list(_open.items()) if left else []
        if is_last:
            _open.clear()
        if left and not failed:
            suspects = [name for (_, before), (name, after) in pairwise(counts) if after > before]
            lines = ["a test of this file left something open:", *left, "after these more was open than before:"]
            pytest.fail("\n".join([*lines, *suspects]), pytrace=False)


def _collect_garbage() -> list[str]:
    """What was said of objects that nobody has closed."""
    said: list[str] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda told: said.append(f"{told.object!r}: {told.exc_value!r}")
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
    return said


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each thing that is missing, however many tests need it.

    It is here and not in `tests/gateway`, because with several workers only this file is loaded where reports arrive.
    """
    if not CORPUS.exists():
        terminalreporter.write_line("The recorded corpus is not here: the tests that read it were left out.")
    skipped = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()) if report.longrepr}
    for reason in sorted(reason.removeprefix("Skipped: ") for reason in skipped if reason.endswith("left out")):
        terminalreporter.write_line(f"Note: {reason}.")


@pytest.fixture(scope="session")
def frameworks_python() -> str:
    """The interpreter with LangChain and pydantic-ai, which want older SDKs than the ones that judge our writers."""
    root = Path(__file__).parents[1]
    found = Path(os.environ.get("TOOLWIRE_FACES", root / ".venv-frameworks")) / "bin" / "python"
    if not found.exists():
        pytest.skip("no .venv-frameworks here (`make frameworks` makes it): LangChain and pydantic-ai are left out")
    return str(found)
