"""JSON Schema and its dialects: conversions that say what they changed, and checks. Pure functions, no room's words.

`standard` reads other dialects into plain JSON Schema. `object_root`, `subset`, `structured` and `describe` write what
a target demands. `problems`, `strict_problems` and `missing_descriptions` only look. A schema that is nested absurdly
raises `wire.Malformed`; nothing else is raised, whatever stands where a schema should stand.
"""

from toolwire.schema.descriptions import add_descriptions, missing_descriptions
from toolwire.schema.keywords import ConvertedSchema, SchemaChange
from toolwire.schema.object_root import (
    convert_arguments,
    convert_to_object_root,
    ensure_object_root,
    is_flat_object,
    restore_arguments,
)
from toolwire.schema.openapi_subset import convert_to_openapi_subset
from toolwire.schema.standard import convert_to_standard
from toolwire.schema.strict import (
    STRICT_ALL_REQUIRED,
    STRICT_WITH_OPTIONAL,
    Strictness,
    convert_to_strict,
    strict_problems,
)
from toolwire.schema.validate_schema import schema_problems

__all__ = [
    "STRICT_ALL_REQUIRED",
    "STRICT_WITH_OPTIONAL",
    "ConvertedSchema",
    "SchemaChange",
    "Strictness",
    "add_descriptions",
    "convert_arguments",
    "convert_to_object_root",
    "convert_to_openapi_subset",
    "convert_to_standard",
    "convert_to_strict",
    "ensure_object_root",
    "is_flat_object",
    "missing_descriptions",
    "restore_arguments",
    "schema_problems",
    "strict_problems",
]
