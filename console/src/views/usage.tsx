import type { ComponentChildren } from "preact";
import { useMemo, useRef } from "preact/hooks";
import type { RequestReport, RequestRow, UsageReport, UsageRow } from "../api";
import {
  ANSWERED,
  drawLines,
  drawRequests,
  GROUPS,
  isDuration,
  isRequestMeasure,
  REQUEST_SPANS,
  USED,
  USED_SPANS,
  type Group,
  type Measure,
  type RequestMeasure,
  type Span,
  type UsedMeasure,
} from "../core/usage";
import { formatCount, formatCountOf, formatDollars, formatMoment, formatMs, formatPercent, formatShort, showInvisible, UNKNOWN } from "../core/format";
import { gateway } from "../gateway";
import { CacheCauses, Limits } from "../parts/limits";
import { Plot } from "../parts/plot";
import { useResource, type Resource } from "../parts/resource";
import { Choice, EmptyState, ErrorNote } from "../parts/small";
import { goTo, writeHash } from "../router";
import type { ViewProps } from "./index";
import { endedCount } from "./sessions";

/** What was used over time, how requests were answered, and what is left of limits. */
export function Usage({ query }: ViewProps) {
  const group = GROUPS.find((name) => name === query.get("by")) ?? "model";
  const shown: Measure = [...USED, ...ANSWERED].find(({ value }) => value === query.get("show"))?.value ?? "cost";
  const spans = isRequestMeasure(shown) ? REQUEST_SPANS : USED_SPANS;
  const span = spans.find(({ value }) => value === query.get("since")) ?? spans[1]!;
  const only = query.getAll("only");
  const change = (name: string, ...values: string[]): void => {
    const next = new URLSearchParams(query);
    next.delete(name);
    for (const value of values) next.append(name, value);
    goTo(writeHash("usage", [], next), { replace: true });
  };
  const filters = only.map((value) => `&only=${encodeURIComponent(value)}`).join("");
  const choose = (name: string): void => change("only", ...new Set([...only, `${group}=${name}`]));
  const parts = { group, span, filters, choose };
  return (
    <div class="page usage">
      <h1>Usage</h1>
      <div class="usage-bar">
        <Choice label="What was used" options={USED} value={shown} onChange={(value) => change("show", value)} />
        <Choice label="How requests were answered" options={ANSWERED} value={shown} onChange={(value) => change("show", value)} />
        <Choice label="Time" options={spans} value={span.value} onChange={(value) => change("since", value)} />
        <Choice label="By" options={GROUPS.map((name) => ({ value: name, title: name[0]!.toUpperCase() + name.slice(1) }))} value={group} onChange={(value) => change("by", value)} />
        {only.map((value) => (
          <button key={value} type="button" class="button" onClick={() => change("only", ...only.filter((one) => one !== value))}>
            {showInvisible(value)} <span aria-hidden="true">×</span>
            <span class="hidden">: remove this filter</span>
          </button>
        ))}
      </div>
      {isRequestMeasure(shown) ? <Answered {...parts} shown={shown} /> : <Used {...parts} shown={shown} />}
      <Limits />
    </div>
  );
}

interface PartProps<M extends Measure> {
  group: Group;
  span: Span;
  shown: M;
  /** As a part of a query. */
  filters: string;
  choose: (name: string) => void;
}

/** While many are answered, the gateway is not asked again after each of them. */
function usageVersion(): number {
  return Math.floor(endedCount() / 20);
}

/** The answer before, while the next one is on its way: the page does not jump. */
function useKept<T>({ data, error, reload }: Resource<T>): Resource<T> {
  const kept = useRef<T | null>(null);
  if (data || error) kept.current = data;
  return { data: kept.current, error, reload };
}

function Used({ group, span, shown, filters, choose }: PartProps<UsedMeasure>) {
  const version = usageVersion();
  const over = useKept(useResource<UsageReport>(`usage?by=${span.step},${group}&since=${span.value}${filters}`, version));
  const sums = useKept(useResource<UsageReport>(`usage?by=${group}&since=${span.value}${filters}`, version));
  const isOf = over.data?.by[1] === group && over.data.by[0] === span.step && sums.data?.by[0] === group;
  const lines = useMemo(() => (isOf && over.data ? drawLines(over.data, group, span.step, shown) : null), [isOf, over.data, group, span, shown]);
  const error = over.error ?? sums.error;
  if (error) return <ErrorNote error={error} onRetry={() => (over.reload(), sums.reload())} />;
  if (!lines || !sums.data) return <p class="loading">Loading…</p>;
  if (!sums.data.rows.length) {
    return (
      <EmptyState title="Nothing was used in this time">
        <p>Calls of providers appear here within seconds. The embedded model costs nothing and is not counted.</p>
      </EmptyState>
    );
  }
  const { rows, total } = sums.data;
  return (
    <>
      <Plot lines={lines} label={`${titleOf(shown)} by ${group}; the table below has the sums`} format={(value) => formatMeasure(shown, value)} />
      <Table group={group} titles={["Calls", "Input", "Cached", "Output", "Cost"]} rows={rows} nameOf={(row) => row[group]} total={total} cells={usageCells} choose={choose} />
      {total.unpriced_calls > 0 && <p class="muted">The cost of {formatCountOf(total.unpriced_calls, "call")} is not known, and not in the sums.</p>}
    </>
  );
}

