"""The dialect that is a closed subset of OpenAPI's: every keyword outside it is refused, references too.

Conversion only weakens: what the given schema accepts, the result accepts, but for guesses that the dialect forces (it
wants a type everywhere) and for properties that only some alternatives describe. What it cannot say as a keyword it
says in the description. A union stands alone: no other keyword is taken beside it, so descriptions and `nullable` move
into its first branch.
"""

from __future__ import annotations

from toolwire.schema.combine import NOTHING_FITS, both, distinct, names_of, type_names
from toolwire.schema.refs import Lookup, resolved
from toolwire.schema.renames import IDENTIFIER, renamed
from toolwire.schema.rooted import Rooting, rooted
from toolwire.schema.sentences import allowed_values, grown, sentences
from toolwire.schema.subset_words import (
    COUNTS,
    KEYS,
    PRICE_OF_ANYTHING,
    SILENT,
    accepts,
    anything,
    conforms,
    kinds_of,
    ordered,
    simple,
    whole_number,
)
from toolwire.schema.words import (
    ANNOTATIONS,
    KEYWORDS_OF,
    REFERENCES,
    UNIONS,
    Change,
    Converted,
    Notes,
    everywhere,
    guessed_type,
    is_number,
    places,
    refuse_depth,
    spelled,
)
from toolwire.wire import MAX_DEPTH, Json, Object, Path

_TOGETHER = frozenset({"allOf", *REFERENCES})
_DEEPEST = MAX_DEPTH - 10
_ASSERTIONS = frozenset().union(*KEYWORDS_OF.values()) | {"type", "enum", "const", "format"}


def subset(schema: Json, arguments: bool = False) -> Converted:
    """The schema in the closed subset. `arguments`: it describes a call's arguments, so its root must be an object."""
    if schema is None:
        return Converted({"type": "OBJECT"}, (Change(None, "an empty object schema was supplied"),))
    if schema.__class__ is dict and everywhere(schema, conforms) and (schema.get("type") == "OBJECT" or not arguments):
        return Converted(schema)
    refuse_depth(schema)
    notes = Notes()
    root, wrapped = rooted(schema, notes) if arguments else (schema, "")
    reduction = _Reduction(schema, root, notes)
    out = reduction.schema(root, None, 0, frozenset({id(root)}))
    if out is None:
        notes.add(None, "a schema that nothing satisfies became an object without properties")
        out = {"type": "OBJECT"}
    return Converted(out, notes.all(), reduction.renames, wrapped)


