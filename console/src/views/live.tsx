import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ExchangeRow } from "../api";
import { KEY_HEADER, KEY_VARIABLE } from "../core/code";
import { countFacets, filterRows, isEmptyFilter, isQuiet, NO_FILTER, readFilter, toggleValue, writeFilter, type FacetCounts, type Filter } from "../core/filter";
import { formatBytes, formatCost, formatCount, formatCountOf, formatMs, formatShort, formatTime, formatTokens, showInvisible, UNKNOWN } from "../core/format";
import { moveIndex } from "../core/row_window";
import { found, searchNote, searchNow, searchText } from "../found";
import { connection, gateway, isPaused, outputs, pauseList, removedCount, rows, waitingCount } from "../gateway";
import { Arrow, durationText, ModelName, StatusBadge, ToolName } from "../parts/exchange_parts";
import { useKeys } from "../parts/keys";
import { Badge, CodeBlock, EmptyState, useMedia } from "../parts/small";
import { VirtualList, type ListControl } from "../parts/virtual_list";
import { goTo, route, writeHash } from "../router";
import type { ViewProps } from "./index";

/** The row that the keys are on; it stays when one comes back from an exchange. */
const chosenId = signal("");
const lastScroll = { top: 0 };

/** Of the address; in other views it stays what it was. */
const filter = signal<Filter>(NO_FILTER);
effect(() => {
  if (route.value.view === "live") filter.value = readFilter(route.value.query);
});
effect(() => {
  searchText.value = filter.value.text;
});
/** The rows of the list as it is filtered; the exchange view goes through the same. */
export const filteredRows = computed(() => filterRows(rows.value, filter.value, found.value));

/** The address of the list with the filters that it had. */
export function liveHash(): string {
  return writeHash("live", [], writeFilter(filter.value));
}

function setFilter(next: Filter): void {
  goTo(writeHash("live", [], writeFilter(next)), { replace: true });
}

