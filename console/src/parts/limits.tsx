// What is used of limits, and what the prompt cache did not give.

import type { CacheCause, LimitReport, LimitRow, RequestRow } from "../api";
import { formatCount, formatCountOf, formatDollars, formatMs, formatPercent, showInvisible, UNKNOWN } from "../core/format";
import { writeHash } from "../router";
import { endedCount } from "../views/sessions";
import { useResource } from "./resource";
import { Badge, ErrorNote } from "./small";

/** Nothing where there are none. */
export function Limits() {
  const { data, error, reload } = useResource<LimitReport>("limits", Math.floor(endedCount() / 20));
  if (error) return <ErrorNote error={error} onRetry={reload} />;
  if (!data?.limits.length) return null;
  return (
    <section>
      <h2>Limits</h2>
      <div class="usage-table" role="region" aria-label="Limits" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">Limit</th>
              <th scope="col">For</th>
              <th scope="col">Used</th>
              <th scope="col" class="number">
                Of
              </th>
              <th scope="col" class="number">
                Opens in
              </th>
            </tr>
          </thead>
          <tbody>
            {data.limits.map((row) => (
              <Limit key={`${row.limit}/${row.amount}/${row.group}`} row={row} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Limit({ row }: { row: LimitRow }) {
  const used = row.used + row.reserved;
  const share = row.maximum > 0 ? used / row.maximum : 1;
  const format = row.amount.startsWith("dollars") ? formatDollars : formatCount;
  const tone = share >= 1 ? "bad" : share >= 0.8 ? "warn" : "plain";
  return (
    <tr>
      <th scope="row">
        {showInvisible(row.limit)} <span class="muted">{row.amount.replaceAll("_", " ")}</span> {row.is_soft && <Badge>only warns</Badge>}
      </th>
      <td>{showInvisible(row.group) || <span class="muted">all together</span>}</td>
      <td class={`limit-use tone-${tone}`}>
        <span class="limit-bar" aria-hidden="true">
          <span style={{ width: `${Math.min(100, 100 * share)}%` }} />
        </span>
        {format(row.used)} <span class="muted">({formatPercent(used, row.maximum) || "100 %"})</span>
        {row.reserved > 0 && <span class="muted"> with {format(row.reserved)} reserved</span>}
      </td>
      <td class="number">{format(row.maximum)}</td>
      <td class="number">{row.opens_after === null ? "–" : formatMs(row.opens_after * 1000)}</td>
    </tr>
  );
}

const CAUSES: Readonly<Record<string, string>> = {
  tools: "The tools changed",
  time: "The time is in the prompt",
  instructions: "The instructions changed",
  history: "The history was rewritten",
  model: "Another model was asked",
  account: "Another account was asked",
  expired: "The prompt before was too long ago",
  unknown: "Not known",
};

/** Where the prompt cache could have given tokens, and did not. */
export function CacheCauses({ causes, total }: { causes: readonly CacheCause[]; total: RequestRow }) {
  if (!causes.length) return null;
  const cost = (amount: number | null): string => (amount === null ? UNKNOWN : formatDollars(amount));
  return (
    <section>
      <h2>Where the prompt cache broke</h2>
      <p class="muted">
        {formatPercent(total.cache_missed_tokens, total.cache_expected_tokens) || "0 %"} of {formatCount(total.cache_expected_tokens)} expected tokens were not read. The{" "}
        <a href={writeHash("sessions")}>sessions</a> have the place of each.
      </p>
      <div class="usage-table" role="region" aria-label="Causes" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">Cause</th>
              {["Turns", "Tokens", "Cost more"].map((title) => (
                <th key={title} scope="col" class="number">
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {causes.map((row) => (
              <tr key={row.cause}>
                <th scope="row">{CAUSES[row.cause] ?? row.cause}</th>
                <td class="number">{formatCount(row.turns)}</td>
                <td class="number">{formatCount(row.missed_tokens)}</td>
                <td class="number" title={row.unpriced_turns ? `not known of ${formatCountOf(row.unpriced_turns, "turn")}` : undefined}>
                  {cost(row.extra_cost_usd)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
