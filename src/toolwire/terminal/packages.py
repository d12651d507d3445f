"""Packages that may not be installed: which extra brings each of them, and what to tell whoever needs one."""

from __future__ import annotations

from importlib.util import find_spec

EXTRAS = {
    "asyncpg": "store",
    "cryptography": "store",
    "redis": "redis",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "httpx2": "mcp",
    "anyio": "mcp",
    "opentelemetry": "otel",
    "yaml": "import",
}


def is_installed(package: str) -> bool:
    return find_spec(package) is not None


def describe_missing_package(user: str, package: str) -> tuple[str, str]:
    """The problem and the hint. `user` is what needs the package, such as "PostgreSQL"."""
    name = package.partition(".")[0]
    return f"{user} needs the package {name}, which is not installed", install_hint(name)


def describe_import_error(user: str, error: ImportError, standard_modules: frozenset[str]) -> tuple[str, str] | None:
    """The same for a failed import. None if it is not about another package: then it is a mistake of ours."""
    name = (error.name or "").partition(".")[0]
    if name in ("", "toolwire"):
        return None
    if name in standard_modules:
        problem = f"{user} needs Python's own module {name}, which this Python was built without"
        return problem, "use another Python, such as one of python.org or of your system"
    if isinstance(error, ModuleNotFoundError):
        return describe_missing_package(user, name)
    return f"{user} cannot use the package {name} that is installed: {error}", install_hint(name, "--upgrade ")


def install_hint(package: str, option: str = "") -> str:
    extra = EXTRAS.get(package)
    return f"install it with: pip install {option}" + (f"'toolwire[{extra}]'" if extra else "toolwire")
