"""JSON Schema and its dialects: conversions that report their changes, and checks. All are pure functions.

`convert_to_standard` reads any dialect into JSON Schema 2020-12. `convert_to_openai_parameters`,
`convert_to_openai_strict`, `convert_to_anthropic_input`, `convert_to_openapi_subset` (Gemini), `convert_to_strict` and
`add_descriptions` write what a provider demands. `schema_problems`, `strict_problems` and `missing_descriptions` only
check. Only a schema that is nested too deeply raises an exception, `Malformed`.
"""

from toolwire.schema.keywords import ConvertedSchema, SchemaChange, add_descriptions, missing_descriptions
from toolwire.schema.object_root import (
    convert_to_object_root,
    ensure_object_root,
)
from toolwire.schema.openapi_subset import convert_to_openapi_subset
from toolwire.schema.repair import (
    ANY_ARGUMENTS,
    accept_any_if_too_deep,
    convert_arguments,
    convert_to_anthropic_input,
    convert_to_openai_parameters,
    convert_to_openai_strict,
    drop_absent_nulls,
    drop_invalid_keywords,
    point_references,
    repair_schema,
    restore_arguments,
)
from toolwire.schema.standard import convert_to_standard
from toolwire.schema.strict import (
    STRICT_ALL_REQUIRED,
    STRICT_WITH_OPTIONAL,
    Strictness,
    convert_to_strict,
    count_optional_and_unions,
    strict_problems,
)
from toolwire.schema.validate import schema_problems

__all__ = [
    "ANY_ARGUMENTS",
    "STRICT_ALL_REQUIRED",
    "STRICT_WITH_OPTIONAL",
    "ConvertedSchema",
    "SchemaChange",
    "Strictness",
    "accept_any_if_too_deep",
    "add_descriptions",
    "convert_arguments",
    "convert_to_anthropic_input",
    "convert_to_object_root",
    "convert_to_openai_parameters",
    "convert_to_openai_strict",
    "convert_to_openapi_subset",
    "convert_to_standard",
    "convert_to_strict",
    "count_optional_and_unions",
    "drop_absent_nulls",
    "drop_invalid_keywords",
    "ensure_object_root",
    "missing_descriptions",
    "point_references",
    "repair_schema",
    "restore_arguments",
    "schema_problems",
    "strict_problems",
]
