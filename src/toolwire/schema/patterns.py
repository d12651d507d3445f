"""Patterns of JSON Schema, matched in linear time.

A client chooses the pattern and the text, and Python's `re` can be made to try for hours (`^(a|a)*b$`). The time of RE2
grows only with the text. What RE2 cannot express (lookaround, backreferences) is not checked; without RE2, nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_PATTERN = 4096
"""Characters of a pattern; schemas of real tools have some dozens."""
_UNICODE_ESCAPE = re.compile(r"\\u(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{4}))")


def compile_pattern(pattern: str) -> Callable[[str], bool] | None:
    """Says whether the pattern occurs in a text. None for a pattern that cannot be checked."""
    if len(pattern) > MAX_PATTERN:
        return None
    try:
        import re2  # type: ignore[import-untyped]  # noqa: PLC0415 — `import toolwire` needs only msgspec
    except ImportError:  # it has no wheels for this platform
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(_UNICODE_ESCAPE.sub(_write_escape, pattern), options)
    except re2.error:
        return None
    return lambda text: compiled.search(text) is not None


def _write_escape(found: re.Match[str]) -> str:
    """ECMAScript's `\\u0041` as RE2 writes it."""
    return f"\\x{{{found[1] or found[2]}}}"
