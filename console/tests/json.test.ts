import { describe, expect, test } from "vitest";
import { lineEnds, prettyLines, unfoldTo, unfoldUpTo, visibleLines } from "../src/core/json_lines";
import { findPointer, parseJson, pointerOf, scalarText, searchNodes, walkNodes, type JsonNode } from "../src/core/json_text";

function valueOf(text: string, node: JsonNode): unknown {
  if (node.kind === "object") return Object.fromEntries(node.items.map((item) => [item.key, valueOf(text, item)]));
  if (node.kind === "array") return node.items.map((item) => valueOf(text, item));
  return node.kind === "string" ? scalarText(text, node) : JSON.parse(scalarText(text, node));
}

describe("JSON is read as JSON.parse does", () => {
  test.each([
    "1", "-1.5e+3", '"a\\"b\\u00e9\\\\"', "true", "null", "[]", "{}", " [1 , 2]\n", '{"a":{"b":[{}, [], "x"]},"c":null}', '{"":"","a/b":"~"}',
  ])("%s", (text) => {
    const json = parseJson(text);
    expect(json.brokenAt).toBe(-1);
    expect(valueOf(text, json.root!)).toEqual(JSON.parse(text));
  }); // prettier-ignore
});

test("what JSON.parse would change stays: large numbers, the order of keys, keys that are there twice", () => {
  const text = '{"b":12345678901234567890,"1":1.0,"b":2}';
  expect(parseJson(text).root!.items.map((item) => [item.key, scalarText(text, item)])).toEqual([["b", "12345678901234567890"], ["1", "1.0"], ["b", "2"]]);
});

describe("a text that was cut or is not JSON is read as far as it goes", () => {
  test.each([
    ["", 0, 0],
    ["data: {}", 0, 0],
    ['{"a":[1,2', 9, 4],
    ['{"a":"cut \\u00', 5, 2],
    ['{"a":1}x', 7, 2],
    ['{"a":1,}', 7, 2],
    ['{"a" 1}', 1, 1],
    ["[1 2]", 3, 2],
    ["[tru", 1, 1],
  ])("%s", (text, brokenAt, nodes) => {
    const json = parseJson(text);
    expect([json.brokenAt, json.root ? [...walkNodes(json.root)].length : 0]).toEqual([brokenAt, nodes]);
  });

  test("the start of a string that was cut is shown", () => {
    const json = parseJson('["caf\\u00e9 \\u00');
    expect(scalarText(json.text, json.root!.items[0]!)).toBe("café ");
  });

  test("20,000 levels need no stack", () => {
    const json = parseJson("[".repeat(20_000));
    expect(visibleLines(json, null, 80)).toHaveLength(19_999 * 2 + 1);
  });
});

describe("JSON Pointers", () => {
  const json = parseJson('{"tools":[{"name":"a"},{"name":"b","a/b":{"~":1}}],"":0,"x":1,"x":2}');
  test.each([
    ["", true, ""],
    ["/tools/1/name", true, "/tools/1/name"],
    ["tools/1/name", true, "/tools/1/name"],
    ["/tools/1/a~1b/~0", true, "/tools/1/a~1b/~0"],
    ["/", true, "/"],
    ["/tools/7/name", false, "/tools"],
    ["/absent", false, ""],
  ])("%s", (pointer, isExact, found) => {
    const place = findPointer(json.root!, pointer);
    expect([place.isExact, pointerOf(place.node)]).toEqual([isExact, found]);
  });

  test("of keys that are there twice the last one counts, as for readers", () => {
    expect(scalarText(json.text, findPointer(json.root!, "/x").node)).toBe("2");
  });
});

test("a search finds keys and values, in order, without regard to case", () => {
  const json = parseJson('{"Name":"x","list":["my NAME",1,{"other":"names"}]}');
  expect(searchNodes(json, "name").map(pointerOf)).toEqual(["/Name", "/list/0", "/list/2/other"]);
  expect(searchNodes(json, "name", 2)).toHaveLength(2);
  expect(searchNodes(json, "")).toEqual([]);
});

describe("lines", () => {
  test("a string breaks after its newlines, and where a line is full", () => {
    const three = { first: 3, next: 3 };
    expect(lineEnds("ab\ncdefg\n", three)).toEqual([3, 6, 9]);
    expect(lineEnds("", three)).toEqual([0]);
    expect(lineEnds("one two three-and-four", { first: 6, next: 10 })).toEqual([4, 14, 22]);
  });

  test("a folded node is one line", () => {
    const json = parseJson('{"a":[1,2],"b":{"c":3}}');
    const list = json.root!.items[0]!;
    const kinds = (unfolded: Set<JsonNode>) => visibleLines(json, unfolded, 80).map((line) => line.kind);
    expect(kinds(new Set())).toEqual(["folded"]);
    expect(kinds(new Set([json.root!]))).toEqual(["open", "folded", "folded", "close"]);
    expect(kinds(new Set([json.root!, list]))).toEqual(["open", "open", "value", "value", "close", "folded", "close"]);
    expect(kinds(unfoldTo(list.items[0]!, new Set()))).toEqual(["open", "open", "value", "value", "close", "folded", "close"]);
  });

  test("at first, a long document is unfolded as far as the limit allows, and a short one completely", () => {
    const json = parseJson(JSON.stringify({ list: Array.from({ length: 50 }, () => ({ a: 1, b: 2 })), short: { c: 1 } }));
    expect(visibleLines(json, unfoldUpTo(json, 60, 80), 80).length).toBeLessThanOrEqual(60);
    expect(visibleLines(json, unfoldUpTo(json, 1000, 80), 80)).toEqual(visibleLines(json, null, 80));
    const prompt = parseJson(JSON.stringify({ text: "line\n".repeat(20) }));
    expect(visibleLines(prompt, unfoldUpTo(prompt, 1000, 80), 80).map((line) => line.kind)).toEqual(["open", "folded", "close"]);
  });

  test("as text they are the same JSON, as JSON.stringify writes it", () => {
    const value = { a: [1, { b: null }], c: {}, d: [], e: "x\\y" };
    expect(prettyLines(parseJson(JSON.stringify(value))).join("\n")).toBe(JSON.stringify(value, null, 2));
  });

  test("in a comparison, a text of several lines has several", () => {
    expect(prettyLines(parseJson('{"a":"one\\ntwo","b":1}'))).toEqual(["{", '  "a": "one\\n', '    two",', '  "b": 1', "}"]);
    expect(prettyLines(parseJson("no\nJSON"))).toEqual(["no", "JSON"]);
    expect(prettyLines(parseJson(""))).toEqual([]);
  });
});
