import { afterEach, describe, expect, test, vi } from "vitest";
import { EXAMPLES } from "../src/core/examples";
import { parseJson } from "../src/core/json_text";
import { MAX_LINKED_TEXT, packText, unpackText } from "../src/core/shared_link";
import { findEventData, findPlace, lineAndColumn } from "../src/core/text_place";
import { readHash, writeHash } from "../src/router";

afterEach(() => vi.unstubAllGlobals());

async function throughLink(text: string): Promise<string | null> {
  const [name, value] = await packText(text);
  return unpackText(readHash(writeHash("translate", [], new URLSearchParams({ [name]: value }))).query);
}

describe("a link holds a text", () => {
  const texts = ["{}", "é 😀 \u0000 \r\n \ufeff", "+/=&?#%", "x".repeat(100_000), ...EXAMPLES.map((example) => example.text)];
  test.each(texts.map((text) => [text.slice(0, 40), text]))("%j", async (_, text) => expect(await throughLink(text)).toBe(text));

  test("also where the browser cannot compress", async () => {
    vi.stubGlobal("CompressionStream", undefined);
    expect((await packText("{}"))[0]).toBe("t");
    expect(await throughLink("é 😀")).toBe("é 😀");
  });

  test("100,000 equal characters are a short link", async () => expect((await packText("x".repeat(100_000)))[1].length).toBeLessThan(400));
  test("without a text there is none", async () => expect(await unpackText(new URLSearchParams("kind=request"))).toBeNull());
});

test.each(["z=%%%", "z=AAAA", "t=_-8", "z=q1YqS8wpTgUA".slice(0, 8)])("a damaged link says so: %s", async (query) => {
  await expect(unpackText(new URLSearchParams(query))).rejects.toThrow("damaged");
});

test("a small link cannot fill the memory", async () => {
  const [, value] = await packText("x".repeat(MAX_LINKED_TEXT + 1));
  await expect(unpackText(new URLSearchParams({ z: value }))).rejects.toThrow("too long");
});

describe("the place of a loss in a text", () => {
  const text = '{\n  "a": [1, {"b": "x"}]\n}';
  test.each([
    ["/a/1/b", '"x"'],
    ["/a/1/absent", '{"b": "x"}'],
    ["", text],
  ])("%s", (path, shown) => {
    const place = findPlace(text, path)!;
    expect(text.slice(place.start, place.end)).toBe(shown);
  });

  const stream = 'event: one\ndata: {"a":1}\n\n: a comment\n\ndata:{"b":{"c":2}}\n\ndata: [DONE]\n\n';
  test.each([
    ["event/0", '{"a":1}'],
    ["event/0/a", "1"],
    ["event/1/b/c", "2"],
    ["event/2", "[DONE]"],
  ])("%s", (path, shown) => {
    const place = findPlace(stream, path)!;
    expect(stream.slice(place.start, place.end)).toBe(shown);
  });

  test("an event that is not there has no place", () => expect(findEventData(stream, 3)).toBeNull());
  test("a text that is not JSON has no places", () => expect(findPlace("hello", "/a")).toBeNull());
  test("lines and columns begin with 1", () => {
    expect([0, 1, 2, 3].map((at) => lineAndColumn("a\nbc", at))).toEqual([{ line: 1, column: 1 }, { line: 1, column: 2 }, { line: 2, column: 1 }, { line: 2, column: 2 }]);
  });
});

test("the examples are JSON, or streams of JSON", () => {
  for (const { text } of EXAMPLES) {
    const texts = text.startsWith("event:") ? [...text.matchAll(/^data: (.*)$/gm)].map((line) => line[1]!) : [text];
    for (const one of texts) expect(parseJson(one).brokenAt).toBe(-1);
  }
});
