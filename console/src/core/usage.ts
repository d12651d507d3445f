// The figures of the ledger as lines over time: pure steps, for the plot and its table.

import type { UsageRow } from "../api";

export type Measure = "cost" | "calls" | "tokens" | "cached";
export type Step = "hour" | "day";
export type Group = "model" | "provider" | "key" | "team" | "agent";

export const MEASURES: readonly { value: Measure; title: string }[] = [
  { value: "cost", title: "Cost" },
  { value: "calls", title: "Calls" },
  { value: "tokens", title: "Tokens" },
  { value: "cached", title: "Cached share" },
];
export const GROUPS: readonly Group[] = ["model", "provider", "key", "team", "agent"];

export const MAX_LINES = 6;
/** Those beyond the largest ones, together. */
export const OTHERS = "others";

/** What is added up; a share is worked out at the end. */
interface Sum {
  part: number;
  whole: number;
}

export interface Lines {
  /** In seconds since 1970. */
  times: readonly number[];
  names: readonly string[];
  /** For each name its value at each time; null where there is none. */
  values: readonly (readonly (number | null)[])[];
}

function sumOf(row: UsageRow, measure: Measure): Sum {
  const parts: Record<Measure, number> = {
    cost: Number(row.cost_usd ?? 0),
    calls: row.calls,
    tokens: row.input_tokens + row.output_tokens,
    cached: row.cache_read_tokens,
  };
  return { part: parts[measure], whole: measure === "cached" ? row.input_tokens : 0 };
}

export function measure(sum: Sum, name: Measure): number | null {
  if (name !== "cached") return sum.part;
  return sum.whole ? (100 * sum.part) / sum.whole : null;
}

export function timeOf(row: UsageRow): number {
  const text = row.hour ? `${row.hour.replace(" ", "T")}:00Z` : `${row.day}T00:00:00Z`;
  return Date.parse(text) / 1000;
}

/** Every step from the first to the last time, also those in which nobody asked anything. */
export function listTimes(rows: readonly UsageRow[], step: Step): readonly number[] {
  const known = rows.map(timeOf).filter(Number.isFinite);
  if (!known.length) return [];
  const seconds = step === "hour" ? 3600 : 86_400;
  const [first, last] = [Math.min(...known), Math.max(...known)];
  return Array.from({ length: Math.round((last - first) / seconds) + 1 }, (_, index) => first + index * seconds);
}

export function drawLines(rows: readonly UsageRow[], group: Group, step: Step, name: Measure): Lines {
  const times = listTimes(rows, step);
  const places = new Map(times.map((time, index) => [time, index]));
  const sizes = new Map<string, number>();
  for (const row of rows) sizes.set(row[group] || "–", (sizes.get(row[group] || "–") ?? 0) + (name === "cached" ? row.input_tokens : sumOf(row, name).part));
  const largest = [...sizes].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([value]) => value);
  const names = largest.length > MAX_LINES ? [...largest.slice(0, MAX_LINES - 1), OTHERS] : largest;
  const sums = names.map(() => times.map((): Sum => ({ part: 0, whole: 0 })));
  for (const row of rows) {
    const found = names.indexOf(row[group] || "–");
    const sum = sums[found < 0 ? names.length - 1 : found]?.[places.get(timeOf(row)) ?? -1];
    if (!sum) continue;
    const { part, whole } = sumOf(row, name);
    sum.part += part;
    sum.whole += whole;
  }
  return { times, names, values: sums.map((line) => line.map((sum) => measure(sum, name))) };
}
