import { describe, expect, test } from "vitest";
import { countFacets, filterRows, isEmptyFilter, readFilter, toggleValue, writeFilter, NO_FILTER } from "../src/core/filter";
import { makeRow } from "./rows";

const rows = [
  makeRow({ id: "0-1", client_protocol: "chat", provider: "openai", model: "gpt-5.1", losses: ["cache-dropped"] }),
  makeRow({ id: "0-2", client_protocol: "anthropic", provider: "openai", model: "gpt-5.1", called_tools: [{ client: "Read", provider: "read" }] }),
  makeRow({ id: "0-3", client_protocol: "anthropic", provider: "vllm", model: "qwen", state: "failed", failure: "timeout", message: "vllm sent nothing" }),
  makeRow({ id: "0-4", client_protocol: "gemini", provider: "vllm", model: "qwen", state: "disconnected" }),
];
const ids = (query: string) => filterRows(rows, readFilter(new URLSearchParams(query))).map((row) => row.id);

describe("rows that match", () => {
  test.each([
    ["", ["0-1", "0-2", "0-3", "0-4"]],
    ["client=chat", ["0-1"]],
    ["client=chat&client=gemini", ["0-1", "0-4"]],
    ["client=anthropic&provider=vllm", ["0-3"]],
    ["loss=cache-dropped", ["0-1"]],
    ["tool=Read", ["0-2"]],
    ["tool=read", []],
    ["failure=timeout", ["0-3"]],
    ["failure=disconnected", ["0-4"]],
    ["q=QWEN", ["0-3", "0-4"]],
    ["q=nothing+vllm", ["0-3"]],
    ["q=read", ["0-2"]],
    ["q=absent", []],
    ["other=1", ["0-1", "0-2", "0-3", "0-4"]],
  ])("%s", (query, expected) => expect(ids(query)).toEqual(expected));
});

test("a filter is the same after it was in the address", () => {
  const query = "client=chat&client=gemini&loss=a%26b&q=two+words";
  expect(writeFilter(readFilter(new URLSearchParams(query))).toString()).toBe(query);
});

test("a value that is toggled twice is gone", () => {
  const once = toggleValue(NO_FILTER, "model", "qwen");
  expect(isEmptyFilter(once)).toBe(false);
  expect(isEmptyFilter(toggleValue(once, "model", "qwen"))).toBe(true);
});

test("counts of a facet are of the rows that match the other facets", () => {
  const counts = countFacets(rows, readFilter(new URLSearchParams("client=anthropic&model=absent")));
  const values = (name: string) => counts.find((facet) => facet.name === name)!.values;
  // No row has the model, so only the model's own counts are not zero; all values stay.
  expect(values("client")).toEqual([
    { value: "anthropic", count: 0, isChosen: true },
    { value: "chat", count: 0, isChosen: false },
    { value: "gemini", count: 0, isChosen: false },
  ]);
  expect(values("model")).toEqual([
    { value: "gpt-5.1", count: 1, isChosen: false },
    { value: "qwen", count: 1, isChosen: false },
    { value: "absent", count: 0, isChosen: true },
  ]);
  expect(values("provider").map(({ value, count }) => [value, count])).toEqual([["openai", 0], ["vllm", 0]]);
});

test("what the gateway found for the text matches, too, if the rest does", () => {
  const found = new Map([["0-1", "around"], ["0-3", "around"]]);
  const query = (text: string) => readFilter(new URLSearchParams(text));
  expect(filterRows(rows, query("q=absent"), found).map((row) => row.id)).toEqual(["0-1", "0-3"]);
  expect(filterRows(rows, query("q=absent&client=chat"), found).map((row) => row.id)).toEqual(["0-1"]);
  expect(countFacets(rows, query("q=absent"), found).find((facet) => facet.name === "client")!.values[0]).toEqual({ value: "anthropic", count: 1, isChosen: false });
});

test("a time hides what is older", () => {
  const now = Date.UTC(2026, 0, 1);
  const old = [makeRow({ id: "0-1", started_at: now / 1000 - 3600 }), makeRow({ id: "0-2", started_at: now / 1000 - 60 })];
  const since = (minutes: string) => filterRows(old, readFilter(new URLSearchParams(`since=${minutes}`)), new Map(), now).map((row) => row.id);
  expect([since("15"), since("120"), since("0"), since("x")]).toEqual([["0-2"], ["0-1", "0-2"], ["0-1", "0-2"], ["0-1", "0-2"]]);
});

test("a session is a filter that is shown only while it is chosen", () => {
  const turns = [makeRow({ id: "0-1", conversation: "c1" }), makeRow({ id: "0-2", conversation: "c2" }), makeRow({ id: "0-3", conversation: "c1" })];
  const chosen = readFilter(new URLSearchParams("session=c1"));
  expect(filterRows(turns, chosen).map((row) => row.id)).toEqual(["0-1", "0-3"]);
  const sessionsOf = (filter: typeof chosen) => countFacets(turns, filter).find((facet) => facet.name === "session")!.values;
  expect(sessionsOf(chosen)).toEqual([{ value: "c1", count: 2, isChosen: true }]);
  expect(sessionsOf(readFilter(new URLSearchParams()))).toEqual([]);
});
