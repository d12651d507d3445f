// Filters of the list of exchanges. They are in the address, so a filtered list can be linked.

import type { ExchangeRow } from "../api";

interface Facet {
  name: string;
  title: string;
  values: (row: ExchangeRow) => readonly string[];
  /** Is it only shown while a value of it is chosen? There are as many as conversations. */
  isHidden?: true;
}

const single = (value: string): readonly string[] => (value ? [value] : []);

export const FACETS: readonly Facet[] = [
  { name: "agent", title: "Agent", values: (row) => single(row.agent) },
  { name: "key", title: "Key", values: (row) => single(row.key_name) },
  { name: "team", title: "Team", values: (row) => single(row.team) },
  { name: "session", title: "Session", values: (row) => single(row.conversation), isHidden: true },
  { name: "provider", title: "Provider", values: (row) => single(row.provider) },
  { name: "model", title: "Model", values: (row) => single(row.model || row.requested_model) },
  { name: "client", title: "Protocol", values: (row) => single(row.client_protocol) },
  { name: "tool", title: "Tool", values: (row) => [...new Set([...row.called_tools.map((tool) => tool.client), ...row.tool_runs])] },
  { name: "failure", title: "Failure", values: (row) => single(failureOf(row)) },
  { name: "loss", title: "Loss", values: (row) => row.losses },
];

export function failureOf(row: ExchangeRow): string {
  if (row.failure) return row.failure;
  return row.state === "done" || row.state === "running" ? "" : row.state;
}

/** Model lists, token counts and the like: they are hidden at first, because nobody has asked anything. */
export function isQuiet(row: ExchangeRow): boolean {
  return QUIET_OPERATIONS.has(row.operation) && (row.state === "done" || row.state === "running");
}

const QUIET_OPERATIONS: ReadonlySet<string> = new Set(["models", "count_tokens", "metrics"]);

export interface Filter {
  text: string;
  /** Are the quiet ones shown, too? */
  showsQuiet: boolean;
  /** Minutes; 0 for any time. */
  since: number;
  /** Chosen values by facet. Values of one facet are alternatives; facets must all match. */
  chosen: ReadonlyMap<string, ReadonlySet<string>>;
}

export const NO_FILTER: Filter = { text: "", showsQuiet: false, since: 0, chosen: new Map() };

export function readFilter(query: URLSearchParams): Filter {
  const chosen = new Map<string, Set<string>>();
  for (const { name } of FACETS) {
    const values = query.getAll(name);
    if (values.length) chosen.set(name, new Set(values));
  }
  return { text: query.get("q") ?? "", showsQuiet: query.has("all"), since: Math.max(0, Number(query.get("since")) || 0), chosen };
}

export function writeFilter(filter: Filter): URLSearchParams {
  const query = new URLSearchParams();
  for (const { name } of FACETS) for (const value of filter.chosen.get(name) ?? []) query.append(name, value);
  if (filter.text) query.set("q", filter.text);
  if (filter.since) query.set("since", String(filter.since));
  if (filter.showsQuiet) query.set("all", "");
  return query;
}

export function isEmptyFilter(filter: Filter): boolean {
  return !filter.text.trim() && !filter.since && filter.chosen.size === 0;
}

export function toggleValue(filter: Filter, facet: string, value: string): Filter {
  const values = new Set(filter.chosen.get(facet));
  if (!values.delete(value)) values.add(value);
  const chosen = new Map(filter.chosen);
  if (values.size) chosen.set(facet, values);
  else chosen.delete(facet);
  return { ...filter, chosen };
}

/** What the gateway has found for the text, by the ids of exchanges: what is around the first word. */
export type Found = ReadonlyMap<string, string>;
const NOTHING: Found = new Map();

export function filterRows(rows: readonly ExchangeRow[], filter: Filter, found = NOTHING, now = Date.now()): readonly ExchangeRow[] {
  const words = textWords(filter.text);
  const showsQuiet = filter.showsQuiet || !isEmptyFilter(filter);
  return rows.filter((row) => (showsQuiet || !isQuiet(row)) && (matchesWords(row, words) || found.has(row.id)) && matchesTime(row, filter, now) && FACETS.every((facet) => matchesFacet(row, facet, filter)));
}

function matchesTime(row: ExchangeRow, filter: Filter, now: number): boolean {
  return !filter.since || row.started_at * 1000 >= now - filter.since * 60_000;
}

function matchesFacet(row: ExchangeRow, facet: Facet, filter: Filter): boolean {
  const chosen = filter.chosen.get(facet.name);
  return !chosen || facet.values(row).some((value) => chosen.has(value));
}

function textWords(text: string): string[] {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

// Rows are replaced, never changed, so what is searched in them can be kept.
const searched = new WeakMap<ExchangeRow, string>();

function matchesWords(row: ExchangeRow, words: readonly string[]): boolean {
  if (!words.length) return true;
  let text = searched.get(row);
  if (text === undefined) {
    const tools = row.called_tools.flatMap((tool) => [tool.client, tool.provider]);
    text = [
      row.id, row.request_id, row.path, row.operation, row.agent, row.key_name, row.client_protocol, row.provider_protocol,
      row.provider, row.requested_model, row.model, row.status, row.state, row.failure, row.message, row.session, row.team,
      row.asked, row.answered,
      ...row.losses, ...tools, ...row.tool_runs,
    ].join("\n").toLowerCase(); // prettier-ignore
    searched.set(row, text);
  }
  return words.every((word) => text.includes(word));
}

export interface FacetCounts {
  name: string;
  title: string;
  values: { value: string; count: number; isChosen: boolean }[];
}

/** For each facet, how many rows each value would show: rows that match everything else. */
export function countFacets(rows: readonly ExchangeRow[], filter: Filter, found = NOTHING, now = Date.now()): FacetCounts[] {
  const words = textWords(filter.text);
  const counts = FACETS.map((facet) => new Map([...(filter.chosen.get(facet.name) ?? [])].map((value) => [value, 0])));
  for (const row of rows) {
    // Every value stays in its place: a list of filters that comes and goes moves what is under the pointer.
    FACETS.forEach((facet, index) => {
      for (const value of facet.values(row)) if (!counts[index]!.has(value)) counts[index]!.set(value, 0);
    });
    if ((!matchesWords(row, words) && !found.has(row.id)) || !matchesTime(row, filter, now)) continue;
    const misses = FACETS.filter((facet) => !matchesFacet(row, facet, filter));
    if (misses.length > 1) continue;
    FACETS.forEach((facet, index) => {
      if (misses.length && misses[0] !== facet) return;
      const count = counts[index]!;
      for (const value of facet.values(row)) count.set(value, (count.get(value) ?? 0) + 1);
    });
  }
  return FACETS.map(({ name, title, isHidden }, index) => ({
    name,
    title,
    values: [...counts[index]!]
      .filter(([value]) => !isHidden || filter.chosen.get(name)?.has(value))
      .map(([value, count]) => ({ value, count, isChosen: filter.chosen.get(name)?.has(value) ?? false }))
      .sort((a, b) => b.count - a.count || a.value.localeCompare(b.value)),
  }));
}
