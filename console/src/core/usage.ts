// The figures of the ledger, and those of the requests of this gateway, as lines over time: pure steps, for the plot and
// its table.

import type { RequestReport, RequestRow, UsageReport, UsageRow } from "../api";

export type UsedMeasure = "cost" | "calls" | "tokens" | "cached";
export type RequestMeasure = "requests" | "failed" | "p50" | "p95" | "first" | "missed";
export type Measure = UsedMeasure | RequestMeasure;
export type Step = "minute" | "hour" | "day";
export type Group = "model" | "provider" | "key" | "team" | "agent";

/** From the ledger: of all gateways that share the store. */
export const USED: readonly { value: UsedMeasure; title: string }[] = [
  { value: "cost", title: "Cost" },
  { value: "calls", title: "Calls" },
  { value: "tokens", title: "Tokens" },
  { value: "cached", title: "Cached share" },
];
/** Of this gateway, since it runs. */
export const ANSWERED: readonly { value: RequestMeasure; title: string }[] = [
  { value: "requests", title: "Requests" },
  { value: "failed", title: "Failures" },
  { value: "p50", title: "Time (p50)" },
  { value: "p95", title: "Time (p95)" },
  { value: "first", title: "First byte" },
  { value: "missed", title: "Cache misses" },
];
export const GROUPS: readonly Group[] = ["model", "provider", "key", "team", "agent"];

export interface Span {
  value: string;
  title: string;
  step: Step;
}
/** Rows of the ledger are by the hour; the minutes of requests are kept for six hours, and their hours for a month. */
export const USED_SPANS: readonly Span[] = [
  { value: "24h", title: "Day", step: "hour" },
  { value: "7d", title: "Week", step: "hour" },
  { value: "30d", title: "30 days", step: "day" },
  { value: "365d", title: "Year", step: "day" },
];
export const REQUEST_SPANS: readonly Span[] = [
  { value: "1h", title: "Hour", step: "minute" },
  { value: "6h", title: "6 hours", step: "minute" },
  ...USED_SPANS.slice(0, 3),
];

export function isRequestMeasure(measure: Measure): measure is RequestMeasure {
  return ANSWERED.some(({ value }) => value === measure);
}

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

const SECONDS: Readonly<Record<Step, number>> = { minute: 60, hour: 3600, day: 86_400 };
/** A plot of a new gateway has room for this many steps. */
const MIN_STEPS = 12;

function sumOf(row: UsageRow, measure: UsedMeasure): Sum {
  const parts: Record<UsedMeasure, number> = {
    cost: Number(row.cost_usd ?? 0),
    calls: row.calls,
    tokens: row.input_tokens + row.output_tokens,
    cached: row.cache_read_tokens,
  };
  return { part: parts[measure], whole: measure === "cached" ? row.input_tokens : 0 };
}

function valueOf(sum: Sum, name: UsedMeasure): number | null {
  if (name !== "cached") return sum.part;
  return sum.whole ? (100 * sum.part) / sum.whole : null;
}

/** Durations are null where nothing was answered. */
function requestValue(row: RequestRow, name: RequestMeasure): number | null {
  const values: Record<RequestMeasure, number | null> = {
    requests: row.requests,
    failed: row.failed,
    p50: row.duration_p50_ms,
    p95: row.duration_p95_ms,
    first: row.first_byte_p50_ms,
    missed: row.cache_missed_tokens,
  };
  return values[name];
}

export function timeOf(row: UsageRow): number {
  const text = row.hour ? `${row.hour.replace(" ", "T")}:00Z` : `${row.day}T00:00:00Z`;
  return Date.parse(text) / 1000;
}

/** Every step from the first of which something is known, or some steps before the last, also those in which nobody asked
 * anything. */
export function listTimes(known: readonly number[], step: Step, since: number, until: number): readonly number[] {
  const seconds = SECONDS[step];
  const start = (time: number): number => Math.floor(time / seconds) * seconds;
  const last = start(until);
  const first = Math.max(start(since), Math.min(last - (MIN_STEPS - 1) * seconds, ...known));
  return Array.from({ length: Math.round((last - first) / seconds) + 1 }, (_, index) => first + index * seconds);
}

function placeTimes(times: readonly number[]): ReadonlyMap<number, number> {
  return new Map(times.map((time, index) => [time, index]));
}

export function drawLines({ rows, since, until }: UsageReport, group: Group, step: Step, name: UsedMeasure): Lines {
  const times = listTimes(rows.map(timeOf), step, Date.parse(since) / 1000, Date.parse(until) / 1000);
  const places = placeTimes(times);
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
  return { times, names, values: sums.map((line) => line.map((sum) => valueOf(sum, name))) };
}

/** The gateway has put the smaller groups together already: quantiles cannot be added. */
export function drawRequests({ rows, since, until, step_seconds }: RequestReport, name: RequestMeasure): Lines {
  const step = (Object.keys(SECONDS) as Step[]).find((one) => SECONDS[one] === step_seconds) ?? "hour"; // not always what was asked for
  const times = listTimes(rows.map((row) => row.time ?? 0), step, since, until);
  const places = placeTimes(times);
  const sizes = new Map<string, number>();
  for (const row of rows) sizes.set(row.name, (sizes.get(row.name) ?? 0) + (row.name === OTHERS ? 0 : row.requests));
  const names = [...sizes].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([value]) => value);
  const nothing = isDuration(name) ? null : 0;
  const values = names.map(() => times.map((): number | null => nothing));
  for (const row of rows) {
    const line = values[names.indexOf(row.name)];
    const place = places.get(row.time ?? 0);
    if (line && place !== undefined) line[place] = requestValue(row, name);
  }
  return { times, names: names.map((value) => value || "–"), values };
}

export function isDuration(name: Measure): boolean {
  return name === "p50" || name === "p95" || name === "first";
}
