"""Schemas of tools as OpenAI and Anthropic accept them: valid JSON Schema 2020-12 with an object at the root.

Both check all schemas before the model sees the request, and one bad schema refuses the whole request. So a keyword
with an invalid value is left out and reported, and OpenAI's own rules are kept: an array has `items`, the root has
`properties` and no union, and with `strict` every property is required.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Annotated, Any, Final, Protocol, TypeAlias, Union, cast

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, defstruct, field
from msgspec.structs import replace

from toolwire.core.converted_schema import ConvertedSchema, SchemaChange
from toolwire.core.ir import Tool
from toolwire.core.json_values import Json, Malformed, Object, Path, is_too_deep, path_keys
from toolwire.core.tokens import is_openai_model
from toolwire.schema.combine import ReferenceLookup, reference_to, string_items, type_names
from toolwire.schema.keywords import (
    REFERENCE_KEYWORDS,
    TYPE_CHECKS,
    ChangeLog,
    append_sentences,
    convert_schemas,
    keyword_sentence,
    listed_values,
    refuse_deep_nesting,
    short_json,
)
from toolwire.schema.object_root import (
    convert_to_object_root,
    make_object_root,
    replace_keys,
)
from toolwire.schema.standard import convert_to_standard, make_nullable
from toolwire.schema.strict import convert_to_strict, strict_problems, unenforceable
from toolwire.schema.validate import NAMED_TWICE, NOT_A_SCHEMA, find_schema_problems, python_pattern_problem

ANY_ARGUMENTS: Final[Object] = {"type": "object", "properties": {}}
MAX_REPAIRS: Final = 4
"""How often a repaired schema is checked again: leaving out a keyword can uncover another problem."""


class _SchemaConversion(Protocol):
    def __call__(self, schema: Json, model: str = "") -> ConvertedSchema: ...


def accept_any_if_too_deep(convert: Callable[[Json, str], ConvertedSchema]) -> _SchemaConversion:
    """The conversion, with a schema that accepts any object instead of `Malformed`: the other tools must go on."""

    def convert_or_open(schema: Json, model: str = "") -> ConvertedSchema:
        try:
            return convert(schema, model)
        except Malformed as problem:
            change = SchemaChange(None, f"{problem.problem}; it became an object with any properties")
            return ConvertedSchema(ANY_ARGUMENTS, (change,))

    return convert_or_open


def restore_arguments(arguments: Json, converted: ConvertedSchema) -> Json:
    """Convert arguments for the converted schema to arguments for the original one."""
    if converted.optional_in is not None:
        arguments = drop_absent_nulls(arguments, converted.optional_in)
    if converted.renames:
        arguments = replace_keys(arguments, converted.renames)
    if converted.wrapper_property and isinstance(arguments, dict) and set(arguments) == {converted.wrapper_property}:
        return arguments[converted.wrapper_property]
    return arguments


def convert_arguments(arguments: Json, converted: ConvertedSchema) -> Json:
    """Convert arguments for the original schema to arguments for the converted one. A property that is absent stays so:
    no provider checks the arguments of earlier calls."""
    if converted.wrapper_property:
        arguments = {converted.wrapper_property: arguments}
    if converted.renames:
        arguments = replace_keys(arguments, {old: new for new, old in converted.renames.items()})
    return arguments


# --- valid keywords -------------------------------------------------------------------------------------------------

_Count: TypeAlias = Annotated[int, Meta(ge=0)]


class _UsualNode(Struct, tag_field="type", forbid_unknown_fields=True, gc=False):
    """The keywords of most schemas, by type: msgspec checks them and their values in one pass, without Python code.
    A schema with any other is looked at closely."""

    description: str = ""
    title: str = ""
    default: Any = None


class _UsualString(_UsualNode, tag="string", gc=False):
    enum: list[Any] | UnsetType = UNSET
    const: Any = None
    minLength: _Count = 0
    maxLength: _Count = 0


class _UsualInteger(_UsualNode, tag="integer", gc=False):
    minimum: int = 0
    maximum: int = 0
    exclusiveMinimum: int = 0
    exclusiveMaximum: int = 0
    enum: list[Any] | UnsetType = UNSET
    const: Any = None


class _UsualNumber(_UsualInteger, tag="number", gc=False):
    pass


class _UsualBoolean(_UsualNode, tag="boolean", gc=False):
    const: Any = None


class _UsualNull(_UsualBoolean, tag="null", gc=False):
    pass


class _UsualArray(_UsualNode, tag="array", gc=False):
    minItems: _Count = 0
    maxItems: _Count = 0


class _UsualObject(_UsualNode, tag="object", gc=False):
    required: tuple[str, ...] = ()
    additionalProperties: bool = True
    dialect: str = field(name="$schema", default="")

    def has_distinct_names(self) -> bool:
        return len({*self.required}) == len(self.required)


class _UsualInnerObject(_UsualObject, tag="object", gc=False):
    def __post_init__(self) -> None:
        if not self.has_distinct_names():
            raise ValueError("`required` names a property twice")


_MAX_USUAL_DEPTH: Final = 8


def _make_usual_root() -> type[_UsualObject]:
    """The type of a usual schema. Each level of nesting has types of its own, which limits the depth."""
    scalars = (_UsualString, _UsualInteger, _UsualNumber, _UsualBoolean, _UsualNull)
    node: Any = Union[scalars]  # noqa: UP007 - a tuple of types
    for _ in range(_MAX_USUAL_DEPTH - 1):
        array = defstruct("UsualArray", [("items", node)], bases=(_UsualArray,), kw_only=True, gc=False)
        inner: list[Any] = [("properties", dict[str, node], {})]
        node = Union[(*scalars, array, defstruct("UsualObject", inner, bases=(_UsualInnerObject,), gc=False))]
    root: list[Any] = [("properties", dict[str, node], {})]
    return cast("type[_UsualObject]", defstruct("UsualRoot", root, bases=(_UsualObject,), gc=False))


_USUAL_ROOT: Final = _make_usual_root()


def is_usual(schema: Json) -> bool:
    """Is this the schema of an object like most, which every provider accepts? A quick check; False means only that it
    is unclear."""
    try:
        root = convert(schema, _USUAL_ROOT)
    except ValidationError:
        return False
    return "type" in schema and root.has_distinct_names()  # for a single type, msgspec does not demand the tag


def drop_invalid_keywords(schema: Json) -> ConvertedSchema:
    """The schema without keywords whose value is invalid. What is not a schema at all accepts any value."""
    refuse_deep_nesting(schema)
    notes = ChangeLog()
    out = schema
    for _ in range(MAX_REPAIRS):
        problems = find_schema_problems(out)
        if not problems:
            return ConvertedSchema(out, notes.changes())
        out = deepcopy(out) if out is schema else out
        for path, what in problems:
            _drop_value(out, path, what, notes)
    notes.add(None, "the schema is invalid; it became an object with any properties")
    return ConvertedSchema(ANY_ARGUMENTS, notes.changes())


def _drop_value(schema: Json, path: Path, what: str, notes: ChangeLog) -> None:
    """Leave out the value at this place, unless another one that held it was left out before."""
    *outer, last = path_keys(path)
    holder: Any = schema
    for key in outer:
        try:
            holder = holder[key]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(holder, list) or what.startswith(NOT_A_SCHEMA):
        notes.add(path, f"{what}; any value is accepted here")
        holder[last] = {}
    elif last in holder and what == NAMED_TWICE:
        notes.add(path, f"`{last}` {what}; once is kept")
        holder[last] = list(dict.fromkeys(holder[last]))
    elif last in holder:
        notes.add(path, f"`{last}` was left out: {what}")
        del holder[last]


def point_references(schema: Json) -> ConvertedSchema:
    """The schema with every reference as a JSON Pointer, which all providers can follow: they know neither anchors nor
    ids, and fetch nothing. Where a reference has no target in the schema, any value is accepted."""
    refuse_deep_nesting(schema)
    notes = ChangeLog()
    lookup = ReferenceLookup(schema)

    def convert(node: Object, path: Path) -> Object:
        out = node
        for key in filter(node.__contains__, REFERENCE_KEYWORDS):
            found = lookup.find_target(node[key])
            if found is None:
                notes.add((path, key), f"{short_json(node[key], 100)} has no target and was left out")
                out = {name: value for name, value in out.items() if name != key}
            elif not _is_pointer(node[key]):
                pointer = reference_to(found[1])
                notes.add((path, key), f"{short_json(node[key], 100)} became {short_json(pointer, 100)}")
                out = {("$ref" if name == key else name): value for name, value in out.items()} | {"$ref": pointer}
        return out

    return ConvertedSchema(convert_schemas(schema, convert), notes.changes())


def repair_schema(schema: Json) -> ConvertedSchema:
    """The schema as valid JSON Schema 2020-12, with references that can be followed."""
    out = convert_to_standard(schema)
    for repair in (drop_invalid_keywords, point_references):
        if isinstance(out.schema, dict):
            made = repair(out.schema)
            out = replace(made, changes=(*out.changes, *made.changes))
    return out


def _is_pointer(reference: str) -> bool:
    return reference == "#" or reference.startswith("#/")


# --- OpenAI ---------------------------------------------------------------------------------------------------------

_REFUSED_AT_ROOT: Final = ("enum", "const", "not", "if", "then", "else")


@accept_any_if_too_deep
def convert_to_openai_parameters(schema: Json, model: str = "") -> ConvertedSchema:
    """The schema as OpenAI accepts it for the parameters of a function. The model does not matter."""
    if is_usual(schema) and "properties" in schema:
        return ConvertedSchema(schema)
    valid = repair_schema(schema)
    notes = ChangeLog()
    root, wrapped = make_object_root(valid.schema, notes)
    if not _has_accepted_root(root):
        root = _complete_root(root, notes)
    out = _complete_nodes(root, notes)
    return ConvertedSchema(out, (*valid.changes, *notes.changes()), wrapper_property=wrapped)


def openai_refuses_tool(tool: Tool, model: str) -> bool:
    """OpenAI refuses the whole request if the schema of one function is not as it wants it."""
    is_judged = tool.kind == "function" and tool.parameters is not None and is_openai_model(model)
    return is_judged and not fits_openai(tool.parameters, bool(tool.strict))


def fits_openai(schema: Json, is_strict: bool = False) -> bool:
    """Is this a schema that OpenAI takes as it is for the parameters of a function?"""
    if is_strict:
        return not is_too_deep(schema) and all(map(_is_tolerated, strict_problems(schema)))
    if is_usual(schema):
        return "properties" in schema
    if find_schema_problems(schema) or not _has_accepted_root(schema):
        return False
    notes = ChangeLog()
    _complete_nodes(schema, notes)
    return not notes.changes()


def _has_accepted_root(schema: Json) -> bool:
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return False
    return _UNIONS_AND_REFUSED.isdisjoint(schema)


_UNIONS_AND_REFUSED: Final = frozenset({"anyOf", "oneOf", "allOf", "$ref", *_REFUSED_AT_ROOT})


def _complete_root(root: Object, notes: ChangeLog) -> Object:
    """OpenAI refuses some keywords at the root, and an object without `properties` there."""
    out = {key: value for key, value in root.items() if key not in _REFUSED_AT_ROOT}
    sentences = []
    for key in filter(root.__contains__, _REFUSED_AT_ROOT):
        text = keyword_sentence(key, root[key])
        sentences += [text] if text else []
        notes.add((None, key), f"`{key}` {'became a sentence of the description' if text else 'was left out'}")
    if sentences:
        out["description"] = append_sentences(out.get("description"), sentences)
    if not isinstance(out.get("properties"), dict):
        notes.add(None, "an empty `properties` was added")
        out["properties"] = {}
    return out


def _complete_nodes(schema: Object, notes: ChangeLog) -> Object:
    """Arrays get `items`, and patterns that OpenAI cannot read become sentences."""

    def convert(out: Object, path: Path) -> Object:
        if "array" in type_names(out.get("type")) and not isinstance(out.get("items"), (dict, bool)):
            notes.add(path, "an array needs `items`; any items are accepted")
            out = {**out, "items": {}}
        # OpenAI reads patterns with Python's `re`, which has no `\p{…}`.
        if isinstance(out.get("pattern"), str) and python_pattern_problem(out["pattern"]):
            notes.add((path, "pattern"), "`pattern` became a sentence of the description")
            text = keyword_sentence("pattern", out["pattern"])
            out = {key: value for key, value in out.items() if key != "pattern"}
            out["description"] = append_sentences(out.get("description"), [text])
        return out

    completed: Object = convert_schemas(schema, convert)
    return completed


# --- OpenAI, strict -------------------------------------------------------------------------------------------------


def convert_to_openai_strict(schema: Json) -> tuple[ConvertedSchema, str]:
    """The schema for a tool with `strict`, and ""; or why OpenAI would refuse it. An optional property becomes a
    required one that may be null; `drop_absent_nulls` undoes that in the arguments."""
    if is_too_deep(schema):
        return convert_to_openai_parameters(schema), "the schema is nested too deeply"
    if all(_is_tolerated(problem) for problem in strict_problems(schema)):
        return ConvertedSchema(schema), ""
    converted = convert_to_openai_parameters(schema)
    closed = convert_to_strict(converted.schema)
    notes = ChangeLog()
    out = _require_all_properties(closed.schema, notes)
    problems = strict_problems(out)
    if problems:
        return converted, f"{problems[0].what} ({problems[0].pointer or 'the root'})"
    changes = (*converted.changes, *closed.changes, *notes.changes())
    return replace(converted, schema=out, changes=changes, optional_in=closed.schema if notes.changes() else None), ""


def _is_tolerated(problem: SchemaChange) -> bool:
    """OpenAI's guide does not list `default` and keywords such as `x-optional`, but recordings show that it accepts
    them."""
    key = problem.path[1] if problem.path is not None else ""
    return isinstance(key, str) and (key == "default" or key.startswith("x-")) and problem.what == unenforceable(key)


def _require_all_properties(schema: Json, notes: ChangeLog) -> Json:
    lookup = ReferenceLookup(schema)

    def convert(out: Object, path: Path) -> Object:
        properties = out.get("properties")
        if not isinstance(properties, dict):
            return out
        required = set(string_items(out.get("required")))
        optional = [name for name in properties if name not in required]
        if not optional:
            return out if "required" in out else {**out, "required": []}
        made = dict(properties)
        for name in optional:
            notes.add(((path, "properties"), name), "the optional property became a required one that may be null")
            if isinstance(made[name], dict) and not _accepts_null(made[name], lookup):
                made[name] = make_nullable(dict(made[name]))
        return {**out, "properties": made, "required": list(made)}

    return convert_schemas(schema, convert)


def _accepts_null(node: Json, lookup: ReferenceLookup, depth: int = 0) -> bool:
    """Whether null matches a schema that has only the keywords of strict schemas."""
    if not isinstance(node, dict) or depth > 20:
        return node is True
    if "$ref" in node:
        found = lookup.find_target(node["$ref"])
        return found is not None and _accepts_null(found[0], lookup, depth + 1)
    values = listed_values(node)
    if values is not None and None not in values:
        return False
    if "type" in node and "null" not in type_names(node["type"]):
        return False
    branches = node.get("anyOf")
    return not isinstance(branches, list) or any(_accepts_null(branch, lookup, depth + 1) for branch in branches)


def drop_absent_nulls(arguments: Json, schema: Json) -> Json:
    """The arguments without each null that stands for an absent property: the property is optional in this schema, and
    null is not one of its values."""
    return _NullRemover(schema).restore(arguments, schema)


class _NullRemover:
    def __init__(self, schema: Json) -> None:
        self.lookup = ReferenceLookup(schema)

    def restore(self, value: Json, node: Json) -> Json:
        if not isinstance(value, (dict, list)):
            return value
        node = self._find_branch(value, node, 0)
        if node is None:
            return value
        if isinstance(value, list):
            items = node.get("items")
            return [self.restore(item, items) for item in value]
        properties = node.get("properties")
        if not isinstance(properties, dict):
            return value
        required = string_items(node.get("required"))
        out: Object = {}
        for name, item in value.items():
            child = properties.get(name)
            if item is None and name in properties and name not in required and not _accepts_null(child, self.lookup):
                continue
            out[name] = self.restore(item, child) if name in properties else item
        return out

    def _find_branch(self, value: Json, node: Json, depth: int) -> Object | None:
        """The schema without references and unions that this object or array was written for; None if it is unclear."""
        if not isinstance(node, dict) or depth > 20:
            return None
        if "$ref" in node:
            found = self.lookup.find_target(node["$ref"])
            return None if found is None else self._find_branch(value, found[0], depth + 1)
        if isinstance(node.get("anyOf"), list):
            branches = (self._find_branch(value, branch, depth + 1) for branch in node["anyOf"])
            return next((branch for branch in branches if branch is not None), None)
        return node if self._fits(value, node) else None

    def _fits(self, value: Json, node: Object) -> bool:
        """Does the value fit at its first level? All properties of a strict object are there, so this tells apart what
        the alternatives of real tools are told apart by: their keys, constants and types."""
        if isinstance(value, list):
            return "array" in type_names(node.get("type"))
        properties = node.get("properties")
        if not isinstance(properties, dict):
            return "object" in type_names(node.get("type"))
        required = string_items(node.get("required"))
        if not all(name in value for name in required) or not all(name in properties for name in value):
            return False
        return all(
            (item is None and name not in required) or self._may_be(item, properties[name], 0)
            for name, item in value.items()
        )

    def _may_be(self, item: Json, node: Json, depth: int) -> bool:
        """Can the item match this schema, as far as its type and the listed values say?"""
        if not isinstance(node, dict) or depth > 20:
            return True
        if "$ref" in node:
            found = self.lookup.find_target(node["$ref"])
            return found is None or self._may_be(item, found[0], depth + 1)
        if isinstance(node.get("anyOf"), list):
            return any(self._may_be(item, branch, depth + 1) for branch in node["anyOf"])
        values = listed_values(node)
        if values is not None and not isinstance(item, (dict, list)) and item not in values:
            return False
        kinds = type_names(node.get("type"))
        return not kinds or any(TYPE_CHECKS[kind](item) for kind in kinds)


# --- Anthropic ------------------------------------------------------------------------------------------------------


def fits_anthropic(schema: Json) -> bool:
    """Is this a schema that Anthropic takes as it is for the input of a tool?"""
    return convert_to_object_root(schema).schema is schema and (is_usual(schema) or not find_schema_problems(schema))


@accept_any_if_too_deep
def convert_to_anthropic_input(schema: Json, model: str = "") -> ConvertedSchema:
    """The schema as Anthropic accepts it for the input of a tool: legal names of properties, no union at the root."""
    if is_usual(schema):
        return convert_to_object_root(schema)
    valid = repair_schema(schema)
    made = convert_to_object_root(valid.schema)
    return replace(made, changes=(*valid.changes, *made.changes)) if valid.changes else made
