"""The rules of the code base that no linter knows: how codecs look, who may name a protocol, what things are called."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from toolwire.gateway.exchange.stages import Stages
from toolwire.protocols import CODECS, PACKAGES, UnknownProtocol, find_codec

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "toolwire"
CONFORMANCE = ROOT / "src" / "toolwire_conformance"
PROTOCOLS = SOURCE / "protocols"
MODULES = sorted((ROOT / "src").rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- layers and features --------------------------------------------------------------------------------------------


@cache
def _imports() -> frozenset[tuple[str, str]]:
    """Which module of `src` imports which, also for types alone, and inside of functions."""
    paths = {path.relative_to(ROOT / "src").with_suffix(""): path for path in MODULES if ROOT / "src" in path.parents}
    names = {".".join(one.parts).removesuffix(".__init__"): path for one, path in paths.items()}
    found = set()
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {(name, one.name) for one in node.names if one.name in names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                wholes = (f"{node.module}.{one.name}" for one in node.names)
                targets = {whole if whole in names else node.module for whole in wholes}
                found |= {(name, target) for target in targets if target in names}
    return frozenset(found)


def _neighbours(importer: str, imported: str) -> tuple[str, str] | None:
    """The two folders or modules beside each other that an import joins; None if one contains the other."""
    mine, other = importer.split("."), imported.split(".")
    same = next((at for at, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), None)
    return None if same is None else (".".join(mine[: same + 1]), ".".join(other[: same + 1]))


def test_no_imports_go_in_a_circle() -> None:
    """In every folder, what lies beside each other has an order: neither folders nor modules import each other, not
    even for types. The lists of `__init__.py` files are above what they list."""
    edges = {pair for one in _imports() if (pair := _neighbours(*one)) is not None}
    below: dict[str, set[str]] = {}
    for importer, imported in edges:
        below.setdefault(importer, set()).add(imported)
    while free := [name for name in below if not below[name] & below.keys()]:
        for name in free:
            del below[name]
    assert below == {}


def test_every_feature_section_and_hook_is_listed() -> None:
    features = SOURCE / "gateway" / "features"
    listed = (features / "__init__.py").read_text()
    loaded = (SOURCE / "gateway" / "configuration" / "load.py").read_text()
    documented = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    for feature in features.glob("*/__init__.py"):
        assert f"features.{feature.parent.name}" in listed, f"{feature.parent.name} is not in `Features`"
    for settings in features.glob("*/settings.py"):
        name = next(re.finditer(r"class (\w+)\(Section", settings.read_text()))[1]
        assert re.search(rf"SECTIONS[^)]*\b{name}\b", loaded), f"{name} is not in `SECTIONS`"
    for hook in vars(Stages()):
        assert f"`{hook}`" in documented, f"the hook {hook} is not in architecture.md"


def test_every_format_of_calls_in_text_is_listed() -> None:
    folder = SOURCE / "tool_formats" / "formats"
    listed = (folder / "__init__.py").read_text()
    assert [path.stem for path in folder.glob("[a-z]*.py") if f"*{path.stem}.FORMATS" not in listed] == []


# --- codecs ---------------------------------------------------------------------------------------------------------

CODEC_FILES = {
    "__init__.py", "names.py", "models.py", "content.py", "tools.py", "request.py", "response.py", "stream_reader.py",
    "stream_writer.py", "errors.py", "http.py", "members.py",
}  # fmt: skip
"""What every codec has, so that whoever knows one finds the way in all."""
MAX_MORE_FILES = 4


def test_every_folder_is_registered() -> None:
    folders = {path.parent.name for path in PROTOCOLS.glob("*/__init__.py")}
    assert folders == set(PACKAGES)


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_codec_is_found_by_its_name_with_hyphens_or_underscores(folder: str) -> None:
    name = folder.replace("_", "-")
    assert find_codec(name) is find_codec(folder) is CODECS[name]
    assert find_codec(name).name == name


def test_an_unknown_protocol_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownProtocol, match=", ".join(CODECS)):
        find_codec("telex")


@pytest.mark.parametrize("folder", PACKAGES)
def test_codecs_have_the_same_files_and_few_others(folder: str) -> None:
    entries = {path.name for path in (PROTOCOLS / folder).iterdir() if path.name != "__pycache__"}
    assert entries >= CODEC_FILES
    more = {name for name in entries - CODEC_FILES if name.endswith(".py") or "." not in name}
    assert len(more) <= MAX_MORE_FILES, sorted(more)


FACT_FILES = ("names.py", "models.py", "errors.py", "http.py")
WITHOUT_VENDOR = "unified"
SOURCE_AND_DATE = re.compile(r"(?:Source: |From |captured in |looked up in ).*20\d\d", re.DOTALL)


@pytest.mark.parametrize("folder", [folder for folder in PACKAGES if folder != WITHOUT_VENDOR])
def test_facts_of_a_vendor_have_a_source_and_a_date(folder: str) -> None:
    """Whoever checks a fact in a year must know where to look."""
    texts = {name: ast.get_docstring(ast.parse((PROTOCOLS / folder / name).read_text())) or "" for name in FACT_FILES}
    assert [name for name, text in texts.items() if not SOURCE_AND_DATE.search(text)] == []


# --- who may name a protocol ----------------------------------------------------------------------------------------

NAMES = {spelling for folder in PACKAGES for spelling in (folder, folder.replace("_", "-"))}
EXEMPT = (PROTOCOLS, CONFORMANCE / "peers", SOURCE / "gateway" / "settings" / "importers")
"""Codecs, the judges of the conformance suite, which must know the protocols without asking a codec, and the readers of
other gateways' files, whose words (LiteLLM's `bedrock_converse`) only look like ours."""
OWN_CODEC = {SOURCE / "gateway" / "features" / "responses": "openai_responses"}
"""Packages that serve one protocol and say so."""


def _is_name(node: ast.AST, allowed: str) -> bool:
    return isinstance(node, ast.Constant) and node.value in NAMES - {allowed, allowed.replace("_", "-")}


def _choosing_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The values that decide where the code goes: what is compared, matched, looked up, or the key of a table."""
    if isinstance(node, ast.Compare):
        for side in (node.left, *node.comparators):
            yield from side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else (side,)
    elif isinstance(node, ast.MatchValue):
        yield node.value
    elif isinstance(node, ast.Dict):
        yield from (key for key in node.keys if key is not None)
    elif isinstance(node, ast.Subscript):
        yield node.slice
    elif isinstance(node, ast.Call):
        yield from node.args


