import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { API_PATH, type ExchangeDetail, type ExchangeRow, type LossRow } from "../../api";
import { formatBytes, formatCost, formatCount, formatMoment, formatMs } from "../../core/format";
import { findRow, outputs, rows } from "../../gateway";
import { Arrow, durationText, ModelName, StatusBadge } from "../../parts/exchange_parts";
import { useKeys } from "../../parts/keys";
import { useExchange } from "../../parts/resource";
import { CopyButton, Dialog, ErrorNote, Tabs } from "../../parts/small";
import { goTo, route, writeHash } from "../../router";
import type { ViewProps } from "../index";
import { filteredRows, liveHash } from "../live";
import { AnswerBodies, RequestBodies } from "./bodies";
import { Calls } from "./calls";
import { Conversation } from "./conversation";
import { Overview } from "./overview";
import { Stream } from "./stream";
import { Tools } from "./tools";

export interface TabProps {
  detail: ExchangeDetail;
  query: URLSearchParams;
}

interface Tab {
  title: string;
  component: ComponentType<TabProps>;
  count?: (detail: ExchangeDetail) => number;
}

const TABS: Readonly<Record<string, Tab>> = {
  overview: { title: "Overview", component: Overview },
  conversation: { title: "Conversation", component: Conversation },
  request: { title: "Request", component: RequestBodies },
  answer: { title: "Answer", component: AnswerBodies },
  stream: { title: "Stream", component: Stream, count: (detail) => detail.client.events.length },
  tools: { title: "Tools", component: Tools, count: (detail) => detail.tools.length },
  calls: { title: "Calls", component: Calls, count: (detail) => detail.calls.length },
};

/** The address of a place in an exchange. */
export function tabHash(id: string, tab: string, query?: Record<string, string>): string {
  return writeHash("exchange", [id, tab], new URLSearchParams(query));
}

/** Where a loss is shown: in the client's request, or in the provider's answer. */
export function lossHash(detail: ExchangeDetail, loss: LossRow): string {
  const tab = !loss.is_in_answer ? "request" : /^\/?event\//.test(loss.path) ? "stream" : "answer";
  return tabHash(detail.row.id, tab, { at: loss.path });
}

/** How long after its last answer the detail of a running exchange is asked for again; its output comes by events. */
const RUNNING_MS = 2000;

export function Exchange({ args, query }: ViewProps) {
  const id = args[0] ?? "";
  const row = findRow(id);
  const isRunning = row?.state === "running";
  const { data, error, reload } = useExchange(id, row?.state);
  useEffect(() => {
    if (!isRunning) return;
    const timer = setTimeout(reload, RUNNING_MS);
    return () => clearTimeout(timer);
  }, [isRunning, reload, data, error]);
  const [isChoosing, setChoosing] = useState(false);
  const tab = TABS[args[1] ?? ""] ? args[1]! : "overview";

  const goBy = (step: number): void => {
    const index = filteredRows.value.findIndex((one) => one.id === id);
    const next = index < 0 ? undefined : filteredRows.value[index + step];
    if (next) goTo(writeHash("exchange", [next.id, ...args.slice(1, 2)]), { replace: true });
  };
  useKeys({ Escape: () => goTo(liveHash()), "[": () => goBy(-1), "]": () => goBy(1) });

  if (!data) {
    return (
      <div class="page">
        <Crumbs id={id} />
        <h1 class="hidden">Exchange {id}</h1>
        {error ? <ErrorNote error={error} onRetry={reload} /> : <p class="loading">Loading…</p>}
      </div>
    );
  }
  const live = row && isRunning ? { ...data, row, output: outputs.value.get(id) ?? data.output } : data;
  const { component: Content } = TABS[tab]!;
  return (
    <div class="exchange">
      <header class="exchange-head">
        <Crumbs id={id} />
        <div class="title-line">
          <StatusBadge row={live.row} />
          <h1>
            {live.row.client_protocol || live.row.operation} <Arrow /> {live.row.provider || "no provider"}{" "}
            <span class="title-model">
              <ModelName row={live.row} />
            </span>
          </h1>
          <Actions detail={live} onCompare={() => setChoosing(true)} />
        </div>
        <Summary row={live.row} />
        {live.row.message && (
          <p class="note tone-bad">
            <strong>{live.row.failure || live.row.state}</strong> {live.row.message}
          </p>
        )}
        {error && <ErrorNote error={error} onRetry={reload} />}
      </header>
      <Tabs
        label="Parts of the exchange"
        tabs={Object.entries(TABS).map(([name, { title, count }]) => ({ name, title, ...(count && { count: count(data) }) }))}
        chosen={tab}
        onChoose={(name) => goTo(tabHash(id, name), { replace: true })}
      />
      <div class={`exchange-content tab-${tab}`} role="tabpanel" id="panel" aria-labelledby={`tab-${tab}`} tabIndex={-1}>
        <Content key={tab} detail={live} query={query} />
      </div>
      {isChoosing && <ChooseOther id={id} onClose={() => setChoosing(false)} />}
    </div>
  );
}

