// The list of exchanges, newest first, and the text of streams that are running.

import type { ExchangeRow, Output } from "../api";

/** The list with rows that are new or have changed. */
export function mergeRows(rows: readonly ExchangeRow[], changes: ReadonlyMap<string, ExchangeRow>, limit: number): ExchangeRow[] {
  const added = new Map(changes);
  const merged = rows.map((row) => {
    const change = added.get(row.id);
    added.delete(row.id);
    return change ?? row;
  });
  if (added.size) {
    merged.push(...added.values());
    merged.sort(newestFirst);
  }
  return merged.length > limit ? merged.slice(0, limit) : merged;
}

export function newestFirst(a: ExchangeRow, b: ExchangeRow): number {
  return b.started_at - a.started_at || compareIds(b.id, a.id);
}

function compareIds(a: string, b: string): number {
  const [workerA = 0, numberA = 0] = a.split("-").map(Number);
  const [workerB = 0, numberB = 0] = b.split("-").map(Number);
  return numberA - numberB || workerA - workerB;
}

/** Of a long answer the page keeps the end. */
export const MAX_OUTPUT = 64 * 1024;

export function joinOutput(old: Output, added: Output): Output {
  return {
    id: added.id,
    text: keepEnd(old.text + added.text),
    reasoning: keepEnd(old.reasoning + added.reasoning),
    calls: added.calls.length ? [...old.calls, ...added.calls].slice(-200) : old.calls,
    bytes_out: Math.max(old.bytes_out, added.bytes_out),
  };
}

function keepEnd(text: string): string {
  return text.length > MAX_OUTPUT ? text.slice(-MAX_OUTPUT) : text;
}
