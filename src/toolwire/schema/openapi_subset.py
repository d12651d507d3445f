"""Convert schemas to Gemini's dialect, a subset of OpenAPI 3.0: upper-case types, few keywords, no references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from toolwire.core.converted_schema import ConvertedSchema, SchemaChange
from toolwire.core.json_values import Json, Object, Path, is_number
from toolwire.schema.combine import (
    UNSATISFIABLE_TYPE,
    Intersection,
    ReferenceLookup,
    inline_references,
    intersect_schemas,
    string_items,
    type_names,
    unique_values,
)
from toolwire.schema.keywords import (
    ANNOTATION_KEYWORDS,
    COUNT_KEYWORDS,
    KEYWORDS_BY_TYPE,
    NUMBERED_TYPES,
    REFERENCE_KEYWORDS,
    TYPE_CHECKS,
    TYPE_NAMES,
    UNION_KEYWORDS,
    ChangeLog,
    all_schemas_pass,
    allowed_value_sentences,
    append_sentences,
    guess_type,
    keyword_sentences,
    listed_values,
    paths_by_identity,
    read_count,
    refuse_deep_nesting,
    short_json,
)
from toolwire.schema.object_root import IDENTIFIER, ObjectRootBuilder, make_object_root, make_property_name
from toolwire.schema.standard import rename_keywords

_COMMON_KEYWORDS: Final = frozenset({"type", "title", "description", "nullable", "default", "example"})
SUBSET_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "STRING": _COMMON_KEYWORDS | {"format", "enum", "minLength", "maxLength", "pattern"},
    "NUMBER": _COMMON_KEYWORDS | {"format", "minimum", "maximum"},
    "INTEGER": _COMMON_KEYWORDS | {"format", "minimum", "maximum"},
    "BOOLEAN": _COMMON_KEYWORDS,
    "NULL": _COMMON_KEYWORDS,
    "ARRAY": _COMMON_KEYWORDS | {"items", "minItems", "maxItems"},
    "OBJECT": _COMMON_KEYWORDS | {"properties", "required", "minProperties", "maxProperties", "propertyOrdering"},
}
"""The allowed keywords by type; Gemini refuses a keyword of another type."""
HANDLED_KEYWORDS: Final = frozenset(
    "properties required minProperties maxProperties propertyOrdering items prefixItems additionalItems minItems"
    " maxItems pattern minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum type title description"
    " nullable default example examples format enum const anyOf oneOf allOf $ref $dynamicRef $recursiveRef $defs"
    " definitions".split()
)
"""Keywords that the conversion handles, or that do not matter for another type; all others are reported as left out."""

_KEYWORD_ORDER: Final = (
    "type format title description nullable enum items minItems maxItems properties required minProperties"
    " maxProperties propertyOrdering minimum maximum minLength maxLength pattern example default".split()
)
ANY_VALUE_COST: Final = 400


def order_keywords(node: Object) -> Object:
    """The keywords in a fixed order, so that equal schemas are written equally."""
    return {key: node[key] for key in _KEYWORD_ORDER if key in node}


def any_value_schema() -> Object:
    """A schema that accepts any value, as far as the dialect allows: it demands a type everywhere."""
    plain: list[Object] = [{"type": name} for name in ("STRING", "NUMBER", "BOOLEAN", "OBJECT")]
    plain[0]["nullable"] = True
    return {"anyOf": [*plain, {"type": "ARRAY", "items": {"anyOf": [dict(one) for one in plain]}}]}


_NUMBER_FORMATS: Final = {"int32": "integer", "int64": "integer", "float": "number", "double": "number"}


def json_type_of(value: Json) -> str:
    kind = next(kind for kind, has_type in TYPE_CHECKS.items() if has_type(value))
    return "integer" if kind == "number" and isinstance(value, int) else kind


def accepted_types(flat: Object) -> tuple[list[str], bool]:
    """The types that a node accepts, without null, and whether it accepts null; no types if it accepts any value."""
    kinds = type_names(flat.get("type"))
    nullable = flat.get("nullable") is True
    if not kinds:
        kinds = list(dict.fromkeys(json_type_of(value) for value in listed_values(flat) or ()))
        kinds = [kind for kind in kinds if kind != "integer" or "number" not in kinds]
    if not kinds:
        guess = guess_type(flat)
        form = flat.get("format")
        if guess is None and isinstance(form, str):
            guess = _NUMBER_FORMATS.get(form, "string")
        kinds = [guess] if guess else []
        nullable = nullable and bool(kinds)
    return [kind for kind in kinds if kind != "null"], nullable or "null" in kinds


def accepts_default(node: Object, value: Json) -> bool:
    """Whether this value can be the default of this node."""
    kind = json_type_of(value).upper()
    if node["type"] == kind or (kind == "INTEGER" and node["type"] == "NUMBER"):
        return True
    return kind == "NULL" and node.get("nullable") is True


def _is_name_list(value: Json) -> bool:
    return value.__class__ is list and bool(value) and all(item.__class__ is str for item in value)


def _is_properties(value: Json) -> bool:
    is_map = value.__class__ is dict and all(child.__class__ is dict for child in value.values())
    return is_map and all(map(IDENTIFIER.fullmatch, value))


_CHECKS: Final[Mapping[str, Callable[[Json], bool]]] = {
    **dict.fromkeys(("format", "title", "description", "pattern"), lambda value: value.__class__ is str),
    "nullable": lambda value: value.__class__ is bool,
    "enum": lambda value: _is_name_list(value) and "" not in value,
    "items": lambda value: value.__class__ is dict,
    "properties": _is_properties,
    **dict.fromkeys(("required", "propertyOrdering"), _is_name_list),
    **dict.fromkeys(("minimum", "maximum"), is_number),
    **dict.fromkeys(COUNT_KEYWORDS, lambda value: value.__class__ is int and value >= 0),
}


def is_in_subset(node: Object) -> bool:
    """Whether this schema, apart from inner schemas, is already as the conversion would write it."""
    kind = node.get("type")
    if kind is None:
        branches = node.get("anyOf")
        if len(node) != 1 or branches.__class__ is not list or len(branches) < 2:
            return False
        return all(branch.__class__ is dict and "anyOf" not in branch for branch in branches)
    keys = SUBSET_KEYWORDS.get(kind) if kind.__class__ is str else None
    if keys is None or not keys.issuperset(node):
        return False
    if not all(key not in _CHECKS or _CHECKS[key](value) for key, value in node.items()):
        return False
    if kind == "OBJECT":
        properties = node.get("properties", ())
        return all(name in properties for key in ("required", "propertyOrdering") for name in node.get(key, ()))
    if kind == "STRING":
        return node.get("format") != "enum" or "enum" in node
    return kind != "ARRAY" or "items" in node


def fits_openapi_dialect(schema: Json) -> bool:
    """Does Google take this schema as it is, where it wants its own dialect? Keys in snake case and types in lower case
    are taken, but no other keyword."""
    return schema.__class__ is dict and all_schemas_pass(rename_keywords(schema), _is_in_dialect)


_DIALECT_KEYWORDS: Final = frozenset().union(*SUBSET_KEYWORDS.values(), ("anyOf",))


def _is_in_dialect(node: Object) -> bool:
    kind = node.get("type")
    is_type = kind is None or (kind.__class__ is str and (kind.lower() in TYPE_NAMES or kind == "TYPE_UNSPECIFIED"))
    is_number = kind.__class__ is int and 0 <= kind <= len(NUMBERED_TYPES)
    if not (is_type or is_number) or not _DIALECT_KEYWORDS.issuperset(rename_keywords(node)):
        return False
    return all(fits(node[key]) for key, fits in _DIALECT_CHECKS.items() if node.get(key) is not None) and all(
        name in node.get("properties", ()) for name in node.get("required") or ()
    )


_DIALECT_CHECKS: Final[Mapping[str, Callable[[Json], bool]]] = {
    "items": lambda value: value.__class__ is dict,
    "properties": _is_properties,
    "required": lambda value: value == [] or _is_name_list(value),
    "enum": lambda value: value == [] or _is_name_list(value),
    "anyOf": lambda value: value.__class__ is list,
}


_LEAF_TYPES: Final = {kind.lower(): kind for kind in ("STRING", "NUMBER", "INTEGER", "BOOLEAN")}


def convert_leaf(node: Object) -> Object | None:
    """Convert a schema that only needs an upper-case type, as most do; None for any other."""
    kind = node.get("type")
    upper = _LEAF_TYPES.get(kind) if kind.__class__ is str else None
    if upper is None or not SUBSET_KEYWORDS[upper].issuperset(node):
        return None
    made = {**node, "type": upper}
    return order_keywords(made) if is_in_subset(made) else None


_COMBINING_KEYWORDS = frozenset({"allOf", *REFERENCE_KEYWORDS})
_MAX_CONVERSION_DEPTH: Final = 130
"""References can nest deeper than the schema itself. Each level takes up to five stack frames, so this limit leaves at
least 300 of Python's 1,000 frames to the callers."""
_ASSERTION_KEYWORDS = frozenset().union(*KEYWORDS_BY_TYPE.values()) | {"type", "enum", "const", "format"}


