"""The tables of the store: `sqlite.sql` and `postgres.sql`, in steps from one version to the next."""

from __future__ import annotations

import re
from importlib.resources import files

_STEP = re.compile(r"^-- version \d+.*\n", re.MULTILINE)


def read_steps(file: str) -> tuple[str, ...]:
    return tuple(map(str.strip, _STEP.split((files(__package__) / file).read_text("utf-8"))[1:]))
