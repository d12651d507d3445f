"""A test that fails, or that leaves something open, never fails its neighbour."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forked_commands import run_program
from install.clean_runs import clean_environment

HERE = Path(__file__).parent
LEAVING = """
import asyncio

async def leave(fails):
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    reader.itself = reader, writer
    assert not fails

def test_before():
    pass

def test_that_fails():
    asyncio.run(leave(True))

def test_{kind}():
    {body}

def test_last():
    pass
"""


@pytest.mark.parametrize(("kind", "body"), [("good", "pass"), ("careless", "asyncio.run(leave(False))")])
def test_whoever_leaves_something_open_is_named(tmp_path: Path, kind: str, body: str) -> None:
    (tmp_path / "test_one.py").write_text(LEAVING.format(kind=kind, body=body))
    (tmp_path / "test_two.py").write_text("import gc\n\ndef test_other_file():\n    gc.collect()\n")
    options = ("-W", "error", "-p", "conftest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-rA", "-q")
    done = run_program(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        tmp_path,
        clean_environment(tmp_path, PYTHONPATH=str(HERE)),
    )
    told = set(re.findall(r"^(FAILED|ERROR) \S*::(\w+)", done.out, re.MULTILINE))
    careless = {("ERROR", "test_last")} if kind == "careless" else set()
    assert told == {("FAILED", "test_that_fails"), *careless}, done.out
    assert ("more was open than before:\ntest_careless\n" in done.out) == (kind == "careless")


def _find_late_steps(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs after a `yield`, and not in a `finally`."""
    for number, statement in enumerate(block):
        if any(isinstance(node, ast.Yield) for node in ast.walk(statement)):
            if not any(isinstance(node, ast.Return) for node in ast.walk(statement)):
                yield from block[number + 1 :]
            for name in ("body", "orelse", "handlers"):
                yield from _find_late_steps(getattr(statement, name, []))


def test_what_a_context_manager_opened_is_closed_also_after_a_failure() -> None:
    """A fixture goes on after its `yield` however the test ended; other context managers need a `finally`."""
    found = []
    for file in (file for file in HERE.rglob("*.py") if "node_modules" not in file.parts):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                words = [ast.unparse(decorator) for decorator in node.decorator_list]
                if any(word.endswith("contextmanager") for word in words):
                    steps = [ast.unparse(step) for step in _find_late_steps(node.body)]
                    found += [
                        f"{file.relative_to(HERE)}, {node.name}: {step}"
                        for step in steps
                        if re.search(
                            r"\b(close|shutdown|kill|terminate|abort|release|remove|disconnect)(_all)?\(", step
                        )
                    ]
    assert found == []
