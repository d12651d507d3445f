import type { CallCost, ExchangeDetail, Tokens } from "../../api";
import { formatCost, formatCount, formatDollars } from "../../core/format";
import { CacheNote } from "../../parts/cache_note";

/** What each call of a provider has used and cost, and what the prompt cache gave. */
export function Costs({ detail: { call_costs: calls, cache, row } }: { detail: ExchangeDetail }) {
  return (
    <section class="panel" aria-label="Cost">
      <header class="panel-head">
        <h2>Cost</h2>
        <span class="muted">{formatCost(row.cost)}</span>
      </header>
      {calls.length === 0 ? (
        <p class="panel-empty">{row.state === "running" ? "No call to a provider has ended yet" : "No call to a provider was counted"}</p>
      ) : (
        <CostTable calls={calls} />
      )}
      <div class="cost-notes muted">
        {calls.length > 0 && !row.cost && (
          <p>
            Prices are not looked up: <code>enabled = false</code> in <code>[costs]</code>.
          </p>
        )}
        {calls.some((call) => !call.tokens) && <p>A provider did not say what its call has used.</p>}
        {calls.some((call) => call.tokens && call.cost?.cost_usd === null) && (
          <p>
            A price is not known: set it in <code>[models.NAME.facts.prices]</code>.
          </p>
        )}
        {calls.some((call) => call.tokens?.is_estimated) && <p>~ is an estimate: the stream was cut, or its tokens were not counted.</p>}
        {cache && <CacheNote cache={cache} />}
      </div>
    </section>
  );
}

const COLUMNS: readonly [string, keyof Tokens][] = [
  ["Input", "input"],
  ["Cached", "cache_read"],
  ["Written", "cache_write"],
  ["Output", "output"],
  ["Reasoning", "reasoning"],
];

function CostTable({ calls }: { calls: readonly CallCost[] }) {
  const hasReports = calls.some((call) => call.cost?.reported_cost_usd != null);
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Tokens and cost of each call">
      <table class="cost-table">
        <thead>
          <tr>
            <th scope="col">Call</th>
            <th scope="col">Cost</th>
            {hasReports && <th scope="col">Reported</th>}
            {COLUMNS.map(([title]) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {calls.map((call, index) => (
            <tr key={index}>
              <th scope="row">
                <strong>{call.provider}</strong> {call.account && <span class="muted">account {call.account}</span>}
                <span class="cost-model muted">{call.model}</span>
              </th>
              <td>{formatCost(call.cost) || "–"}</td>
              {hasReports && <td>{call.cost?.reported_cost_usd == null ? "–" : formatDollars(call.cost.reported_cost_usd)}</td>}
              {COLUMNS.map(([title, name]) => (
                <td key={title}>{formatTokenCount(call.tokens, name)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function formatTokenCount(tokens: Tokens | null, name: keyof Tokens): string {
  const count = tokens?.[name];
  if (typeof count !== "number") return "–";
  const isEstimate = tokens?.is_estimated && (name === "input" || name === "output");
  return `${isEstimate ? "~" : ""}${formatCount(count)}`;
}
