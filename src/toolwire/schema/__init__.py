"""JSON Schema and its dialects: conversions that report their changes, and checks. All are pure functions.

`convert_to_standard` reads any dialect into JSON Schema 2020-12. `convert_to_openai_parameters`,
`convert_to_openai_strict`, `convert_to_anthropic_input`, `convert_to_openapi_subset` (Gemini), `convert_to_strict` and
`add_descriptions` write what a provider demands. `schema_problems`, `strict_problems` and `missing_descriptions` only
check. Only a schema that is nested too deeply raises an exception, `Malformed`.
"""
