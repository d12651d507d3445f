"""Builds the sdist and the wheel, checks what is in them, installs each into a clean environment, and tries it there:

    python .ci/package.py [FOLDER] [--no-install]        FOLDER is dist by default

Prints a line for each step, and fails with a sentence for each problem. The build backend must be installed.
"""

from __future__ import annotations

import email
import email.message
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lock import read_lock

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SERVE_LOCK = ROOT / "requirements" / "serve.txt"
BUILD_BACKEND = "uv-build"
SECONDS = 120
DIST_INFO_FILES = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
SDIST_FILES = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE"}
OPTIONAL_SDIST_FILES = {"pyproject.toml.orig"}
"""uv_build writes it if it had to change pyproject.toml."""
RELATIVE_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<target>[^)]*)\)")
"""A link or a picture of a Markdown page that leads to a file."""
SHOW_VERSIONS = """
import importlib.metadata, toolwire
print(toolwire.__file__, importlib.metadata.version("toolwire"), toolwire.__version__)
"""
FIRST_REQUEST = {
    "model": "loopback",
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
        }
    ],
}


class Failed(Exception):
    """What is wrong, in a sentence."""


# --- build ------------------------------------------------------------------------------------------------------------


def build(folder: Path, source: Path = ROOT) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from the unpacked sdist, as pip would do. Both have the README with
    absolute links."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("toolwire-*.tar.gz"), *folder.glob("toolwire-*.whl")):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "toolwire"
        shutil.copytree(source / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "LICENSE"):
            shutil.copy(source / name, copy)
        readme = (source / "README.md").read_text("utf-8")
        (copy / "README.md").write_text(make_links_absolute(readme, PROJECT["urls"]["Repository"]), "utf-8")
        sdist = folder / _call_backend(copy, "build_sdist", folder)
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        wheel = folder / _call_backend(next(Path(unpacked).iterdir()), "build_wheel", folder)
    return sdist, wheel


