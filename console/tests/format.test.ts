import { expect, test } from "vitest";
import * as format from "../src/core/format";

test.each([
  [0, "0"], [999, "999"], [1000, "1k"], [1234, "1.2k"], [9960, "10k"], [34_567, "35k"], [999_600, "1M"], [1_540_000, "1.5M"],
])("%i is %s", (count, expected) => expect(format.formatShort(count)).toBe(expected)); // prettier-ignore

test.each([
  [0, "0 B"], [999, "999 B"], [1500, "1.5 kB"], [34_567, "35 kB"], [2_500_000, "2.5 MB"],
])("%i bytes are %s", (bytes, expected) => expect(format.formatBytes(bytes)).toBe(expected)); // prettier-ignore

test.each([
  [0.04, "0.0 ms"], [9.94, "9.9 ms"], [12.4, "12 ms"], [4321, "4,321 ms"], [12_345, "12.3 s"], [61_000, "1 min 1 s"], [59_990, "1 min 0 s"],
])("%d ms are %s", (ms, expected) => expect(format.formatMs(ms)).toBe(expected)); // prettier-ignore

test("tokens", () => {
  expect(format.formatTokens(null)).toBe("");
  expect(format.formatTokens({})).toBe("");
  expect(format.formatTokens({ input: 1200, output: 0 })).toBe("1.2k → 0");
  expect(format.formatTokens({ output: 5, is_estimated: true })).toBe("~? → 5");
});

test.each([
  [0, "$0"], [0.0123, "$0.0123"], [0.000146, "$0.000146"], [1e-12, "$0.000000000001"], [0.05, "$0.05"], [0.5, "$0.50"], [0.12345, "$0.123"],
  [0.99996, "$1.00"], [12.5, "$12.50"], [1234.567, "$1,234.57"],
])("%d dollars are %s", (amount, expected) => expect(format.formatDollars(amount)).toBe(expected)); // prettier-ignore

test.each([
  [null, 0, ""], [null, 1, "unknown"], [0, 0, "$0"], [0.0123, 0, "$0.0123"], [0.0123, 2, "$0.0123 + unknown"], [0, 1, "$0 + unknown"],
])("a cost of %d with %i unknown calls is %s", (cost_usd, unpriced_calls, expected) =>
  expect(format.formatCost({ cost_usd, unpriced_calls, reported_cost_usd: 9 })).toBe(expected)); // prettier-ignore

test("costs that are off are not shown", () => expect(format.formatCost(null)).toBe(""));

test("a moment has its day only if it is not today", () => {
  const now = new Date(2026, 10, 16, 12).getTime();
  expect(format.formatMoment(new Date(2026, 10, 16, 9, 5, 7).getTime() / 1000, now)).toBe("09:05:07");
  expect(format.formatMoment(new Date(2026, 10, 15, 9, 5, 7).getTime() / 1000, now)).toBe("15 Nov 09:05:07");
});

test("counts, parts", () => {
  expect([format.formatCountOf(1, "loss", "losses"), format.formatCountOf(1200, "loss", "losses")]).toEqual(["1 loss", "1,200 losses"]);
  expect([format.formatPercent(1, 3), format.formatPercent(1, 0)]).toEqual(["33 %", ""]);
});

test("characters that hide text or turn it around are visible", () => {
  expect(format.showInvisible("a\u202eb\u200bc\u0000\ttab\n")).toBe("a\\u202eb\\u200bc\\u0000\ttab\n");
});
