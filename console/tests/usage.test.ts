import { describe, expect, test } from "vitest";
import type { RequestReport, RequestRow, UsageReport, UsageRow } from "../src/api";
import { drawLines, drawRequests, listTimes, OTHERS, timeOf } from "../src/core/usage";

const makeRow = (row: Partial<UsageRow>): UsageRow => ({
  hour: "", day: "", month: "", key: "", team: "", agent: "", subagent: "", provider: "", account: "", model: "", session: "", operation: "",
  calls: 1, input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0,
  cost_usd: 0, unpriced_calls: 0, reported_cost_usd: null, reported_calls: 0, unknown_calls: 0, estimated_calls: 0, ...row,
} as UsageRow); // prettier-ignore

const START = Date.UTC(2026, 10, 18) / 1000;
const HOUR = 3600;
const reportOf = (rows: UsageRow[], days = 13): UsageReport => ({
  since: "2026-01-01T00:00:00+00:00", until: new Date((START + (days - 1) * 24 * HOUR) * 1000).toISOString(), by: [], rows, total: makeRow({}),
}); // prettier-ignore

test("times are in UTC", () => {
  expect(timeOf(makeRow({ hour: "2026-11-18 09:00" }))).toBe(START + 9 * HOUR);
  expect(timeOf(makeRow({ day: "2026-11-18" }))).toBe(START);
});

describe("times", () => {
  test("none is left out, up to now", () => {
    const times = listTimes([START + 60, START + 120], "minute", START, START + 3599);
    expect([times[0], times.at(-1), times.length]).toEqual([START + 60, START + 3540, 59]);
  });
  test("a gateway that is new has a plot of some steps, not of years", () => {
    const times = listTimes([START], "hour", START - 24 * HOUR, START + 10);
    expect([times[0], times.at(-1), times.length]).toEqual([START - 11 * HOUR, START, 12]);
    expect(listTimes([], "day", START - 7 * 24 * HOUR, START)).toHaveLength(8);
  });
  test("nothing is before what was asked for", () => {
    expect(listTimes([START - 60 * HOUR], "hour", START - 20 * HOUR, START)[0]).toBe(START - 20 * HOUR);
  });
});

describe("lines", () => {
  const day = "2026-11-18";
  test("add up the same group, the largest first", () => {
    const rows = [makeRow({ day, model: "a", calls: 2 }), makeRow({ day, model: "b", calls: 5 }), makeRow({ day: "2026-11-20", model: "a", calls: 4 })];
    const { times, names, values } = drawLines(reportOf(rows), "model", "day", "calls");
    expect([times.length, names]).toEqual([13, ["a", "b"]]);
    expect(values.map((line) => line.slice(0, 4))).toEqual([[2, 0, 4, 0], [5, 0, 0, 0]]);
  });
  test("of many groups the smaller ones are one line", () => {
    const rows = Array.from({ length: 9 }, (_, index) => makeRow({ day, model: `m${index}`, calls: 10 - index }));
    const { names, values } = drawLines(reportOf(rows), "model", "day", "calls");
    expect(names).toEqual(["m0", "m1", "m2", "m3", "m4", OTHERS]);
    expect(values.at(-1)![0]).toBe(5 + 4 + 3 + 2);
  });
  test("a share is of the tokens, and unknown without any", () => {
    const rows = [makeRow({ day, key: "k", input_tokens: 100, cache_read_tokens: 25 }), makeRow({ day, key: "k", input_tokens: 300, cache_read_tokens: 75 })];
    const { values } = drawLines(reportOf([...rows, makeRow({ day: "2026-11-19", key: "k" })]), "key", "day", "cached");
    expect(values[0]!.slice(0, 2)).toEqual([25, null]);
  });
  test("cost that is unknown adds nothing, and a name that is missing has a sign", () => {
    const { names, values } = drawLines(reportOf([makeRow({ day, cost_usd: null })]), "team", "day", "cost");
    expect([names, values[0]![0]]).toEqual([["–"], 0]);
  });
});

const requestRow = (row: Partial<RequestRow>): RequestRow => ({
  time: START, name: "a", requests: 1, failed: 0, left: 0, retries: 0, duration_p50_ms: 10, duration_p95_ms: 20, first_byte_p50_ms: 5, first_byte_p95_ms: 9,
  cache_expected_tokens: 0, cache_missed_turns: 0, cache_missed_tokens: 0, cache_missed_cost_usd: null, ...row,
}); // prettier-ignore

describe("requests", () => {
  const rows = [requestRow({ name: OTHERS, requests: 99 }), requestRow({ name: "", failed: 1 }), requestRow({ requests: 7 }), requestRow({ time: START + 60, duration_p50_ms: null, failed: 2 })];
  const report: RequestReport = { by: "key", step_seconds: 60, since: START, until: START + 719, kept_since: 0, rows, sums: [], total: requestRow({}), causes: [] };
  test("are lines, the others last, and a name that is missing has a sign", () => {
    const { names, values } = drawRequests(report, "requests");
    expect(names).toEqual(["a", "–", OTHERS]);
    expect(values[0]!.slice(0, 3)).toEqual([7, 1, 0]);
  });
  test("have the steps of the answer, which may be longer than those that were asked for", () => {
    const hours = { ...report, step_seconds: 3600, since: START - 3 * 3600, rows: [requestRow({ time: START - 3600 }), requestRow({})] };
    const { times, values } = drawRequests(hours, "requests");
    expect(times.slice(-3)).toEqual([START - 7200, START - 3600, START]);
    expect(values[0]!.slice(-3)).toEqual([0, 1, 1]);
  });
  test("have no duration where nothing was answered", () => {
    expect(drawRequests(report, "p50").values[0]!.slice(0, 3)).toEqual([10, null, null]);
    expect(drawRequests(report, "failed").values[0]!.slice(0, 3)).toEqual([0, 2, 0]);
  });
});
