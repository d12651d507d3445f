"""Builds the documentation site from docs/ with Zensical: `make docs`. The result is build/site.

docs/README.md is the one list of all pages: its headings and links become the navigation. Files outside docs/ that a
page links to (CONTRIBUTING.md, …) become part of the site. A link that leads nowhere fails the build.
A page of the result may not load anything from another host: a Content-Security-Policy forbids it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
STAGED = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
CONFIG = ROOT / "build" / "zensical.toml"
OUTSIDE = "repository"
"""The folder of the site for files that are not in docs/."""

FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*(?P<code>\n.*?^```)$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<text>\[[^\]]+\])\((?!\w+:)(?P<path>[^)#\s]+)(?P<heading>#[^)\s]*)?\)")
NESTED = re.compile(r"^(?P<indent> {2,3})(?=(?:[-*]|\d+\.) )", re.MULTILINE)
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(https?://[^\">\s]+)")
STYLED = re.compile(r"<link\b(?![^>]*canonical)[^>]*\bhref=\"?(https?://[^\">\s]+)")
PROBLEM = re.compile(r"Warning: (?P<what>.*)\n.*\[ (?P<where>\S+) \]")

SETTINGS = """\
[project]
site_name = "Toolwire"
site_description = "Any agent, any model: a gateway, library and command line that translate tool calling."
copyright = "Apache-2.0"
docs_dir = "docs"
site_dir = "site"
nav = {nav}

[project.theme]
font = false
language = "en"
features = [
    "content.code.copy",
    "navigation.indexes",
    "navigation.sections",
    "navigation.top",
    "navigation.footer",
    "search.highlight",
    "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark mode"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Light mode"

[project.markdown_extensions.admonition]
[project.markdown_extensions.tables]
[project.markdown_extensions.toc]
permalink = true
toc_depth = 3
slugify.object = "pymdownx.slugs.slugify"
slugify.kwds.case = "lower"
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.pymdownx.inlinehilite]
"""


def read_navigation(index: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The sections of docs/README.md: each heading, and the pages below it."""
    sections: list[tuple[str, list[tuple[str, str]]]] = []
    for heading, item, path in re.findall(r"^## (.+)$|^- \[(.+?)\]\(([^)]+\.md)\)", index, re.MULTILINE):
        if heading:
            sections.append((heading, []))
        else:
            sections[-1][1].append((item.replace("`", ""), path))
    return [(heading, pages) for heading, pages in sections if pages]


def write_settings(index: str) -> None:
    nav: list[dict[str, object]] = [{"Start": "README.md"}]
    for heading, pages in read_navigation(index):
        nav.append({heading: [{title: staged_path(DOCS, path)} for title, path in pages]})
    CONFIG.write_text(SETTINGS.format(nav=to_toml(nav)), "utf-8")


def to_toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(to_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {to_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def staged_path(folder: Path, link: str) -> str:
    """Where the target of a link is in the site, relative to its root."""
    target = (folder / link).resolve()
    if target == ROOT / "README.md":
        return "README.md"
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    return f"{OUTSIDE}/{target.relative_to(ROOT).as_posix()}"


class Staging:
    """Copies pages into the folder that Zensical reads, and the files outside docs/ that they link to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Path, Path]] = []
        self.done: set[Path] = set()

    def copy_all(self) -> None:
        shutil.rmtree(STAGED, ignore_errors=True)
        shutil.copytree(DOCS, STAGED)
        self.waiting = [(page, STAGED / page.relative_to(DOCS)) for page in sorted(DOCS.rglob("*.md"))]
        while self.waiting:
            source, target = self.waiting.pop()
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.suffix == ".md":
                target.write_text(self.stage_page(source, target), "utf-8")
            else:
                shutil.copyfile(source, target)

    def stage_page(self, source: Path, target: Path) -> str:
        """A page with links to where files are in the site, and nested lists indented as Python-Markdown wants."""

        def rewrite_link(found: re.Match[str]) -> str:
            path = STAGED / staged_path(source.parent, found["path"])
            original = (source.parent / found["path"]).resolve()
            if path.is_relative_to(STAGED / OUTSIDE) and path not in self.done:
                if not original.is_file():
                    sys.exit(f"error: {source.relative_to(ROOT)}: {found[0]}: link to a file, not to a folder")
                self.done.add(path)
                self.waiting.append((original, path))
            relative = os.path.relpath(path, target.parent).replace(os.sep, "/")
            return f"{found['text']}({relative}{found['heading'] or ''})"

        def rewrite_text(text: str) -> str:
            return NESTED.sub("    ", LINK.sub(rewrite_link, text))

        text, pieces, end = source.read_text("utf-8"), [], 0
        for fence in FENCE.finditer(text):
            # Python-Markdown knows one word after the backticks; our tests know more (`json request`).
            pieces += [rewrite_text(text[end : fence.start()]), f"```{fence['language']}{fence['code']}"]
            end = fence.end()
        return "".join([*pieces, rewrite_text(text[end:])])


def seal_pages() -> None:
    """Add the policy to every page, and fail if one names a file of another host."""
    tag = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    for page in SITE.rglob("*.html"):
        html = page.read_text("utf-8")
        for address in LOADED.findall(html) + STYLED.findall(html):
            sys.exit(f"error: {page.relative_to(SITE)} loads {address} from another host")
        page.write_text(html.replace("<head>", f"<head>{tag}", 1), "utf-8")


def main() -> int:
    Staging().copy_all()
    write_settings((DOCS / "README.md").read_text("utf-8"))
    shutil.rmtree(SITE, ignore_errors=True)
    program = Path(sys.executable).with_name("zensical")
    command = [str(program), "build", "--clean", "--strict", "--config-file", str(CONFIG)]
    built = subprocess.run(command, cwd=CONFIG.parent, capture_output=True, text=True, check=False)
    if built.returncode:
        report = re.sub(r"\x1b\[[0-9;]*m", "", built.stdout + built.stderr)
        problems = [f"error: docs/{found['where']}: {found['what']}" for found in PROBLEM.finditer(report)]
        sys.stderr.write("\n".join(problems) + "\n" if problems else report)
        return 1
    seal_pages()
    pages = sum(1 for _ in SITE.rglob("*.html"))
    sys.stdout.write(f"{SITE.relative_to(ROOT)}: {pages} pages. Look at it: python3 -m http.server -d build/site\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
