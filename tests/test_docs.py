"""Checks the documentation: its Python runs, its commands print what is shown, its links are valid.

In a ```python block the lines `#> …` are the expected output; the blocks of one page share their variables.
In a ```sh block that begins with `curl` the lines `#> …` are the expected output of its commands. In a ```typescript
block they begin with `//> …`; the blocks of one page are one module, and have no type annotations, so that Node can run
them. In a ```console block the lines after `$ toolwire …` are the expected output, stdout and stderr together. A line `...`
matches any lines, and `...` within a line any characters. `<!-- not run -->` skips the next block. Examples that use the
gateway's default address run against a gateway with the embedded model.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from waits import PATIENCE

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FENCE = re.compile(r"^(?P<mark><!-- not run -->\n+)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?!\w+:)(?P<path>[^)#\s]*)(?:#(?P<heading>[^)\s]*))?\)")
PROMPT = "$ toolwire "


class Block(NamedTuple):
    language: str
    code: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        if not found["mark"]:
            yield Block(found["language"], found["code"], text.count("\n", 0, found.start("code")) + 1)


def _pages_with(language: str) -> list[Any]:
    pages = (page for page in PAGES if any(block.language == language for block in blocks(page)))
    return [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in pages]


ADDRESS = "http://127.0.0.1:8642"
SDKS = ("openai", "anthropic", "google", "botocore")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running gateway, for examples that use the default address."""
    from gateway.conftest import serve_config

    file = tmp_path_factory.mktemp("docs") / "toolwire.toml"
    file.write_text('[server]\nlog_format = "none"\n[models]\nfast = "loopback/loopback"\n')  # of the tutorial
    with serve_config(file) as url:
        yield url


