// The events of both sides of a stream, in the order of time.

import type { ExchangeDetail, LossRow, StreamEvent } from "../api";

export interface TimelineRow {
  side: "client" | "provider";
  /** Its number among the events of its side, or of its call to a provider. */
  index: number;
  /** The call to a provider; 0 for the client. */
  call: number;
  event: StreamEvent;
  /** Milliseconds since the event before it on the same side; null for the first one. */
  gap: number | null;
}

export function makeTimeline(detail: ExchangeDetail): TimelineRow[] {
  const rows = [
    ...listEvents("client", 0, detail.client.events),
    ...detail.upstream_calls.flatMap((call, index) => listEvents("provider", index, call.events)),
  ];
  // The sort is stable: at the same time, what the provider sent comes first, because the client's event follows from it.
  return rows.sort((a, b) => a.event.ms - b.event.ms || (a.side === b.side ? 0 : a.side === "provider" ? -1 : 1));
}

function listEvents(side: TimelineRow["side"], call: number, events: readonly StreamEvent[]): TimelineRow[] {
  return events.map((event, index) => ({ side, index, call, event, gap: index === 0 ? null : event.ms - events[index - 1]!.ms }));
}

/** The number of the event in a loss's path, and the pointer inside of it: `event/12/choices/0`. */
export function readEventPath(path: string): { index: number; pointer: string } | null {
  const match = /^\/?event\/(\d+)(\/.*)?$/.exec(path);
  return match && { index: Number(match[1]), pointer: match[2] ?? "" };
}

/** Losses by the number of their event. */
export function lossesByEvent(losses: readonly LossRow[]): Map<number, LossRow[]> {
  const all = new Map<number, LossRow[]>();
  for (const loss of losses) {
    const place = loss.is_in_answer && readEventPath(loss.path);
    if (place) all.set(place.index, [...(all.get(place.index) ?? []), { ...loss, path: place.pointer }]);
  }
  return all;
}
