"""JSON Schema and its dialects: conversions that say what they changed, and checks. Pure functions, no room's words.

`standard` reads other dialects into plain JSON Schema. `object_root`, `subset`, `structured` and `describe` write what
a target demands. `problems`, `strict_problems` and `missing_descriptions` only look. A schema that is nested absurdly
raises `wire.Malformed`; nothing else is raised, whatever stands where a schema should stand.
"""

from toolwire.schema.closed import CLOSED, FULL, Strictness, strict_problems, structured
from toolwire.schema.described import describe, missing_descriptions
from toolwire.schema.plain import standard
from toolwire.schema.reduced import subset
from toolwire.schema.renames import applied, restored
from toolwire.schema.rooted import is_flat, object_only, object_root
from toolwire.schema.valid import problems
from toolwire.schema.words import Change, Converted

__all__ = [
    "CLOSED",
    "FULL",
    "Change",
    "Converted",
    "Strictness",
    "applied",
    "describe",
    "is_flat",
    "missing_descriptions",
    "object_only",
    "object_root",
    "problems",
    "restored",
    "standard",
    "strict_problems",
    "structured",
    "subset",
]