@pytest.mark.parametrize("page", _pages_with("python"))
def test_python_runs_and_prints_what_it_says(page: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "__docs__"}
    for block in blocks(page):
        if block.language == "python":
            printed = io.StringIO()
            code = compile("\n" * (block.line - 1) + block.code.replace(ADDRESS, address), page.name, "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            expected = re.findall(r"^ *#> ?(.*)$", block.code, re.MULTILINE)
            assert [line.rstrip() for line in printed.getvalue().splitlines()] == expected, f"{page.name}:{block.line}"
    for value in names.values():  # clients of SDKs: a program that ends closes them, too
        if type(value).__module__.partition(".")[0] in SDKS and callable(getattr(value, "close", None)):
            value.close()


@pytest.mark.parametrize("page", _pages_with("console"))
def test_commands_write_what_is_shown(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    for block in blocks(page):
        if block.language == "console":
            for command, shown in _commands(block.code):
                written = _run(command)
                assert _pattern(shown).fullmatch(written), f"{page.name}:{block.line}: {command}\n{written}"


def _curl_pages() -> list[Any]:
    return [page for page in _pages_with("sh") if any(map(_is_curl, blocks(page.values[0])))]


def _is_curl(block: Block) -> bool:
    return block.language == "sh" and block.code.startswith("curl ")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
@pytest.mark.parametrize("page", _curl_pages())
def test_curl_prints_what_it_says(page: Path, address: str) -> None:
    for block in filter(_is_curl, blocks(page)):
        script = block.code.replace(ADDRESS, address)
        done = subprocess.run(
            ["bash", "-euc", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert done.returncode == 0, f"{page.name}:{block.line}: {done.stderr}"
        expected = "".join(f"{line}\n" for line in re.findall(r"^#> ?(.*)$", block.code, re.MULTILINE))
        written = done.stdout if done.stdout.endswith("\n") else f"{done.stdout}\n"
        assert _pattern(expected).fullmatch(written), f"{page.name}:{block.line}: {written}"


@pytest.mark.parametrize("page", _pages_with("typescript"))
def test_typescript_runs_and_prints_what_it_says(page: Path, address: str, pytestconfig: pytest.Config) -> None:
    from gateway.npm import HERE, install_packages

    node = install_packages(pytestconfig)
    code = "\n".join(block.code for block in blocks(page) if block.language == "typescript")
    command = [node, "--input-type=module"]  # from standard input, so that it finds the packages of tests/js
    script = code.replace(ADDRESS, address)
    done = subprocess.run(
        command, cwd=HERE, input=script, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, f"{page.name}: {done.stderr}"
    assert done.stdout.splitlines() == re.findall(r"^ *//> ?(.*)$", code, re.MULTILINE), page.name


@pytest.mark.parametrize("page", _pages_with("toml"))
def test_toml_is_a_valid_configuration(page: Path) -> None:
    from toolwire.gateway.configuration.load import find_problems

    for block in blocks(page):
        if block.language == "toml":
            code = re.sub(r'(?<=sha256 = ")…', _hash_by_place, block.code)
            variables = re.findall(r'^(\w+)_env = "(\w+)"', code, re.MULTILINE)
            url = "redis://127.0.0.1" if "[counters]" in code else "sqlite:////tmp/store.db"
            environ = {name: url if key == "url" else 40 * "k" for key, name in variables}
            problems = [problem for problem in find_problems(code, environ) if problem.severity == "error"]
            assert problems == [], f"{page.name}:{block.line}"


def _hash_by_place(found: re.Match[str]) -> str:
    """A hash for each key that a page leaves out, all different."""
    return hashlib.sha256(f"client {found.start()}".encode()).hexdigest()


def _commands(code: str) -> Iterator[tuple[str, str]]:
    for piece in re.split(rf"^(?={re.escape(PROMPT)})", code, flags=re.MULTILINE):
        if piece.startswith(PROMPT):
            command, _, shown = piece.removeprefix("$ ").partition("\n")
            yield command, shown.removesuffix("\n\n") + "\n" if shown.endswith("\n\n") else shown


def _run(command: str) -> str:
    from toolwire.cli import main

    written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        code = main(shlex.split(command)[1:])
    written.seek(0)
    text = written.read()
    assert code == 0, f"{command} ended with {code}\n{text}"
    return text


def _pattern(shown: str) -> re.Pattern[str]:
    """A pattern for the shown output, where `...` matches anything."""
    lines = re.sub(r"^\.\.\.\n", "\0", shown, flags=re.MULTILINE)
    escaped = re.escape(lines).replace("\0", r"(?:.*\n)*").replace(re.escape("..."), ".*")
    return re.compile(escaped)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.finditer(page.read_text()):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        assert target.exists(), link[0]
        if link["heading"]:
            assert link["heading"] in _headings(target), link[0]


def _headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_begins_with_what_the_reader_gets() -> None:
    """A title, then a sentence or two; not a table, a list, code or another heading."""
    bare = re.compile(r"\A# [^\n]+\n\n(?:\*\d{4}-\d\d-\d\d, \w+\*\n\n)?(?=[A-Z`*])")
    assert [page.name for page in (ROOT / "docs").rglob("*.md") if not bare.match(page.read_text())] == []


IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<path>[^)\s]+)\)")


def test_pictures_are_there_and_load_nothing() -> None:
    """`make pictures` and `make console-pictures` draw them. A reader who sees no picture gets a text."""
    used = set()
    for page in PAGES:
        for image in IMAGE.finditer(page.read_text()):
            path = (page.parent / image["path"]).resolve()
            used.add(path)
            assert image["text"], f"{page.name}: {image[0]}"
            assert re.findall(r"(?:href|src|url|import)\W+https?:", path.read_text("latin-1")) == [], image["path"]
    assert used == set((ROOT / "docs" / "pictures").iterdir())


def test_the_score_in_the_readme_is_that_of_the_results() -> None:
    rows = re.findall(r"^\| (?:\*\*)?([^|]* [\d.]+) \|(.*)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    shown = {title.replace("*", ""): [int(cell) for cell in re.findall(r"\d+", cells)] for title, cells in rows}
    summary = (ROOT / "docs" / "conformance.md").read_text().partition("## Summary")[2].partition("## The grid")[0]
    expected = {}
    for line in summary.splitlines()[4:]:
        if line:
            title, version, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            grid, cases = list(map(int, cells[:3])), list(map(int, cells[3:6]))
            expected[f"{title} {version}"] = [one + other for one, other in zip(grid, cases, strict=True)]
    assert len(expected) == 7
    assert shown == expected


SDK_PACKAGES = {
    "from openai import": "pip install openai",
    "from anthropic import": "pip install [a-z ]*anthropic",
    "from google import genai": "pip install [a-z ]*google-genai",
    "import OpenAI from": "npm install openai",
    "import Anthropic from": "npm install [a-z ]*@anthropic-ai/sdk",
}


@pytest.mark.parametrize("line", SDK_PACKAGES)
def test_pages_say_what_their_examples_need(line: str) -> None:
    pages = [page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if f"\n{line}" in page.read_text()]
    assert pages
    for page in pages:
        before = page.read_text().partition(f"\n{line}")[0]
        assert re.search(SDK_PACKAGES[line], before), f"{page.name}: {SDK_PACKAGES[line]}"


def test_the_index_gives_the_site_its_navigation() -> None:
    """`make docs` reads the navigation from the index: every page is in it once, below a heading."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("site_builder", ROOT / ".ci" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    builder = module_from_spec(spec)
    spec.loader.exec_module(builder)
    sections = builder.read_navigation((ROOT / "docs" / "README.md").read_text())
    listed = [path for _, pages in sections for _, path in pages if not path.startswith("../")]
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(page for page in pages if page != "README.md")


def test_links_outside_the_docs_lead_to_files() -> None:
    """`make docs` copies what is outside docs/: it can copy a file, not a folder."""
    for page in (ROOT / "docs").rglob("*.md"):
        for link in LINK.finditer(page.read_text()):
            assert (page.parent / link["path"]).is_file() or not link["path"], f"{page.name}: {link[0]}"


def test_the_architecture_page_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    named = set(re.findall(r"`(src/toolwire[^`]*)`", page))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    drawn = set(re.findall(r"^ ([a-z_]+)/", page.partition("```")[2].partition("```")[0], re.MULTILINE)) | {"schema"}
    packages = {path.parent.name for path in (ROOT / "src" / "toolwire").glob("*/__init__.py")}
    assert drawn == packages | {"toolwire_conformance"}


def test_the_architecture_page_names_functions_that_exist() -> None:
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    named = re.findall(r"`([\w.]+)` in\s+`(src/toolwire[^`]*\.py)`", page)
    assert len(named) > 10
    lacking = [(name, path) for name, path in named if name.split(".")[-1] not in (ROOT / path).read_text()]
    assert lacking == []