export function Live(_: ViewProps) {
  const shown = filteredRows.value;
  const all = rows.value;
  const [areFiltersOpen, setFiltersOpen] = useState(false);
  const isWide = useMedia("(min-width: 1280px)");
  const hasPreview = useMedia("(min-width: 1700px)");
  const isTable = useMedia("(min-width: 1000px)");
  const hasRoom = useMedia("(min-width: 2200px)");
  const hasKeys = all.some((row) => row.key_name);
  const list = useRef<ListControl>(null);
  const field = useRef<HTMLInputElement>(null);
  const index = shown.findIndex((row) => row.id === chosenId.value);

  const focusRow = (id: string): void => {
    const focus = (): void => document.getElementById(`row-${id}`)?.focus({ preventScroll: true });
    focus(); // at once, so that Enter right after it opens this row
    requestAnimationFrame(focus); // a row that was not visible exists only after the list has moved to it
  };
  const choose = (at: number): void => {
    const row = shown[at];
    if (!row) return;
    chosenId.value = row.id;
    list.current?.showRow(at);
    focusRow(row.id);
  };
  const move = (step: number): void => choose(moveIndex(index, step, shown.length));
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    PageDown: () => move(20),
    PageUp: () => move(-20),
    Home: () => choose(0),
    End: () => choose(shown.length - 1),
    Enter: () => index >= 0 && goTo(writeHash("exchange", [shown[index]!.id])),
    "/": () => field.current?.select(),
    p: () => pauseList(!isPaused.value),
    Escape: () => (isEmptyFilter(filter.value) ? (chosenId.value = "") : setFilter(NO_FILTER)),
  });
  useEffect(() => {
    const element = list.current?.element();
    if (element) element.scrollTop = lastScroll.top;
    if (index >= 0) focusRow(chosenId.value);
    return () => {
      lastScroll.top = list.current?.element()?.scrollTop ?? 0;
    };
  }, [all.length > 0]);

  const chosenCount = [...filter.value.chosen.values()].reduce((sum, values) => sum + values.size, 0);
  return (
    <div class={`live${isWide ? " wide" : ""}${hasPreview ? " with-preview" : ""}`}>
      <h1 class="hidden">Live exchanges</h1>
      <div class="live-bar">
        <search class="filter-field">
          <input
            ref={field}
            type="search"
            aria-label="Search"
            placeholder="Words in prompts and answers, model, tool, id …"
            value={filter.value.text}
            onKeyDown={(event) => event.key === "Enter" && (event.preventDefault(), event.stopPropagation(), searchNow())}
            onInput={(event) => setFilter({ ...filter.value, text: event.currentTarget.value })}
          />
          <kbd aria-hidden="true">/</kbd>
        </search>
        <select aria-label="Time" class="time-choice" value={String(filter.value.since)} onChange={(event) => setFilter({ ...filter.value, since: Number(event.currentTarget.value) })}>
          {TIMES.map(([minutes, title]) => (
            <option key={minutes} value={String(minutes)}>
              {title}
            </option>
          ))}
        </select>
        {!isWide && (
          <button type="button" class="button" aria-expanded={areFiltersOpen} onClick={() => setFiltersOpen(!areFiltersOpen)}>
            Filters{chosenCount > 0 && ` (${chosenCount})`}
          </button>
        )}
        <button type="button" class="button" aria-pressed={isPaused.value} title="Pause the list (p)" onClick={() => pauseList(!isPaused.value)}>
          {isPaused.value ? `Continue${waitingCount.value ? ` (${waitingCount.value} waiting)` : ""}` : "Pause"}
        </button>
        <label class="quiet-choice">
          <input
            type="checkbox"
            checked={filter.value.showsQuiet}
            onChange={() => setFilter({ ...filter.value, showsQuiet: !filter.value.showsQuiet })}
          />{" "}
          Model lists and counts
        </label>
        <span class="row-count muted" role="status">
          {shown.length === all.length ? formatCountOf(all.length, "exchange") : `${formatCount(shown.length)} of ${formatCount(all.length)}`}
          {removedCount.value > 0 && all.length > 0 && <span class="older">, {formatCount(removedCount.value)} older ones are gone</span>}
        </span>
        {searchNote.value && (
          <span class="muted search-note" role="status">
            {searchNote.value}
          </span>
        )}
        {gateway.value?.has_replicas && (
          <span class="muted replica-note" title="Gateways that share a store show each what went through themselves. Usage has the figures of all.">
            of this gateway only
          </span>
        )}
      </div>
      {(isWide || areFiltersOpen) && all.length > 0 && <Facets />}
      <div class="live-list">
        {all.length === 0 ? (
          <FirstSteps />
        ) : shown.length === 0 ? (
          <EmptyState title={searchNote.value === "searching…" ? "Searching what was said…" : "No exchange matches"}>
            <button type="button" class="button" onClick={() => setFilter({ ...NO_FILTER, showsQuiet: true })}>
              Remove all filters
            </button>
          </EmptyState>
        ) : (
          <>
            {isTable && <ListHead hasKeys={hasKeys} />}
            <VirtualList
              class={`exchange-rows${isTable ? " table" : ""}${hasKeys ? " with-keys" : ""}`}
              label="Exchanges, newest first"
              items={shown}
              rowHeight={isTable ? 34 : 98}
              keyOf={(row) => row.id}
              activeIndex={index}
              control={list}
              keepsPlace
              renderRow={(row) => <Row row={row} isChosen={row.id === chosenId.value || (index < 0 && row === shown[0])} hasPreview={hasPreview} hasRoom={hasRoom} hasKeys={hasKeys} />}
            />
          </>
        )}
      </div>
      {hasPreview && all.length > 0 && <Preview row={shown[index] ?? shown.find((row) => row.state === "running") ?? shown[0] ?? null} />}
    </div>
  );
}

const TIMES: readonly [number, string][] = [
  [0, "Any time"],
  [5, "Last 5 minutes"],
  [60, "Last hour"],
  [24 * 60, "Last day"],
];

