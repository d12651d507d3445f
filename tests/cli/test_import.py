"""`toolwire import` as a process: what it writes where, and how it fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cli.terminal_golden import check_golden, make_environ, run_in_pipe
from forked_commands import TOOLWIRE, run_program

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "import"


@pytest.mark.parametrize("file", ["litellm.yaml", "claude-code-router.json"])
def test_what_it_shows(file: str, folder: Path) -> None:
    shutil.copy(EXAMPLES / file, folder)
    check_golden(f"import-{file.partition('.')[0]}", ["import", file], folder)


@pytest.mark.parametrize("file", ["litellm.yaml", "claude-code-router.json"])
def test_its_output_passes_doctor_config(file: str, folder: Path) -> None:
    converted = run_in_pipe(["import", str(EXAMPLES / file)], folder)
    assert converted.code == 0
    assert "written-into-the-file" not in converted.out + converted.err
    (folder / "toolwire.toml").write_text(converted.out)
    assert run_in_pipe(["doctor", "config"], folder).code == 0


def test_a_file_is_not_overwritten(folder: Path) -> None:
    (folder / "toolwire.toml").write_text("# mine\n")
    done = run_in_pipe(["import", str(EXAMPLES / "litellm.yaml"), "--output", "toolwire.toml"], folder)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: toolwire.toml exists already\nhint: ")
    assert (folder / "toolwire.toml").read_text() == "# mine\n"


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.yaml", "key: [sk-secret\n", "a.yaml: invalid YAML at line 2, column 1"),
        ("a.yaml", "key: \x00", "a.yaml: invalid YAML"),
        ("a.json", '{"key": "sk-secret" "more"}', "a.json: invalid JSON at line 1, column 21"),
        ("a.yaml", "model_list: &a [*a]\n", ""),
        ("a.yaml", "anything: else\n", "a.yaml is not a configuration file that is known here"),
        ("a.json", '["Providers"]', "a.json is not a configuration file that is known here"),
        ("a.json", "[" * 100000, "a.json: the values are nested too deeply"),
    ],
)
def test_files_that_cannot_be_converted(name: str, text: str, error: str, folder: Path) -> None:
    (folder / name).write_text(text)
    done = run_in_pipe(["import", name], folder)
    assert "Traceback" not in done.err
    assert "secret" not in done.err
    if error:
        assert done.code == 2
        assert done.err.startswith(f"error: {error}"), done.err


def test_without_pyyaml_it_names_the_extra(folder: Path) -> None:
    (folder / "yaml.py").write_text("raise ImportError\n")
    environ = make_environ(folder, {"PYTHONPATH": f"{folder}:{Path(__file__).parents[2] / 'src'}"})
    done = run_program([*TOOLWIRE, "import", str(EXAMPLES / "litellm.yaml")], folder, environ)
    assert (done.code, done.out) == (2, "")
    assert (
        done.err
        == "error: reading YAML needs the package PyYAML\nhint: install it with: pip install 'toolwire[import]'\n"
    )
    command = [*TOOLWIRE, "import", str(EXAMPLES / "claude-code-router.json")]
    assert run_program(command, folder, environ).code == 0
