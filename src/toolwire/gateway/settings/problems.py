"""What is wrong with a configuration: the line, what stands there, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True):
    """One mistake (the file is refused) or one warning (it is not)."""

    where: str
    """The place: a dotted path in the file, or the name of a variable of the environment."""
    what: str
    hint: str = ""
    line: int = 0
    """The line in the file; 0 when it stands in none."""
    severity: Literal["error", "warning"] = "error"


class Problems(Exception):
    """A configuration that is refused, with everything that is wrong with it."""

    def __init__(self, found: Sequence[Problem], file: str = "") -> None:
        self.found = tuple(sorted(found, key=lambda problem: problem.line))
        self.file = file
        super().__init__("; ".join(f"{said(problem, file)}" for problem in self.found))

    @property
    def told(self) -> tuple[str, str]:
        """All of them, a line each, and what to do about the first that has a hint."""
        lines = [said(problem, self.file) for problem in self.found]
        hints = [problem.hint for problem in self.found if problem.hint]
        return "\n       ".join(lines), hints[0] if hints else "`toolwire check-config` says more"


def said(problem: Problem, file: str) -> str:
    """`file:line: what`, as compilers say it; the place instead where there is no line."""
    place = f"{file}:{problem.line}" if problem.line and file else problem.where
    return f"{place}: {problem.what}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, or nothing."""
    names = list(known)
    folded = {name.lower().replace("_", "-"): name for name in names}
    found = get_close_matches(word.lower().replace("_", "-"), folded, 1, 0.6)
    return folded[found[0]] if found else ""


def meant(word: str, known: Iterable[str]) -> str:
    """A hint for a word that nobody knows."""
    names = list(known)
    near = nearest(word, names)
    return f"did you mean `{near}`?" if near else f"there is: {', '.join(names)}" if names else ""
