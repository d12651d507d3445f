// Numbers, times and names as people read them.

import type { Cost, Tokens } from "../api";

const thousands = new Intl.NumberFormat("en-US");

export function formatCount(count: number): string {
  return thousands.format(count);
}

/** At most four characters and a letter: 950, 1.2k, 34k, 1.5M. */
export function formatShort(count: number): string {
  if (count < 1000) return String(count);
  const [value, unit] = count < 999_500 ? [count / 1000, "k"] : [count / 1_000_000, "M"];
  return `${value < 9.95 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)}${unit}`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const [value, unit] = bytes < 999_500 ? [bytes / 1000, "kB"] : [bytes / 1_000_000, "MB"];
  return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

export function formatMs(ms: number): string {
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 9_950) return `${formatCount(Math.round(ms))} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 2 * 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} days`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export function formatTime(seconds: number): string {
  return clock.format(seconds * 1000);
}

/** With the day, where it is not today. */
export function formatMoment(seconds: number, now = Date.now()): string {
  const date = new Date(seconds * 1000);
  const time = clock.format(date);
  return date.toDateString() === new Date(now).toDateString() ? time : `${day.format(date)} ${time}`;
}

export function formatCountOf(count: number, singular: string, plural = `${singular}s`): string {
  return `${formatCount(count)} ${count === 1 ? singular : plural}`;
}

/** `1.2k → 340`, for a column. */
export function formatTokens(tokens: Tokens | null): string {
  if (!tokens) return "";
  const [input, output] = [tokens.input ?? null, tokens.output ?? null];
  if (input === null && output === null) return "";
  const about = tokens.is_estimated ? "~" : "";
  return `${about}${input === null ? "?" : formatShort(input)} → ${output === null ? "?" : formatShort(output)}`;
}

/** Cents, or three digits of what is less: $12.50, $0.0123. */
export function formatDollars(amount: number): string {
  if (amount === 0) return "$0";
  const digits = Math.max(2, 2 - Math.floor(Math.log10(Math.abs(amount))));
  return amount.toLocaleString("en-US", { style: "currency", currency: "USD", maximumFractionDigits: digits });
}

export const UNKNOWN = "unknown";

/** What is unknown is said, not left out. Empty if no call was priced. */
export function formatCost(cost: Cost | null): string {
  if (!cost) return "";
  if (cost.cost_usd === null) return cost.unpriced_calls ? UNKNOWN : "";
  return formatDollars(cost.cost_usd) + (cost.unpriced_calls ? ` + ${UNKNOWN}` : "");
}

export function formatPercent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "";
}

// Characters that cannot be seen, or that change the order of the text around them: in a view of wire data they must not
// hide anything.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

export function showInvisible(text: string): string {
  return text.replace(INVISIBLE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