def _branches(path: Path) -> Iterator[str]:
    allowed = next((codec for folder, codec in OWN_CODEC.items() if folder in path.parents), "")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            words = node.module.split(".")
            if words[:2] == ["toolwire", "protocols"] and len(words) > 2 and words[2] != allowed:
                yield f"{relative(path)}:{node.lineno} imports from {node.module}"
        for value in _choosing_nodes(node):
            if _is_name(value, allowed):
                yield f"{relative(path)}:{value.lineno} branches on {ast.unparse(value)}"  # type: ignore[attr-defined]


def test_nobody_else_branches_on_the_name_of_a_protocol() -> None:
    """Text may and should name protocols and vendors; code asks the codec's constraints instead."""
    paths = (path for path in MODULES if not any(folder in path.parents for folder in EXEMPT))
    assert [branch for path in paths for branch in _branches(path)] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("if codec.name == 'gemini': pass", 1),
        ("if name in ('anthropic', 'x'): pass", 1),
        ("TABLE = {'openai-chat': 1}", 1),
        ("match name:\n    case 'gemini': pass", 1),
        ("name.startswith('gemini')", 1),
        ("from toolwire.protocols.gemini.names import NAME", 1),
        ("# gemini\nwhat = f'Gemini has no slot, anthropic has'", 0),
    ],
)
def test_a_branch_would_be_found(code: str, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(code)
    assert len(list(_branches(path))) == found


# --- layers ---------------------------------------------------------------------------------------------------------

WITH_IO = {"toolwire.cli", "toolwire.agents", "toolwire.in_process", "toolwire.gateway", "toolwire.terminal"}
"""Packages that may touch files or sockets; all others are in the contract that forbids it."""
MAX_ENTRIES = 12


def _contract(id: str) -> dict[str, list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(contract for contract in contracts if contract["id"] == id)


def _packages() -> set[str]:
    names = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")} - {
        "__init__",
        "__main__",
    }
    return {f"toolwire.{name}" for name in names}


def test_every_package_is_in_a_layer() -> None:
    listed = {name.strip() for layer in _contract("layers")["layers"] for name in re.split("[:|]", layer)}
    assert _packages() | {CONFORMANCE.name} == listed, "see the contract `layers` in pyproject.toml"


def test_every_package_without_io_is_held_to_it() -> None:
    assert _packages() - WITH_IO == set(_contract("pure")["source_modules"]), "see the contract `pure`"


def _hidden_ways(path: Path) -> Iterator[str]:
    """What no contract on imports sees: files that are opened by the builtin, and own modules that a text names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"open", "print", "input"}
        ):
            yield f"{relative(path)}:{node.lineno} {node.func.id}"


PURE = [SOURCE / name.partition(".")[2].replace(".", "/") for name in _contract("pure")["source_modules"]]


def test_no_module_without_io_opens_a_file() -> None:
    paths = [path for folder in PURE for path in (folder.rglob("*.py") if folder.is_dir() else [folder])]
    assert [way for path in paths for way in _hidden_ways(path)] == []


def test_a_module_that_a_text_names_is_in_the_same_folder() -> None:
    """The contracts read imports, and see no `import_module`."""
    found = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("toolwire."):
                named = ROOT / "src" / node.value.replace(".", "/")
                if named.with_suffix(".py").exists() and named.parent != path.parent:
                    found.append(f"{relative(path)}:{node.lineno} {node.value}")
    assert found == []


@pytest.mark.parametrize(
    "folder", [SOURCE, *(SOURCE / name for name in ("gateway", "cli", "cli/gateway", "cli/translation"))], ids=relative
)
def test_a_folder_can_be_read_at_a_glance(folder: Path) -> None:
    modules = (path.name for path in folder.glob("*.py") if path.name != "__init__.py")
    entries = [*modules, *(path.name for path in folder.iterdir() if (path / "__init__.py").exists())]
    assert len(entries) <= MAX_ENTRIES, sorted(entries)


# --- names and sizes ------------------------------------------------------------------------------------------------

FILE_LINES = 700
FUNCTION_LINES = 60
PARTICIPLE = re.compile(
    r"_*[a-z]*(ed|told|said|begun|kept|held|heard|spelled|sent|left|known|shown|given|taken|made|found)"
)
VERBS = {"feed", "_feed", "embed", "need", "seed", "send"}
"""Words that only look like a participle."""


def _functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{relative(path)}:{node.lineno} {node.name}", node


def test_files_and_functions_stay_readable() -> None:
    """Generous on purpose: these are limits for accidents, not a reason to split what belongs together."""
    assert not {relative(path): lines for path in MODULES if (lines := path.read_text().count("\n")) > FILE_LINES}
    lengths = {name: (node.end_lineno or 0) - node.lineno for path in MODULES for name, node in _functions(path)}
    assert not {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES}


MAX_FIELDS = 25
LARGE_CLASSES = {
    "Http": "what a codec declares about its protocol's paths and headers",
    "Constraints": "what a codec declares about its protocol",
    "Rule": "a table of the configuration",
    "PolicyTable": "a table of the configuration, and all of a rule",
    "ProviderTable": "a table of the configuration, with those of calls and accounts",
    "Options": "the switches of a translation",
    "LogLine": "a line of the log",
    "ExchangeRow": "a row of the console",
    "HttpRequest": "the interface of all requests, with one exchange of HTTP; it is made for every request",
    "UpstreamConnection": "one machine over the bytes of a socket",
    "AnswerSteps": "a table of the steps on an answer, of which most are absent",
}
"""Classes with more fields, and why they are not split: tables that are declared once, and what is made so often that
another object would cost more than it explains."""


def _assigned_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _assigned_names(one)
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        yield target.attr


def _fields(definition: ast.ClassDef) -> set[str]:
    """What a class declares, and what its `__init__` sets."""
    found = {
        node.target.id
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for method in definition.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            for node in ast.walk(method):
                targets = node.targets if isinstance(node, ast.Assign) else []
                targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
                found.update(name for target in targets for name in _assigned_names(target))
    return found


def _all_fields(definition: ast.ClassDef, unique: Mapping[str, ast.ClassDef]) -> set[str]:
    """With those of the classes that it is made from, where a name says which."""
    bases = (unique.get(ast.unparse(base)) for base in definition.bases)
    return _fields(definition).union(*(_all_fields(base, unique) for base in bases if base is not None))


def test_what_a_feature_knows_is_its_own_value() -> None:
    """A class with many fields is where things end up that have no place of their own; a class above it is none."""
    nodes = [node for path in MODULES if SOURCE in path.parents for node in ast.walk(ast.parse(path.read_text()))]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    by_name = Counter(node.name for node in classes)
    unique = {node.name: node for node in classes if by_name[node.name] == 1}
    assert {node.name for node in classes if len(_all_fields(node, unique)) > MAX_FIELDS} == set(LARGE_CLASSES)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("class A:\n    x: int\n    y: int = 1", {"x", "y"}),
        (
            "class A:\n    def __init__(self):\n        self.x, (self.y, z) = 1, (2, 3)\n        self.z: int = 1",
            {"x", "y", "z"},
        ),
        ("class A:\n    def later(self):\n        self.x = 1", set()),
    ],
)
def test_a_field_would_be_counted(code: str, found: set[str]) -> None:
    (definition,) = ast.parse(code).body
    assert isinstance(definition, ast.ClassDef)
    assert _fields(definition) == found


def test_functions_say_what_they_do() -> None:
    """Verb and object, or the value that they compute; a participle alone names neither."""
    ours = [*MODULES, *(path for folder in ("tests", "bench") for path in sorted((ROOT / folder).rglob("*.py")))]
    ours = [path for path in ours if "node_modules" not in path.parts]
    vague = [name for path in ours for name, node in _functions(path) if PARTICIPLE.fullmatch(node.name)]
    assert [name for name in vague if name.split()[-1] not in VERBS] == []


def test_no_file_is_a_grab_bag() -> None:
    banned = re.compile(r"(^|_)(utils?|helpers?|base|managers?|handlers?|common|misc|details)$")
    assert not [relative(path) for path in MODULES if banned.search(path.stem) or banned.search(path.parent.name)]


# --- what files say -------------------------------------------------------------------------------------------------

# Spelled in halves, so that this file does not find itself.
FORBIDDEN = tuple(
    head + tail
    for head, tail in (
        ("pypi", ".org"),
        ("files.python", "hosted.org"),
        ("npmjs", ".org"),
        ("npmjs", ".com"),
        ("--index", "-url"),
        ("--extra-index", "-url"),
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("/ho", "me/"),
        ("/Us", "ers/"),
    )
)


@cache
def _files() -> tuple[Path, ...]:
    """What is committed or would be; everything below the root where there is no git."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        hidden = {".venv", ".venv-serve", ".venv-bench", ".venv-frameworks", "node_modules"}
        return tuple(path for path in ROOT.rglob("*") if path.is_file() and not hidden & set(path.parts))
    return tuple(path for name in listed if name and (path := ROOT / name).is_file())


@pytest.mark.parametrize("word", FORBIDDEN)
def test_no_file_names_a_registry_or_a_path_of_one_machine(word: str) -> None:
    # Not within a longer path, such as the JSON Pointer `$defs` + the word.
    wanted = re.compile(rb"(?<!\w)" + re.escape(word.encode()))
    found = [relative(path) for path in _files() if wanted.search(path.read_bytes())]
    assert not found