function ListHead({ hasKeys }: { hasKeys: boolean }) {
  return (
    <div class={`list-head exchange-row${hasKeys ? " with-keys" : ""}`} aria-hidden="true">
      <span>Time</span>
      <span>Status</span>
      <span>Agent → provider</span>
      {hasKeys && <span>Key · team</span>}
      <span>Model</span>
      <span>Asked, called and answered</span>
      <span>Losses</span>
      <span class="number">Tokens</span>
      <span class="number">Cost</span>
      <span class="number">Duration</span>
    </div>
  );
}

interface RowProps {
  row: ExchangeRow;
  isChosen: boolean;
  hasPreview: boolean;
  /** For a second loss. */
  hasRoom: boolean;
  hasKeys: boolean;
}

/** Without its version, which few ask for. */
function agentName(row: ExchangeRow): string {
  return row.agent.split("/", 1)[0] || (row.client_protocol ? "" : row.operation) || row.client_protocol;
}

function Row({ row, isChosen, hasPreview, hasRoom, hasKeys }: RowProps) {
  const shownLosses = hasRoom ? 2 : 1;
  return (
    <a
      id={`row-${row.id}`}
      class={`exchange-row state-${row.state}${isQuiet(row) ? " quiet-row" : ""}${row.id === chosenId.value ? " chosen" : ""}`}
      href={writeHash("exchange", [row.id])}
      tabIndex={isChosen ? 0 : -1}
      onFocus={() => (chosenId.value = row.id)}
      onClick={(event) => {
        // With the preview beside the list, the first click chooses and the second one opens.
        if (!hasPreview || event.detail !== 1 || event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        chosenId.value = row.id;
      }}
      onDblClick={() => goTo(writeHash("exchange", [row.id]))}
    >
      <time class="cell time" dateTime={new Date(row.started_at * 1000).toISOString()}>
        {formatTime(row.started_at)}
      </time>
      <span class="cell status">
        <StatusBadge row={row} />
      </span>
      <span class="cell sides" title={[row.agent, row.client_protocol].filter(Boolean).join(" · ")}>
        <span>{agentName(row)}</span> <Arrow /> <span>{row.provider || "–"}</span>
        {row.client_protocol && <span class="muted agent"> {row.client_protocol}</span>}
      </span>
      {hasKeys && (
        <span class="cell key" title={[row.key_name, row.team].filter(Boolean).join(" · ")}>
          {row.key_name}
          {row.team && <span class="muted"> · {row.team}</span>}
        </span>
      )}
      <span class="cell model">
        <ModelName row={row} />
      </span>
      <span class="extra">
        <span class="cell tools">
          <RowOutput row={row} />
        </span>
        <span class="cell losses" title={row.losses.join(", ")}>
          {row.losses.slice(0, shownLosses).map((code) => (
            <span class="loss-code" key={code}>
              {code}
            </span>
          ))}
          {row.losses.length > shownLosses && <span class="muted more">+{row.losses.length - shownLosses}</span>}
        </span>
      </span>
      <span class="cell number tokens" title={row.tokens ? tokensTitle(row) : undefined}>
        {formatTokens(row.tokens)}
      </span>
      <span class={`cell number cost${row.cost?.cost_usd == null ? " muted" : ""}`} title={formatCost(row.cost)}>
        {formatCost(row.cost).replace(` + ${UNKNOWN}`, "+?")}
      </span>
      <span class="cell number duration">{durationText(row)}</span>
    </a>
  );
}

function tokensTitle(row: ExchangeRow): string {
  const { input, output, cache_read: read, reasoning } = row.tokens ?? {};
  return [
    input != null && `${formatCount(input)} input`,
    read != null && `${formatCount(read)} of them cached`,
    output != null && `${formatCount(output)} output`,
    reasoning != null && `${formatCount(reasoning)} of them reasoning`,
  ]
    .filter(Boolean)
    .join(", ");
}

/** The tools that were called, a failure's message, or the end of a running answer. */
function RowOutput({ row }: { row: ExchangeRow }) {
  if (row.state === "running") {
    const output = outputs.value.get(row.id);
    if (!output) return <span class="muted">waiting for the provider</span>;
    const tail = (output.text || output.reasoning).slice(-160).replace(/\s+/g, " ");
    return (
      <>
        {output.calls.map((name, index) => (
          <span class="tool-name" key={index}>
            {name}
          </span>
        ))}
        <span class={`tail${output.text ? "" : " muted"}`}>
          <bdi>{tail}</bdi>
        </span>
      </>
    );
  }
  const excerpt = found.value.get(row.id);
  if (excerpt) {
    return (
      <span class="asked excerpt-found" title={excerpt}>
        <Marked text={showInvisible(excerpt)} word={filter.value.text.trim().split(/\s+/)[0] ?? ""} />
      </span>
    );
  }
  return (
    <>
      {row.asked && (
        <span class="asked" title={row.asked}>
          {showInvisible(row.asked)}
        </span>
      )}
      <span class="said">
        {row.called_tools.slice(0, 3).map((tool, index) => (
          <ToolName key={index} tool={tool} />
        ))}
        {row.called_tools.length > 3 && <span class="muted">+{row.called_tools.length - 3}</span>}
        {row.tool_runs.map((name, index) => (
          <span class="tool-name" key={index} title="Run by the gateway">
            {name} <span class="muted">by the gateway</span>
          </span>
        ))}
        {row.message && <span class="tone-text-bad">{row.message}</span>}
        {row.answered && (
          <span class="answered" title={row.answered}>
            {showInvisible(row.answered)}
          </span>
        )}
      </span>
    </>
  );
}

/** The excerpt, with the word that was searched for marked. */
function Marked({ text, word }: { text: string; word: string }) {
  const at = text.toLowerCase().indexOf(word.toLowerCase(), Math.max(0, text.length / 2 - 100));
  const start = at < 0 || !word ? -1 : at;
  if (start < 0) return <>{text}</>;
  return (
    <>
      {text.slice(Math.max(0, start - EXCERPT_BEFORE), start)}
      <mark>{text.slice(start, start + word.length)}</mark>
      {text.slice(start + word.length)}
    </>
  );
}

/** Characters before the word: the row is narrow, and the word must be in it. */
const EXCERPT_BEFORE = 24;

const facetCounts = computed(() => countFacets(rows.value, filter.value, found.value));

function Facets() {
  return (
    <aside class="facets" aria-label="Filters">
      <button type="button" class="button quiet clear-filters" disabled={isEmptyFilter(filter.value)} onClick={() => setFilter(NO_FILTER)}>
        Remove all filters
      </button>
      {facetCounts.value.map((facet) => facet.values.length > 0 && <FacetGroup key={facet.name} facet={facet} />)}
    </aside>
  );
}

const SHOWN_VALUES = 6;

function FacetGroup({ facet }: { facet: FacetCounts }) {
  const [isLong, setLong] = useState(false);
  const values = isLong ? facet.values : facet.values.filter((value, index) => index < SHOWN_VALUES || value.isChosen);
  return (
    <fieldset class="facet">
      <legend>{facet.title}</legend>
      {values.map(({ value, count, isChosen }) => (
        <label key={value} class={`facet-value${count ? "" : " none"}`} title={value}>
          <input type="checkbox" checked={isChosen} onChange={() => setFilter(toggleValue(filter.value, facet.name, value))} />
          <span class="facet-name">{value}</span>
          <span class="facet-count">{formatShort(count)}</span>
        </label>
      ))}
      {facet.values.length > SHOWN_VALUES && (
        <button type="button" class="button quiet" aria-expanded={isLong} onClick={() => setLong(!isLong)}>
          {isLong ? "Fewer" : `${facet.values.length - SHOWN_VALUES} more`}
        </button>
      )}
    </fieldset>
  );
}

/** What is known of a row, beside the list, with the answer as it grows. */
function Preview({ row }: { row: ExchangeRow | null }) {
  const output = row && outputs.value.get(row.id);
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (row?.state === "running" && end.current) end.current.scrollTop = end.current.scrollHeight;
  }, [output]);
  if (!row) return <aside class="preview" aria-label="Chosen exchange" />;
  return (
    <aside class="preview" aria-label="Chosen exchange">
      <header class="preview-head">
        <StatusBadge row={row} />
        <h2 class="mono">{row.id}</h2>
        <span class="grow" />
        <a class="button primary" href={writeHash("exchange", [row.id])}>
          Open
        </a>
      </header>
      <dl class="facts">
        <Fact name="Client" value={[row.client_protocol, row.agent, row.key_name && `key ${row.key_name}`, row.team && `team ${row.team}`].filter(Boolean).join(" · ")} />
        <Fact name="Provider" value={[row.provider, row.provider_protocol, row.passthrough ? "forwarded unchanged" : ""].filter(Boolean).join(" · ")} />
        <div>
          <dt>Model</dt>
          <dd>
            <ModelName row={row} />
          </dd>
        </div>
        <Fact name="First byte" value={row.first_byte_ms === null ? "" : formatMs(row.first_byte_ms)} />
        <Fact name="Duration" value={durationText(row)} />
        <Fact name="Tokens" value={row.tokens ? tokensTitle(row) : ""} />
        <Fact name="Cost" value={formatCost(row.cost)} />
        <Fact name="Bytes" value={`${formatBytes(row.bytes_in)} in, ${formatBytes(output?.bytes_out || row.bytes_out)} out`} />
        <Fact name="Attempts" value={row.attempts > 1 ? String(row.attempts) : ""} />
        {row.session && (
          <div>
            <dt>Session</dt>
            <dd>
              <a href={writeHash("session", [row.session])}>{row.session}</a>
            </dd>
          </div>
        )}
      </dl>
      {row.message && (
        <p class="note tone-bad">
          <strong>{row.failure}</strong> {row.message}
        </p>
      )}
      {row.called_tools.length > 0 && (
        <div class="preview-part">
          <h3>Called</h3>
          {row.called_tools.map((tool, index) => (
            <p key={index} class="mono">
              <ToolName tool={tool} />
            </p>
          ))}
        </div>
      )}
      {row.losses.length > 0 && (
        <div class="preview-part">
          <h3>{formatCountOf(row.loss_count, "loss", "losses")}</h3>
          <p class="chips">
            {row.losses.map((code) => (
              <Badge key={code} tone="warn">
                {code}
              </Badge>
            ))}
          </p>
        </div>
      )}
      {output && (
        <div class="preview-part stretched">
          <h3>Answer</h3>
          <div class="answer-text" ref={end} tabIndex={0} role="group" aria-label="Answer">
            {output.reasoning && <p class="muted">{output.reasoning}</p>}
            <p>
              {output.text}
              {row.state === "running" && <span class="caret" aria-hidden="true" />}
            </p>
          </div>
        </div>
      )}
    </aside>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  if (!value) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

const FIRST_REQUEST = `{
  "model": "loopback",
  "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
  "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
}`;

/** For a newcomer: what to do to see something here. */
function FirstSteps() {
  const key = gateway.value?.needs_client_key ? ` -H "${KEY_HEADER}: $${KEY_VARIABLE}"` : "";
  const curl = `curl ${location.origin}/v1/chat/completions${key} -d '${FIRST_REQUEST}'`;
  return (
    <EmptyState title="No exchanges yet">
      <p>
        Every request through this gateway appears here as it happens, with what the client sent and what the provider got.
        {connection.value === "open" && " Send one:"}
      </p>
      <CodeBlock text={curl} label="A first request" />
      <p class="muted">
        Or start an agent through it, such as <code>toolwire run claude</code>. <a href={writeHash("connect")}>Connect</a> has a snippet for each SDK and agent, <a href={writeHash("try")}>Try</a> sends requests from
        here.
      </p>
    </EmptyState>
  );
}