def make_links_absolute(text: str, repository: str) -> str:
    """A page whose links and pictures work outside of the repository: they lead to the files of this version."""

    def replace(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({repository}/{kind}/v{PROJECT['version']}/{link['target']})"

    return RELATIVE_LINK.sub(replace, text)


def _call_backend(source: Path, hook: str, folder: Path) -> str:
    program = f"import sys, uv_build; print(uv_build.{hook}(sys.argv[1]))"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = run([sys.executable, "-c", program, str(folder.resolve())], source, {"PATH": path})
    return done.stdout.split()[-1]


# --- contents ---------------------------------------------------------------------------------------------------------


def source_files() -> set[str]:
    """The files of the package, relative to src: what git knows, or all but caches where there is no git."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", "src"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in (ROOT / "src").rglob("*") if "__pycache__" not in path.parts]
    return {path.relative_to(ROOT / "src").as_posix() for path in paths if path.is_file()}


def find_content_problems(names: set[str], expected: set[str], optional: frozenset[str] | set[str]) -> Iterator[str]:
    for name in sorted(expected - names):
        yield f"{name} is missing"
    for name in sorted(names - expected - optional):
        yield f"{name} does not belong there"


def check_wheel(wheel: Path) -> Iterator[str]:
    name = f"{PROJECT['name']}-{PROJECT['version']}"
    with zipfile.ZipFile(wheel) as archive:
        names = {entry for entry in archive.namelist() if not entry.endswith("/")}
        metadata = email.message_from_bytes(archive.read(f"{name}.dist-info/METADATA"))
        entry_points = archive.read(f"{name}.dist-info/entry_points.txt").decode()
    sources = source_files()
    expected = sources | {f"{name}.dist-info/{file}" for file in DIST_INFO_FILES}
    yield from find_content_problems(names, expected, set())
    if "toolwire/py.typed" not in names:
        yield "toolwire/py.typed is missing: type checkers would ignore our types"
    if "toolwire = toolwire.cli:main" not in entry_points:
        yield "the command `toolwire` is missing"
    yield from check_metadata(metadata)


def check_sdist(sdist: Path) -> Iterator[str]:
    with tarfile.open(sdist) as archive:
        names = {entry.name.partition("/")[2] for entry in archive.getmembers() if entry.isfile()}
    yield from find_content_problems(
        names, SDIST_FILES | {f"src/{name}" for name in source_files()}, OPTIONAL_SDIST_FILES
    )


def check_metadata(metadata: email.message.Message) -> Iterator[str]:
    """What PyPI wants, and what pip decides by."""
    same = {"Name": "name", "Version": "version", "Requires-Python": "requires-python", "License-Expression": "license"}
    for field, key in same.items():
        if metadata[field] != PROJECT[key]:
            yield f"the metadata has {field}: {metadata[field]}, pyproject.toml has {PROJECT[key]}"
    if metadata["Description-Content-Type"] != "text/markdown" or len(str(metadata.get_payload())) < 1000:
        yield "the metadata has no description in Markdown"
    if relative := RELATIVE_LINK.search(str(metadata.get_payload())):
        yield f"the description has a link that leads nowhere on a package index: {relative['target']}"
    if len(metadata.get_all("Project-URL", [])) != len(PROJECT["urls"]):
        yield "the metadata has other addresses than pyproject.toml"
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    if len(required) != len(PROJECT["dependencies"]):
        yield f"the metadata has {len(required)} dependencies, pyproject.toml has {len(PROJECT['dependencies'])}"
    if set(metadata.get_all("Provides-Extra", [])) != set(PROJECT["optional-dependencies"]):
        yield "the metadata has other extras than pyproject.toml"


# --- a clean environment ----------------------------------------------------------------------------------------------


def make_environment(folder: Path, python: str) -> Path:
    """A new virtual environment without pip; gives its interpreter."""
    run([python, "-m", "venv", "--clear", "--without-pip", str(folder)], folder.parent)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pip_install(interpreter: Path, python: str, arguments: Sequence[str]) -> None:
    """With the pip of `python`, or, where it has none, with ours."""
    for base in (python, sys._base_executable):  # type: ignore[attr-defined]
        if subprocess.run([base, "-c", "import pip"], capture_output=True, check=False).returncode == 0:
            pip = [base, "-m", "pip", "--python", str(interpreter)]
            break
    else:
        raise Failed(f"{python} has no pip: install it with `{python} -m ensurepip`")
    path = os.pathsep.join([str(interpreter.parent), os.environ.get("PATH", "")])
    environ = {"PATH": path, "PYTHONPATH": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run([*pip, "install", "--quiet", "--progress-bar", "off", *arguments], interpreter.parent, environ)


def install(archive: Path, folder: Path, python: str) -> Path:
    """Install an sdist or a wheel as users do, but with the tested versions of what it needs; gives the interpreter."""
    interpreter = make_environment(folder, python)
    packages = read_lock(SERVE_LOCK)
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{package.name}=={package.version}\n" for package in packages))
    options = ["--constraint", str(constraints)]
    if archive.suffix != ".whl":
        pip_install(interpreter, python, [*options, BUILD_BACKEND])
        options.append("--no-build-isolation")
    pip_install(interpreter, python, [*options, str(archive.resolve())])
    return interpreter


def try_out(interpreter: Path, folder: Path) -> int:
    """Every command's help, and the first request; gives the number of commands."""
    with tempfile.TemporaryDirectory() as home:
        environ = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), home)
        environ |= {"PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
        file, installed, written = run([interpreter, "-c", SHOW_VERSIONS], home, environ).stdout.split()
        if not Path(file).resolve().is_relative_to(folder.resolve()):
            raise Failed(f"toolwire was imported from {file}, not from the environment {folder}")
        if not installed == written == PROJECT["version"]:
            raise Failed(f"the versions differ: {installed} is installed, toolwire.__version__ is {written}")
        toolwire = interpreter.with_name("toolwire.exe" if os.name == "nt" else "toolwire")
        listed = run(
            [interpreter, "-c", "from toolwire.cli.commands import COMMANDS; print(*COMMANDS, sep='\\n')"],
            home,
            environ,
        )
        commands = listed.stdout.splitlines()
        for command in commands:
            done = run([toolwire, *command.split(), "--help"], home, environ)
            if f"toolwire {command}" not in done.stdout or done.stderr:
                raise Failed(f"`toolwire {command} --help` prints: {done.stdout[:200]}{done.stderr[:500]}")
        with serving(toolwire, Path(home), environ) as origin:
            send_first_request(origin)
        return len(commands)


@contextmanager
def serving(toolwire: Path, home: Path, more: Mapping[str, str]) -> Iterator[str]:
    """`toolwire serve` on a free port; gives its address."""
    command = [str(toolwire), "serve", "--port", "0"]
    log = home / "serve.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=home, env=_environment(more), stdout=out, stderr=subprocess.STDOUT)
    try:
        yield _wait_for_address(process, log)
    finally:
        process.terminate()
        code = process.wait(SECONDS)
    if code and os.name != "nt":
        raise Failed(f"`toolwire serve` ended with {code}:\n{log.read_text()}")


def _wait_for_address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.05)
    raise Failed(f"`toolwire serve` does not serve:\n{log.read_text()}")


