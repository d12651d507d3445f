"""Patterns of JSON Schema, matched in linear time.

A client chooses the pattern and the text, and Python's `re` can be made to try for hours (`^(a|a)*b$`). The time of RE2
grows only with the text. What RE2 cannot express (lookaround, backreferences) is not checked; without RE2, nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

try:
    import re2  # type: ignore[import-untyped]

    _OPTIONS = re2.Options()
    _OPTIONS.log_errors = False
except ImportError:  # it comes with the gateway
    re2 = None

MAX_PATTERN = 4096
"""Characters of a pattern; schemas of real tools have some dozens."""
_UNICODE_ESCAPE = re.compile(r"\\u(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{4}))")


def compile_pattern(pattern: str) -> Callable[[str], bool] | None:
    """Says whether the pattern occurs in a text. None for a pattern that cannot be checked."""
    if re2 is None or len(pattern) > MAX_PATTERN:
        return None
    try:
        compiled = re2.compile(_UNICODE_ESCAPE.sub(_write_escape, pattern), _OPTIONS)
    except re2.error:
        return None
    return lambda text: compiled.search(text) is not None


def _write_escape(found: re.Match[str]) -> str:
    """ECMAScript's `\\u0041` as RE2 writes it."""
    return f"\\x{{{found[1] or found[2]}}}"
