"""Checks the documentation: its Python runs, its commands print what is shown, its links are valid.

In a ```python block the lines `#> …` are the expected output; the blocks of one page share their variables.
In a ```console block the lines after `$ toolwire …` are the expected output, stdout and stderr together. A line `...`
matches any lines, and `...` within a line any characters. `<!-- not run -->` skips the next block.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

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


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running gateway, for examples that use the default address."""
    from gateway.conftest import served

    file = tmp_path_factory.mktemp("docs") / "toolwire.toml"
    file.write_text('[server]\nlog_format = "none"\n')
    with served(file) as url:
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


@pytest.mark.parametrize("page", _pages_with("console"))
def test_commands_write_what_is_shown(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    for block in blocks(page):
        if block.language == "console":
            for command, shown in _commands(block.code):
                written = _run(command)
                assert _pattern(shown).fullmatch(written), f"{page.name}:{block.line}: {command}\n{written}"


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
    named = set(re.findall(r"`(src/toolwire/[^`]*)`", page))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    drawn = set(re.findall(r"^ ([a-z]+)/", page.partition("```")[2].partition("```")[0], re.MULTILINE)) | {"schema"}
    assert drawn == {path.parent.name for path in (ROOT / "src" / "toolwire").glob("*/__init__.py")}
