import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { formatCountOf, formatMs, showInvisible } from "../../core/format";
import { moveIndex } from "../../core/row_window";
import { lossesByEvent, makeTimeline, readEventPath, type TimelineRow } from "../../core/timeline";
import { JsonView } from "../../parts/json_view";
import { useKeys } from "../../parts/keys";
import { Choice, EmptyState, useMedia } from "../../parts/small";
import { VirtualList, type ListControl } from "../../parts/virtual_list";
import type { TabProps } from "./index";

type Shown = "both" | "client" | "provider";

/** The events of both sides in time, each on its side, with the time since the one before. */
export function Stream({ detail, query }: TabProps) {
  const timeline = useMemo(() => makeTimeline(detail), [detail.client.events, detail.upstream_calls]);
  const losses = useMemo(() => lossesByEvent(detail.losses), [detail.losses]);
  const [shown, setShown] = useState<Shown>("both");
  const [chosen, setChosen] = useState<TimelineRow | null>(null);
  const isWide = useMedia("(min-width: 800px)");
  const list = useRef<ListControl>(null);
  const rows = useMemo(() => (shown === "both" ? timeline : timeline.filter((row) => row.side === shown)), [timeline, shown]);
  const lastCall = detail.upstream_calls.length - 1;
  const place = readEventPath(query.get("at") ?? "");
  const longest = useMemo(() => Math.max(1, ...timeline.map((row) => row.gap ?? 0)), [timeline]);

  useEffect(() => {
    if (!place) return;
    const row = timeline.find((one) => one.side === "provider" && one.call === lastCall && one.index === place.index);
    if (!row) return;
    setChosen(row);
    requestAnimationFrame(() => list.current?.showRow(timeline.indexOf(row), true));
  }, [timeline, query.get("at")]);

  const index = chosen ? rows.indexOf(chosen) : -1;
  const move = (step: number): void => {
    const next = moveIndex(index, step, rows.length);
    setChosen(rows[next] ?? null);
    list.current?.showRow(next);
  };
  useKeys({ j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1) });

  if (!timeline.length) return <EmptyState title={detail.row.state === "running" ? "No event yet" : "The answer is not a stream"} />;
  const rowLosses = (row: TimelineRow) => (row.side === "provider" && row.call === lastCall ? losses.get(row.index) : undefined);
  const data = chosen?.event.data ?? "";
  return (
    <div class="stream">
      <section class="panel stream-panel" aria-label="Events">
        <header class="panel-head">
          <h2>Events</h2>
          <span class="muted">
            {formatCountOf(detail.client.events.length, "event")} to the client, {timeline.length - detail.client.events.length} from providers
          </span>
          <span class="grow" />
          <Choice
            label="Show events of"
            options={[
              { value: "both", title: "Both" },
              { value: "client", title: "Client" },
              { value: "provider", title: "Provider" },
            ]}
            value={shown}
            onChange={setShown}
          />
        </header>
        {isWide && (
          <div class={`list-head event-row ${shown}`} aria-hidden="true">
            <span class="number">ms</span>
            <span class="number">gap</span>
            <span />
            {shown !== "provider" && <span>Client got</span>}
            {shown !== "client" && <span>Provider sent</span>}
          </div>
        )}
        <VirtualList
          class="events"
          label="Events in time"
          items={rows}
          rowHeight={isWide ? 24 : 44}
          keyOf={(row) => `${row.side}-${row.call}-${row.index}`}
          control={list}
          activeIndex={index}
          renderRow={(row) => (
            <button
              type="button"
              class={`event-row ${isWide ? shown : "narrow"} side-${row.side}${row === chosen ? " chosen" : ""}`}
              aria-pressed={row === chosen}
              onClick={() => setChosen(row === chosen ? null : row)}
            >
              <span class="number mono">{row.event.ms.toFixed(1)}</span>
              <span class="number mono muted">{row.gap === null ? "" : `+${row.gap.toFixed(1)}`}</span>
              <span class="gap-track" aria-hidden="true">
                {row.gap !== null && <span class={`gap-bar side-${row.side}`} style={{ width: `${gapWidth(row.gap, longest)}%` }} />}
              </span>
              <span class="event-data mono">
                <span class="hidden">{row.side === "client" ? "client got" : "provider sent"}</span>
                {!isWide && <span class="side-name">{row.side}</span>}
                {row.event.event && <span class="event-name">{row.event.event}</span>}
                {rowLosses(row)?.map((loss) => (
                  <span class={`loss-mark severity-${loss.severity}`} key={loss.code}>
                    {loss.code}
                  </span>
                ))}
                <span class="event-text">{showInvisible(row.event.data.slice(0, 400))}</span>
              </span>
            </button>
          )}
        />
      </section>
      {chosen ? (
        <JsonView
          key={`${chosen.side}-${chosen.call}-${chosen.index}`}
          title={`${chosen.side === "client" ? "Client got" : "Provider sent"} #${chosen.index} at ${formatMs(chosen.event.ms)}`}
          body={{ text: data, size: new TextEncoder().encode(data).length, is_cut: false, next: "" }}
          losses={rowLosses(chosen) ?? []}
          at={place && chosen.side === "provider" && chosen.index === place.index ? place.pointer : null}
        />
      ) : (
        <p class="muted event-hint">Choose an event to see its data.</p>
      )}
    </div>
  );
}

/** Gaps differ by a factor of a thousand, so the bars grow with the logarithm. */
function gapWidth(gap: number, longest: number): number {
  return (100 * Math.log1p(gap)) / Math.log1p(longest);
}
