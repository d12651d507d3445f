import { describe, expect, test } from "vitest";
import type { UsageRow } from "../src/api";
import { drawLines, listTimes, OTHERS, timeOf } from "../src/core/usage";

const makeRow = (row: Partial<UsageRow>): UsageRow => ({
  hour: "", day: "", month: "", key: "", team: "", agent: "", subagent: "", provider: "", account: "", model: "", session: "", operation: "",
  calls: 1, input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0,
  cost_usd: 0, unpriced_calls: 0, reported_cost_usd: null, reported_calls: 0, unknown_calls: 0, estimated_calls: 0, ...row,
} as UsageRow); // prettier-ignore

test("times are in UTC, and none is left out", () => {
  const rows = [makeRow({ hour: "2026-11-18 09:00" }), makeRow({ hour: "2026-11-18 12:00" })];
  expect(timeOf(rows[0]!)).toBe(Date.UTC(2026, 10, 18, 9) / 1000);
  expect(listTimes(rows, "hour")).toHaveLength(4);
  expect(listTimes([makeRow({ day: "2026-02-28" }), makeRow({ day: "2026-03-02" })], "day")).toHaveLength(3);
  expect(listTimes([], "day")).toEqual([]);
});

describe("lines", () => {
  const day = "2026-11-18";
  test("add up the same group, the largest first", () => {
    const rows = [makeRow({ day, model: "a", calls: 2 }), makeRow({ day, model: "b", calls: 5 }), makeRow({ day: "2026-11-20", model: "a", calls: 4 })];
    expect(drawLines(rows, "model", "day", "calls")).toMatchObject({ names: ["a", "b"], values: [[2, 0, 4], [5, 0, 0]] });
  });
  test("of many groups the smaller ones are one line", () => {
    const rows = Array.from({ length: 9 }, (_, index) => makeRow({ day, model: `m${index}`, calls: 10 - index }));
    const { names, values } = drawLines(rows, "model", "day", "calls");
    expect(names).toEqual(["m0", "m1", "m2", "m3", "m4", OTHERS]);
    expect(values.at(-1)).toEqual([5 + 4 + 3 + 2]);
  });
  test("a share is of the tokens, and unknown without any", () => {
    const rows = [makeRow({ day, key: "k", input_tokens: 100, cache_read_tokens: 25 }), makeRow({ day, key: "k", input_tokens: 300, cache_read_tokens: 75 })];
    expect(drawLines([...rows, makeRow({ day: "2026-11-19", key: "k" })], "key", "day", "cached").values).toEqual([[25, null]]);
  });
  test("cost that is unknown adds nothing, and a name that is missing has a sign", () => {
    expect(drawLines([makeRow({ day, cost_usd: null })], "team", "day", "cost")).toMatchObject({ names: ["–"], values: [[0]] });
  });
});
