import { useMemo } from "preact/hooks";
import type { UsageReport, UsageRow } from "../api";
import { drawLines, GROUPS, MEASURES, type Group, type Measure, type Step } from "../core/usage";
import { formatCount, formatCountOf, formatDollars, formatPercent, formatShort, showInvisible } from "../core/format";
import { Plot } from "../parts/plot";
import { useResource } from "../parts/resource";
import { Choice, EmptyState, ErrorNote } from "../parts/small";
import { goTo, writeHash } from "../router";
import type { ViewProps } from "./index";
import { endedCount } from "./sessions";

const SPANS: readonly { value: string; title: string; step: Step }[] = [
  { value: "24h", title: "Day", step: "hour" },
  { value: "7d", title: "Week", step: "hour" },
  { value: "30d", title: "30 days", step: "day" },
  { value: "365d", title: "Year", step: "day" },
];

/** What was used over time, from the ledger: of all gateways that share the store. */
export function Usage({ query }: ViewProps) {
  const span = SPANS.find(({ value }) => value === query.get("since")) ?? SPANS[1]!;
  const group = GROUPS.find((name) => name === query.get("by")) ?? "model";
  const shown = MEASURES.find(({ value }) => value === query.get("show")) ?? MEASURES[0]!;
  const only = query.getAll("only");
  const change = (name: string, value: string): void => {
    const next = new URLSearchParams(query);
    next.set(name, value);
    goTo(writeHash("usage", [], next), { replace: true });
  };
  const setOnly = (values: readonly string[]): void => {
    const next = new URLSearchParams(query);
    next.delete("only");
    for (const value of values) next.append("only", value);
    goTo(writeHash("usage", [], next), { replace: true });
  };
  const filters = only.map((value) => `&only=${encodeURIComponent(value)}`).join("");
  const version = Math.floor(endedCount() / 20); // while many are answered, it is not asked for after each of them
  const over = useResource<UsageReport>(`usage?by=${span.step},${group}&since=${span.value}${filters}`, version);
  const sums = useResource<UsageReport>(`usage?by=${group}&since=${span.value}${filters}`, version);
  const lines = useMemo(() => over.data && drawLines(over.data.rows, group, span.step, shown.value), [over.data, group, span, shown]);
  const error = over.error ?? sums.error;
  return (
    <div class="page usage">
      <h1>Usage</h1>
      <div class="usage-bar">
        <Choice label="Time" options={SPANS} value={span.value} onChange={(value) => change("since", value)} />
        <Choice label="What" options={MEASURES} value={shown.value} onChange={(value) => change("show", value)} />
        <Choice label="By" options={GROUPS.map((name) => ({ value: name, title: name[0]!.toUpperCase() + name.slice(1) }))} value={group} onChange={(value) => change("by", value)} />
        {only.map((value) => (
          <button key={value} type="button" class="button" onClick={() => setOnly(only.filter((one) => one !== value))}>
            {showInvisible(value)} <span aria-hidden="true">×</span>
            <span class="hidden">: remove this filter</span>
          </button>
        ))}
      </div>
      {error ? (
        <ErrorNote error={error} onRetry={() => (over.reload(), sums.reload())} />
      ) : !lines || !sums.data ? (
        <p class="loading">Loading…</p>
      ) : !sums.data.rows.length ? (
        <EmptyState title="Nothing was used in this time">
          <p>Calls of providers appear here within seconds. The embedded model costs nothing and is not counted.</p>
        </EmptyState>
      ) : (
        <>
          <Plot lines={lines} label={`${shown.title} by ${group}; the table below has the sums`} format={(value) => formatMeasure(shown.value, value)} />
          <Table report={sums.data} group={group} onChoose={(row) => setOnly([...new Set([...only, `${group}=${row[group]}`])])} />
        </>
      )}
    </div>
  );
}

function formatMeasure(name: Measure, value: number): string {
  return name === "cost" ? formatDollars(value) : name === "cached" ? `${Math.round(value)} %` : formatShort(value);
}

interface TableProps {
  report: UsageReport;
  group: Group;
  onChoose: (row: UsageRow) => void;
}

function Table({ report, group, onChoose }: TableProps) {
  return (
    <div class="usage-table" role="region" aria-label="Sums" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">{group}</th>
            {["Calls", "Input", "Cached", "Output", "Cost"].map((title) => (
              <th key={title} scope="col" class="number">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {report.rows.map((row) => (
            <tr key={row[group]}>
              <th scope="row">
                <button type="button" class="button quiet" title="Only these" onClick={() => onChoose(row)}>
                  {showInvisible(row[group]) || "–"}
                </button>
              </th>
              <Cells row={row} />
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">Total</th>
            <Cells row={report.total} />
          </tr>
        </tfoot>
      </table>
      {report.total.unpriced_calls > 0 && <p class="muted">The cost of {formatCountOf(report.total.unpriced_calls, "call")} is not known, and not in the sums.</p>}
    </div>
  );
}

function Cells({ row }: { row: UsageRow }) {
  const cost = row.cost_usd == null ? "unknown" : formatDollars(Number(row.cost_usd));
  const cells = [formatCount(row.calls), formatCount(row.input_tokens), formatPercent(row.cache_read_tokens, row.input_tokens) || "–", formatCount(row.output_tokens), cost];
  return (
    <>
      {cells.map((text, index) => (
        <td key={index} class="number">
          {text}
        </td>
      ))}
    </>
  );
}