function Crumbs({ id }: { id: string }) {
  return (
    <nav class="crumbs" aria-label="Where you are">
      <a href={liveHash()}>Live</a>
      <span aria-hidden="true">/</span>
      <span class="mono" aria-current="page">
        {id}
      </span>
    </nav>
  );
}

function Actions({ detail, onCompare }: { detail: ExchangeDetail; onCompare: () => void }) {
  const { row } = detail;
  return (
    <div class="actions">
      {detail.curl && <CopyButton text={detail.curl.replace("$URL", location.origin)} label="Copy as curl" title="The client's request" />}
      <a class="button" href={`${API_PATH}exchanges/${encodeURIComponent(row.id)}/case`} download title="A file that toolwire conformance plays">
        Download case
      </a>
      <button type="button" class="button" onClick={onCompare}>
        Compare with…
      </button>
      <a class="button primary" href={writeHash("again", [row.id])}>
        Send again…
      </a>
    </div>
  );
}

function Summary({ row }: { row: ExchangeRow }) {
  const { input, output, cache_read: read, cache_write: write, reasoning } = row.tokens ?? {};
  const facts: [string, string | false][] = [
    ["at", formatMoment(row.started_at)],
    ["took", durationText(row)],
    ["first byte", row.first_byte_ms !== null && formatMs(row.first_byte_ms)],
    ["tokens in", input != null && formatCount(input)],
    ["cached", read != null && formatCount(read)],
    ["written to the cache", write != null && formatCount(write)],
    ["tokens out", output != null && formatCount(output)],
    ["reasoning", reasoning != null && formatCount(reasoning)],
    ["cost", formatCost(row.cost)],
    ["bytes in", formatBytes(row.bytes_in)],
    ["bytes out", formatBytes(row.bytes_out)],
    ["attempts", row.attempts > 1 && String(row.attempts)],
    ["agent", row.agent],
    ["key", row.key_name],
    ["team", row.team],
    ["request id", row.request_id],
  ];
  return (
    <dl class="summary">
      {facts.map(
        ([name, value]) =>
          value && (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ),
      )}
      {row.passthrough && (
        <div>
          <dt>mode</dt>
          <dd>forwarded unchanged</dd>
        </div>
      )}
      {row.session && (
        <div>
          <dt>session</dt>
          <dd>
            <a href={writeHash("session", [row.session])}>{row.session}</a>
          </dd>
        </div>
      )}
    </dl>
  );
}

const MAX_CHOICES = 100;

function ChooseOther({ id, onClose }: { id: string; onClose: () => void }) {
  const [text, setText] = useState("");
  const own = findRow(id);
  const wanted = text.toLowerCase();
  const others = rows.value
    .filter((row) => row.id !== id && [row.id, row.model, row.provider, row.client_protocol, row.agent].join(" ").toLowerCase().includes(wanted))
    // Turns of the same session are what one compares most often.
    .sort((a, b) => Number(isSameSession(b, own)) - Number(isSameSession(a, own)))
    .slice(0, MAX_CHOICES);
  return (
    <Dialog title={`Compare ${id} with`} onClose={onClose}>
      <input type="search" aria-label="Filter exchanges" placeholder="Filter: id, model, provider …" value={text} onInput={(event) => setText(event.currentTarget.value)} autoFocus />
      <ul class="choices">
        {others.map((row) => (
          <li key={row.id}>
            <a href={writeHash("compare", [id, row.id])}>
              <span class="mono">{row.id}</span> <span class="muted">{formatMoment(row.started_at)}</span> {row.client_protocol} <Arrow /> {row.provider}{" "}
              <ModelName row={row} />
              {isSameSession(row, own) && <span class="muted"> · same session</span>}
            </a>
          </li>
        ))}
      </ul>
      {!others.length && <p class="muted">There is no other exchange.</p>}
    </Dialog>
  );
}

function isSameSession(row: ExchangeRow, own: ExchangeRow | null): boolean {
  return own !== null && own.conversation !== "" && row.conversation === own.conversation;
}

/** Changes one thing in the address of the present view. */
export function setQuery(name: string, value: string): void {
  const { view, args, query } = route.value;
  const next = new URLSearchParams(query);
  next.set(name, value);
  goTo(writeHash(view, args, next), { replace: true });
}