class _Reduction:
    """One conversion. A method that gives None says: no value fits."""

    def __init__(self, given: Json, root: Json, notes: Notes) -> None:
        self.given = given
        self.notes = notes
        self.lookup = Lookup(root)
        self.rooting = Rooting(root, self.lookup, notes)
        self.renames: dict[str, str] = {}
        self.places: dict[int, Path] = {} if given is root else places(given)

    def schema(self, node: Json, path: Path, depth: int, opened: frozenset[int]) -> Object | None:
        if isinstance(node, bool):
            return self.anything({}, path) if node else None
        if not isinstance(node, dict):
            self.notes.add(path, f"{spelled(node, 60)} is no schema; anything fits in its place")
            return self.anything({}, path)
        if depth > _DEEPEST:
            self.notes.add(path, "the references go too deep here; the rest was cut off")
            return {"type": "OBJECT"}
        if (leaf := simple(node)) is not None:
            return leaf
        path = self.places.get(id(node), path)
        flat, path, opened = self.flat(node, path, depth, opened)
        if flat.get("type") == NOTHING_FITS:
            return None
        for union in UNIONS:
            options = flat.get(union)
            if isinstance(options, list) and options:
                return self.union(flat, union, path, depth, opened)
        return self.plain(flat, path, depth, opened)

    def flat(self, node: Object, path: Path, depth: int, opened: frozenset[int]) -> tuple[Object, Path, frozenset[int]]:
        """The node without references and without `allOf`: everything they say at one level."""
        if _TOGETHER.isdisjoint(node):
            return node, path, opened
        self.places = self.places or places(self.given)  # from here on, neighbours may come from different places
        out, path, opened = resolved(self.lookup, node, path, opened, self.notes, _stub)
        parts = out.pop("allOf", None)
        inner = opened
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            place: Path = ((path, "allOf"), number)
            if part is False:
                return {"type": NOTHING_FITS}, path, opened
            if depth > _DEEPEST or not self.lookup.spend(10):
                self.notes.add(place, "the references go too deep here; the rest was cut off")
            elif isinstance(part, dict):
                more, _, also = self.flat(part, place, depth + 2, opened)
                inner |= also
                out = both(out, more, self.notes.there(place))
        return out, path, inner

    # --- unions -----------------------------------------------------------------------------------------------------

    def union(self, flat: Object, union: str, path: Path, depth: int, opened: frozenset[int]) -> Object | None:
        if union == "oneOf":
            self.notes.add((path, union), "exactly one of the alternatives became any of them")
        base = {key: value for key, value in flat.items() if key not in UNIONS}
        if "object" in type_names(flat.get("type")) or ("type" not in flat and guessed_type(base) == "object"):
            self.places = self.places or places(self.given)
            merged = self.rooting.object({**flat, "type": "object"}, path, opened, depth)
            return None if merged is None else self.plain(merged, path, depth, opened)
        if union == "anyOf" and flat.get("oneOf"):
            self.notes.add((path, "oneOf"), "`oneOf` beside `anyOf` was left out")
        shared = {key: value for key, value in base.items() if key in _ASSERTIONS}
        outs = []
        for number, option in enumerate(flat[union]):
            place: Path = ((path, union), number)
            made = self.option(option, shared, place, depth + 2, opened)
            if made is not None:
                outs.append(made)
        said = {key: value for key, value in base.items() if key not in _ASSERTIONS}
        joined = _joined(outs, flat.get("nullable") is True)
        return None if joined is None else self.annotated(joined, self.words(said, path, ""), path)

    def option(self, option: Json, shared: Object, path: Path, depth: int, opened: frozenset[int]) -> Object | None:
        """An alternative, with what all of them share: the dialect takes nothing beside a union."""
        if not shared or option is False:
            return self.schema(option, path, depth, opened)
        if not self.lookup.spend(self.lookup.price(shared)):
            self.notes.add(path, "the alternatives repeat too much; this one was cut short")
            return self.schema({"type": shared["type"]} if "type" in shared else option, path, depth, opened)
        if not isinstance(option, dict):
            return self.schema(shared, path, depth, opened)
        flat, path, opened = self.flat(option, path, depth, opened)
        return self.schema(both(shared, flat, self.notes.there(path)), path, depth, opened)

    def annotated(self, out: Object, base: Object, path: Path) -> Object:
        """What stood beside a union, moved into its first branch."""
        branches = out.get("anyOf")
        outs = list(branches) if branches else [out]
        first = dict(outs[0])
        description = base.get("description")
        if isinstance(description, str) and description:
            inner = first.get("description", "")
            first["description"] = description if inner in description else f"{description}\n{inner}"
        if isinstance(base.get("title"), str):
            first.setdefault("title", base["title"])
        outs[0] = ordered(first)
        for key in ("default", "example"):
            if key in base:
                number = next((number for number, one in enumerate(outs) if accepts(one, base[key])), None)
                if number is None:
                    self.notes.add((path, key), f"`{key}` fits no alternative and was left out")
                else:
                    outs[number] = ordered({key: base[key], **outs[number]})
        return {"anyOf": outs} if branches else outs[0]

    # --- one level --------------------------------------------------------------------------------------------------

    def plain(self, flat: Object, path: Path, depth: int, opened: frozenset[int]) -> Object | None:
        """A node without references and unions."""
        kinds, nullable = kinds_of(flat)
        if isinstance(flat.get("type"), (str, list)) and not type_names(flat["type"]):
            self.notes.add((path, "type"), f"{spelled(flat['type'], 60)} is no type and was left out")
        if not kinds:
            if nullable:
                return ordered({"type": "NULL", **self.words(flat, path, "null")})
            return self.anything(flat, path)
        outs = [self.typed(kind, flat, path, depth, opened) for kind in kinds[:1]]
        bare = {key: value for key, value in flat.items() if key not in ANNOTATIONS}
        outs += [self.typed(kind, bare, path, depth, opened) for kind in kinds[1:]]
        return _joined(outs, nullable)

    def anything(self, flat: Object, path: Path) -> Object:
        if not self.lookup.spend(PRICE_OF_ANYTHING):
            self.notes.add(path, "too many places take anything; this one became an object")
            return {"type": "OBJECT"}
        return self.annotated(anything(), self.words(flat, path, ""), path)

    def typed(self, kind: str, flat: Object, path: Path, depth: int, opened: frozenset[int]) -> Object:
        out: Object = {"type": kind.upper(), **self.words(flat, path, kind)}
        for key in COUNTS:
            if key not in flat or key not in KEYS[out["type"]]:
                continue
            count = whole_number(flat[key])
            if count is None:
                self.notes.add((path, key), f"`{key}` is no count and was left out")
            else:
                out[key] = count
        if kind == "object":
            self.members(out, flat, path, depth, opened)
        elif kind == "array":
            out["items"] = self.items(flat, path, depth, opened)
        elif kind == "string":
            self.text(out, flat, path)
        elif kind in ("number", "integer"):
            self.number(out, flat, path, kind)
        return ordered(out)

    def words(self, flat: Object, path: Path, kind: str) -> Object:
        """What is said about a node rather than demanded, with the demands that only words can say."""
        out = _annotations(flat)
        if isinstance(flat.get("examples"), list) and len(flat["examples"]) > 1:
            self.notes.add((path, "examples"), "all examples but the first were left out")
        said = dict(sentences(flat, kind))
        said.update(allowed_values(flat, kind))
        if said:
            out["description"] = grown(out.get("description", ""), list(said.values()))
        for key, value in flat.items():
            if key in said:
                self.notes.add((path, key), f"`{key}` became a sentence of the description")
            elif key not in SILENT and not (key == "additionalProperties" and value in (True, {})):
                self.notes.add((path, key), f"`{key}` was left out")
        return out

    def text(self, out: Object, flat: Object, path: Path) -> None:
        if isinstance(flat.get("pattern"), str):
            out["pattern"] = flat["pattern"]
        values = flat.get("enum") if "enum" in flat else [flat["const"]] if "const" in flat else None
        if isinstance(values, list):
            texts = [value for value in values if isinstance(value, str)]
            if not texts and "type" in flat:
                texts = [spelled(value, 100) for value in values if is_number(value) or isinstance(value, bool)]
                if texts:
                    self.notes.add((path, "enum"), "the values are no strings, as the type demands; they were spelled")
            if texts and "" not in texts:
                out["enum"] = list(dict.fromkeys(texts))
        form = flat.get("format")
        if isinstance(form, str) and (form != "enum" or "enum" in out):
            out["format"] = form

    def number(self, out: Object, flat: Object, path: Path, kind: str) -> None:
        for key, exclusive, next_to in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
            bounds: list[Object] = []
            if is_number(flat.get(key)):
                bounds.append({key: flat[key]})
            border: Json = flat.get(exclusive)
            if is_number(border):
                whole = kind == "integer" and isinstance(border, int)
                bounds.append({key: border + next_to if whole else border})
            if bounds:
                out.update(both(bounds[0], bounds[-1], self.notes.there(path)))
        if isinstance(flat.get("format"), str) and flat["format"] != "enum":
            out["format"] = flat["format"]

    def items(self, flat: Object, path: Path, depth: int, opened: frozenset[int]) -> Object:
        items = flat.get("items")
        tuples = flat.get("prefixItems")
        if isinstance(items, list):
            tuples, items = items, flat.get("additionalItems")
        if not isinstance(tuples, list) or not tuples:
            made = self.schema(items, (path, "items"), depth + 1, opened) if items is not None else None
            return self.anything({}, path) if made is None else made
        self.notes.add((path, "prefixItems"), "items that differ by position became any of them")
        outs = []
        for number, item in enumerate([*tuples, items] if items is not None else tuples):
            made = self.schema(item, ((path, "prefixItems"), number), depth + 2, opened)
            if made is not None:
                outs.append(made)
        if items is None and whole_number(flat.get("maxItems")) != len(tuples):
            outs.append(self.anything({}, path))
        return _joined(outs, False) or self.anything({}, path)

    def members(self, out: Object, flat: Object, path: Path, depth: int, opened: frozenset[int]) -> None:
        given = flat.get("properties")
        properties = given if isinstance(given, dict) else {}
        made: Object = {}
        names: dict[str, str] = {}
        for name, child in properties.items():
            place: Path = ((path, "properties"), name)
            one = self.schema(child, place, depth + 2, opened)
            if one is None:
                self.notes.add(place, "a property that nothing satisfies was left out")
            else:
                names[name] = self.name(name, place, properties)
                made[names[name]] = one
        if isinstance(given, dict):
            out["properties"] = made
        required = list(dict.fromkeys(names_of(flat.get("required"))))
        for name in required:
            if name not in names:
                self.notes.add((path, "required"), f"{spelled(name, 80)} is required but no property")
        kept = [names[name] for name in required if name in names]
        if kept:
            out["required"] = kept
        order = [names[name] for name in names_of(flat.get("propertyOrdering")) if name in names]
        if order:
            out["propertyOrdering"] = list(dict.fromkeys(order))

    def name(self, name: str, place: Path, taken: Object) -> str:
        if IDENTIFIER.fullmatch(name):
            return name
        new = renamed(name, taken)
        self.renames[new] = name
        self.notes.add(place, f"the property {spelled(name, 80)} is called `{new}`")
        return new