function Answered({ group, span, shown, filters, choose }: PartProps<RequestMeasure>) {
  const { data, error, reload } = useKept(useResource<RequestReport>(`requests?by=${group}&step=${span.step}&since=${span.value}${filters}`, usageVersion()));
  const report = data?.by === group ? data : null;
  const lines = useMemo(() => report && drawRequests(report, shown), [report, shown]);
  if (error) return <ErrorNote error={error} onRetry={reload} />;
  if (!report || !lines) return <p class="loading">Loading…</p>;
  const { sums, total, causes } = report;
  const whose = `Requests of this gateway${gateway.value?.has_replicas ? ", not of its replicas," : ""} since ${formatMoment(report.kept_since)}: a restart forgets them.`;
  if (!sums.length) {
    return (
      <EmptyState title="Nothing was asked in this time">
        <p>{whose}</p>
      </EmptyState>
    );
  }
  return (
    <>
      <Plot lines={lines} label={`${titleOf(shown)} by ${group}; the table below has the sums`} format={(value) => formatMeasure(shown, value)} />
      <Table group={group} titles={REQUEST_TITLES} rows={sums} nameOf={(row) => row.name} total={total} cells={requestCells} choose={choose} />
      <p class="muted">{whose} Times are of those that did not fail: half of them took at most p50, all but one in twenty at most p95.</p>
      <CacheCauses causes={causes} total={total} />
    </>
  );
}

function titleOf(name: Measure): string {
  return [...USED, ...ANSWERED].find(({ value }) => value === name)!.title;
}

function formatMeasure(name: Measure, value: number): string {
  if (isDuration(name)) return formatMs(value);
  return name === "cost" ? formatDollars(value) : name === "cached" ? `${Math.round(value)} %` : formatShort(Math.round(100 * value) / 100);
}

interface TableProps<Row> {
  group: Group;
  titles: readonly string[];
  rows: readonly Row[];
  nameOf: (row: Row) => string;
  total: Row;
  cells: (row: Row) => ComponentChildren[];
  choose: (name: string) => void;
}

function Table<Row>({ group, titles, rows, nameOf, total, cells, choose }: TableProps<Row>) {
  return (
    <div class="usage-table" role="region" aria-label="Sums" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">{group[0]!.toUpperCase() + group.slice(1)}</th>
            {titles.map((title) => (
              <th key={title} scope="col" class="number">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={nameOf(row)}>
              <th scope="row">
                <button type="button" class="button quiet" title="Only these" onClick={() => choose(nameOf(row))}>
                  {showInvisible(nameOf(row)) || "–"}
                </button>
              </th>
              <Cells texts={cells(row)} />
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">Total</th>
            <Cells texts={cells(total)} />
          </tr>
        </tfoot>
      </table>
    </div>
  );
}

function Cells({ texts }: { texts: ComponentChildren[] }) {
  return (
    <>
      {texts.map((text, index) => (
        <td key={index} class="number">
          {text}
        </td>
      ))}
    </>
  );
}

function usageCells(row: UsageRow): ComponentChildren[] {
  const cost = row.cost_usd == null ? UNKNOWN : formatDollars(Number(row.cost_usd));
  return [formatCount(row.calls), formatCount(row.input_tokens), formatPercent(row.cache_read_tokens, row.input_tokens) || "–", formatCount(row.output_tokens), cost];
}

const REQUEST_TITLES = ["Requests", "Failed", "Left", "Retries", "p50", "p95", "First byte", "Cache misses", "Their cost"];

function requestCells(row: RequestRow): ComponentChildren[] {
  const time = (ms: number | null): string => (ms === null ? "–" : formatMs(ms));
  const failed = row.failed ? <span class="tone-text-bad">{`${formatCount(row.failed)} (${formatPercent(row.failed, row.requests)})`}</span> : "0";
  const cost = !row.cache_missed_turns ? "–" : row.cache_missed_cost_usd === null ? UNKNOWN : formatDollars(row.cache_missed_cost_usd);
  return [formatCount(row.requests), failed, formatCount(row.left), formatCount(row.retries), time(row.duration_p50_ms), time(row.duration_p95_ms), time(row.first_byte_p50_ms), formatShort(row.cache_missed_tokens), cost];
}