def convert_to_openapi_subset(schema: Json, arguments: bool = False) -> ConvertedSchema:
    """The schema in Gemini's subset. With `arguments`, its root must be an object."""
    if schema is None:
        return ConvertedSchema({"type": "OBJECT"}, (SchemaChange(None, "an empty object schema was supplied"),))
    has_root = schema.__class__ is dict and (schema.get("type") == "OBJECT" or not arguments)
    if has_root and all_schemas_pass(schema, is_in_subset):
        return ConvertedSchema(schema)
    refuse_deep_nesting(schema)
    notes = ChangeLog()
    root, wrapped = make_object_root(schema, notes) if arguments else (schema, "")
    reduction = _SubsetConversion(schema, root, notes)
    out = reduction.convert_schema(root, None, 0, frozenset({id(root)}))
    if out is None:
        notes.add(None, "a schema that nothing satisfies became an object without properties")
        out = {"type": "OBJECT"}
    return ConvertedSchema(out, notes.changes(), reduction.renames, wrapped)


class _SubsetConversion:
    """One conversion. A method returns None for a schema that no value can satisfy."""

    def __init__(self, original: Json, root: Json, notes: ChangeLog) -> None:
        self.original = original
        self.notes = notes
        self.lookup = ReferenceLookup(root)
        self.object_builder = ObjectRootBuilder(root, self.lookup, notes)
        self.renames: dict[str, str] = {}
        self.original_paths: dict[int, Path] = {} if original is root else paths_by_identity(original)

    def convert_schema(self, node: Json, path: Path, depth: int, expanding: frozenset[int]) -> Object | None:
        if isinstance(node, bool):
            return self.convert_any_value({}, path) if node else None
        if not isinstance(node, dict):
            self.notes.add(path, f"{short_json(node, 60)} is not a schema; any value is accepted in its place")
            return self.convert_any_value({}, path)
        if depth > _MAX_CONVERSION_DEPTH:
            self.notes.add(path, "the schema is nested too deeply here; the rest was cut off")
            return {"type": "OBJECT"}
        if (leaf := convert_leaf(node)) is not None:
            return leaf
        path = self.original_paths.get(id(node), path)
        flat, path, expanding = self.flatten(node, path, depth, expanding)
        if flat.get("type") == UNSATISFIABLE_TYPE:
            return None
        for union in UNION_KEYWORDS:
            options = flat.get(union)
            if isinstance(options, list) and options:
                return self.convert_union(flat, union, path, depth, expanding)
        return self.convert_node(flat, path, depth, expanding)

    def flatten(
        self, node: Object, path: Path, depth: int, expanding: frozenset[int]
    ) -> tuple[Object, Path, frozenset[int]]:
        """The node with its references and `allOf` merged into one level."""
        if _COMBINING_KEYWORDS.isdisjoint(node):
            return node, path, expanding
        # From here on, neighbours may come from different places.
        self.original_paths = self.original_paths or paths_by_identity(self.original)
        out, path, expanding = inline_references(self.lookup, node, path, expanding, self.notes, _type_only_schema)
        parts = out.pop("allOf", None)
        inner = set(expanding)
        merged = Intersection(out)
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            place: Path = ((path, "allOf"), number)
            if part is False:
                return {"type": UNSATISFIABLE_TYPE}, path, expanding
            if depth > _MAX_CONVERSION_DEPTH or not self.lookup.spend_budget(10):
                self.notes.add(place, "the schema is nested too deeply here; the rest was cut off")
            elif isinstance(part, dict):
                more, _, also = self.flatten(part, place, depth + 2, expanding)
                inner |= also
                merged.add(more, self.notes.adder_at(place))
        return merged.finish(), path, frozenset(inner)

    # --- unions ---

    def convert_union(
        self, flat: Object, union: str, path: Path, depth: int, expanding: frozenset[int]
    ) -> Object | None:
        if union == "oneOf":
            self.notes.add((path, union), "exactly one of the alternatives became any of them")
        base = {key: value for key, value in flat.items() if key not in UNION_KEYWORDS}
        if "object" in type_names(flat.get("type")) or ("type" not in flat and guess_type(base) == "object"):
            self.original_paths = self.original_paths or paths_by_identity(self.original)
            merged = self.object_builder.build_object({**flat, "type": "object"}, path, expanding, depth)
            return None if merged is None else self.convert_node(merged, path, depth, expanding)
        if union == "anyOf" and flat.get("oneOf"):
            self.notes.add((path, "oneOf"), "`oneOf` beside `anyOf` was left out")
        shared = {key: value for key, value in base.items() if key in _ASSERTION_KEYWORDS}
        outs = [
            self.convert_option(option, shared, ((path, union), number), depth + 2, expanding)
            for number, option in enumerate(flat[union])
        ]
        rest = {key: value for key, value in base.items() if key not in _ASSERTION_KEYWORDS}
        joined = _join_alternatives(outs, flat.get("nullable") is True)
        return None if joined is None else self.add_annotations(joined, self.build_annotations(rest, path, ""), path)

    def convert_option(
        self, option: Json, shared: Object, path: Path, depth: int, expanding: frozenset[int]
    ) -> Object | None:
        """An alternative with the keywords beside the union: the dialect allows nothing beside `anyOf`."""
        if not shared or option is False:
            return self.convert_schema(option, path, depth, expanding)
        if not self.lookup.spend_budget(self.lookup.copy_cost(shared)):
            self.notes.add(path, "the alternatives repeat too much; this one was cut short")
            return self.convert_schema({"type": shared["type"]} if "type" in shared else option, path, depth, expanding)
        if not isinstance(option, dict):
            return self.convert_schema(shared, path, depth, expanding)
        flat, path, expanding = self.flatten(option, path, depth, expanding)
        return self.convert_schema(intersect_schemas(shared, flat, self.notes.adder_at(path)), path, depth, expanding)

    def add_annotations(self, out: Object, base: Object, path: Path) -> Object:
        """Move the annotations beside a union into its first branch."""
        branches = out.get("anyOf")
        outs = list(branches) if branches else [out]
        first = dict(outs[0])
        description = base.get("description")
        if isinstance(description, str) and description:
            inner = first.get("description", "")
            first["description"] = description if inner in description else f"{description}\n{inner}"
        if isinstance(base.get("title"), str):
            first.setdefault("title", base["title"])
        outs[0] = order_keywords(first)
        for key in ("default", "example"):
            if key in base:
                number = next((number for number, one in enumerate(outs) if accepts_default(one, base[key])), None)
                if number is None:
                    self.notes.add((path, key), f"`{key}` matches no alternative and was left out")
                else:
                    outs[number] = order_keywords({key: base[key], **outs[number]})
        return {"anyOf": outs} if branches else outs[0]

    # --- one level ---

    def convert_node(self, flat: Object, path: Path, depth: int, expanding: frozenset[int]) -> Object | None:
        """Convert a node without references and unions."""
        kinds, nullable = accepted_types(flat)
        if isinstance(flat.get("type"), (str, list)) and not type_names(flat["type"]):
            self.notes.add((path, "type"), f"{short_json(flat['type'], 60)} is not a type and was left out")
        if not kinds:
            if nullable:
                return order_keywords({"type": "NULL", **self.build_annotations(flat, path, "null")})
            return self.convert_any_value(flat, path)
        bare = {key: value for key, value in flat.items() if key not in ANNOTATION_KEYWORDS} if kinds[1:] else flat
        outs: list[Object | None] = [
            self.convert_type(kind, bare if number else flat, path, depth, expanding)
            for number, kind in enumerate(kinds)
        ]
        return _join_alternatives(outs, nullable)

    def convert_any_value(self, flat: Object, path: Path) -> Object:
        if not self.lookup.spend_budget(ANY_VALUE_COST):
            self.notes.add(path, "too many places accept any value; this one became an object")
            return {"type": "OBJECT"}
        return self.add_annotations(any_value_schema(), self.build_annotations(flat, path, ""), path)

    def convert_type(self, kind: str, flat: Object, path: Path, depth: int, expanding: frozenset[int]) -> Object:
        out: Object = {"type": kind.upper(), **self.build_annotations(flat, path, kind)}
        for key in COUNT_KEYWORDS:
            if key not in flat or key not in SUBSET_KEYWORDS[out["type"]]:
                continue
            count = read_count(flat[key])
            if count is None:
                self.notes.add((path, key), f"`{key}` is not a count and was left out")
            else:
                out[key] = count
        if kind == "object":
            self.convert_properties(out, flat, path, depth, expanding)
        elif kind == "array":
            out["items"] = self.convert_items(flat, path, depth, expanding)
        elif kind == "string":
            self.convert_string(out, flat, path)
        elif kind in ("number", "integer"):
            self.convert_number(out, flat, path, kind)
        return order_keywords(out)

    def build_annotations(self, flat: Object, path: Path, kind: str) -> Object:
        """The annotations of a node; constraints that the dialect lacks are added to the description."""
        out: Object = {key: flat[key] for key in ("title", "description") if isinstance(flat.get(key), str)}
        out |= {key: flat[key] for key in ("default", "example") if key in flat}
        examples = flat.get("examples")
        if isinstance(examples, list) and examples:
            out.setdefault("example", examples[0])
            if len(examples) > 1:
                self.notes.add((path, "examples"), "all examples but the first were left out")
        sentences = dict(keyword_sentences(flat, kind))
        sentences.update(allowed_value_sentences(flat, kind))
        if sentences:
            out["description"] = append_sentences(out.get("description"), list(sentences.values()))
        for key, value in flat.items():
            if key in sentences:
                self.notes.add((path, key), f"`{key}` became a sentence of the description")
            elif key not in HANDLED_KEYWORDS and not (key == "additionalProperties" and value in (True, {})):
                self.notes.add((path, key), f"`{key}` was left out")
        return out

    def convert_string(self, out: Object, flat: Object, path: Path) -> None:
        if isinstance(flat.get("pattern"), str):
            out["pattern"] = flat["pattern"]
        values = listed_values(flat)
        if values is not None:
            texts = [value for value in values if isinstance(value, str)]
            if not texts and "type" in flat:
                texts = [short_json(value, 100) for value in values if is_number(value) or isinstance(value, bool)]
                if texts:
                    self.notes.add((path, "enum"), "the values became strings, as the type demands")
            if texts and "" not in texts:
                out["enum"] = list(dict.fromkeys(texts))
        form = flat.get("format")
        if isinstance(form, str) and (form != "enum" or "enum" in out):
            out["format"] = form

    def convert_number(self, out: Object, flat: Object, path: Path, kind: str) -> None:
        for key, exclusive, next_to in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
            bounds: list[Object] = []
            if is_number(flat.get(key)):
                bounds.append({key: flat[key]})
            bound: Json = flat.get(exclusive)
            if is_number(bound):
                bounds.append({key: bound + next_to if kind == "integer" and isinstance(bound, int) else bound})
            if bounds:
                out.update(intersect_schemas(bounds[0], bounds[-1], self.notes.adder_at(path)))
        if isinstance(flat.get("format"), str) and flat["format"] != "enum":
            out["format"] = flat["format"]

    def convert_items(self, flat: Object, path: Path, depth: int, expanding: frozenset[int]) -> Object:
        items = flat.get("items")
        tuples = flat.get("prefixItems")
        if isinstance(items, list):
            tuples, items = items, flat.get("additionalItems")
        if not isinstance(tuples, list) or not tuples:
            made = self.convert_schema(items, (path, "items"), depth + 1, expanding) if items is not None else None
            return self.convert_any_value({}, path) if made is None else made
        self.notes.add((path, "prefixItems"), "items that differ by position became any of them")
        outs = [
            self.convert_schema(item, ((path, "prefixItems"), number), depth + 2, expanding)
            for number, item in enumerate([*tuples, items] if items is not None else tuples)
        ]
        if items is None and read_count(flat.get("maxItems")) != len(tuples):
            outs.append(self.convert_any_value({}, path))
        return _join_alternatives(outs, False) or self.convert_any_value({}, path)

    def convert_properties(self, out: Object, flat: Object, path: Path, depth: int, expanding: frozenset[int]) -> None:
        given = flat.get("properties")
        properties = given if isinstance(given, dict) else {}
        made: Object = {}
        names: dict[str, str] = {}
        for name, child in properties.items():
            place: Path = ((path, "properties"), name)
            one = self.convert_schema(child, place, depth + 2, expanding)
            if one is None:
                self.notes.add(place, "a property that nothing satisfies was left out")
                continue
            names[name] = name
            if not IDENTIFIER.fullmatch(name):
                names[name] = make_property_name(name, properties)
                self.renames[names[name]] = name
                what = f"the property {short_json(name, 80)} was renamed `{names[name]}`"
                self.notes.add(place, what)
            made[names[name]] = one
        if isinstance(given, dict):
            out["properties"] = made
        for key in ("required", "propertyOrdering"):
            listed = dict.fromkeys(string_items(flat.get(key)))
            kept = [names[name] for name in listed if name in names]
            if kept:
                out[key] = kept
            for name in listed if key == "required" else ():
                if name not in names:
                    self.notes.add((path, key), f"{short_json(name, 80)} is required but not a property")


def _type_only_schema(target: Json) -> Object:
    """The replacement for a schema that contains itself: only its type."""
    if not isinstance(target, dict):
        return {}
    names = type_names(target.get("type"))
    guess = guess_type(target)
    return {"type": names} if names else {"type": guess} if guess else {}


def _join_alternatives(converted: list[Object | None], nullable: bool) -> Object | None:
    """Converted schemas as one flat union without repetitions; null becomes `nullable` of the first branch."""
    outs = [out for out in converted if out is not None]
    if len(outs) == 1 and not nullable:
        return outs[0]
    flat = [branch for out in outs for branch in out.get("anyOf", (out,))]
    branches = unique_values([branch for branch in flat if branch["type"] != "NULL"])
    if not branches:
        nulls = [branch for branch in flat if branch["type"] == "NULL"]
        return nulls[0] if nulls else {"type": "NULL"} if nullable else None
    nullable = nullable or any(branch["type"] == "NULL" for branch in flat)
    if nullable and not any(branch.get("nullable") for branch in branches):
        branches[0] = order_keywords({**branches[0], "nullable": True})
        branches = unique_values(branches)
    return branches[0] if len(branches) == 1 else {"anyOf": branches}