def _annotations(flat: Object) -> Object:
    out: Object = {key: flat[key] for key in ("title", "description") if isinstance(flat.get(key), str)}
    out.update({key: flat[key] for key in ("default", "example") if key in flat})
    examples = flat.get("examples")
    if isinstance(examples, list) and examples:
        out.setdefault("example", examples[0])
    return out


def _stub(target: Json) -> Object:
    """What stands for a schema that contains itself: its type."""
    if not isinstance(target, dict):
        return {}
    names = type_names(target.get("type"))
    guess = guessed_type(target)
    return {"type": names} if names else {"type": guess} if guess else {}


def _joined(outs: list[Object], nullable: bool) -> Object | None:
    """Schemas of the dialect as one union: flat, each branch once, null as a flag on the first."""
    if len(outs) == 1 and not nullable:
        return outs[0]
    flat = [branch for out in outs for branch in out.get("anyOf", (out,))]
    branches = distinct([branch for branch in flat if branch["type"] != "NULL"])
    if not branches:
        nulls = [branch for branch in flat if branch["type"] == "NULL"]
        return nulls[0] if nulls else {"type": "NULL"} if nullable else None
    nullable = nullable or any(branch["type"] == "NULL" for branch in flat)
    if nullable and not any(branch.get("nullable") for branch in branches):
        branches[0] = ordered({**branches[0], "nullable": True})
        branches = distinct(branches)
    return branches[0] if len(branches) == 1 else {"anyOf": branches}