def send_first_request(origin: str) -> None:
    """The README's first example: the built-in model calls the tool."""
    body = json.dumps(FIRST_REQUEST).encode()
    request = urllib.request.Request(f"{origin}/v1/chat/completions", body, {"content-type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=SECONDS) as response:
        answer = json.load(response)
    calls = answer["choices"][0]["message"].get("tool_calls") or []
    if [json.loads(call["function"]["arguments"]) for call in calls] != [{"city": "Paris"}]:
        raise Failed(f"the first request does not call the tool: {answer}")


# --- processes --------------------------------------------------------------------------------------------------------


NOTHING: Mapping[str, str] = {}


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    for name in ("TOOLWIRE_CONFIG", "VIRTUAL_ENV"):
        kept.pop(name, None)
    return {**kept, **more}


def run(
    command: Sequence[str | Path], folder: str | Path, more: Mapping[str, str] = NOTHING, seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a command; raises Failed with the end of what it prints."""
    words = [str(word) for word in command]
    pipe, environ = subprocess.PIPE, _environment(more)
    with subprocess.Popen(
        words, cwd=folder, env=environ, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill_with_children(process)
            out, err = process.communicate()
            raise Failed(f"`{' '.join(words)}` took more than {seconds:.0f} s:\n{(out + err)[-2000:]}") from None
    if process.returncode:
        raise Failed(f"`{' '.join(words)}` ended with {process.returncode}:\n{(out + err)[-2000:]}")
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _kill_with_children(process: subprocess.Popen[str]) -> None:
    """Workers of pytest would go on in a folder that is removed."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def package(folder: Path, python: str, installs: bool = True) -> None:
    """Build and check both, and install and try them. Raises Failed."""
    sdist, wheel = build(folder)
    problems = [f"{wheel.name}: {text}" for text in check_wheel(wheel)]
    problems += [f"{sdist.name}: {text}" for text in check_sdist(sdist)]
    if problems:
        raise Failed("\n".join(problems))
    for archive in (wheel, sdist) if installs else ():
        with tempfile.TemporaryDirectory(prefix="toolwire-package-") as scratch:
            place = Path(scratch) / "environment"
            commands = try_out(install(archive, place, python), place)
        size = archive.stat().st_size // 1024
        sys.stdout.write(f"{archive.name}: {size} kB, installed, {commands} commands, first request answered\n")
        sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    folders = [word for word in arguments if not word.startswith("--")]
    folder = Path(folders[0]) if folders else ROOT / "dist"
    try:
        package(folder, sys._base_executable, "--no-install" not in arguments)  # type: ignore[attr-defined]
    except Failed as error:
        sys.stderr.write("".join(f"error: {line}\n" for line in str(error).splitlines()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
