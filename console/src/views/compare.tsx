import { useMemo } from "preact/hooks";
import type { ExchangeDetail } from "../api";
import { formatCost, formatCount, formatMoment, formatMs } from "../core/format";
import { DiffView } from "../parts/diff_view";
import { useKeys } from "../parts/keys";
import { useExchange } from "../parts/resource";
import { ErrorNote, Tabs } from "../parts/small";
import { goTo, writeHash } from "../router";
import type { ViewProps } from "./index";

const PARTS: Readonly<Record<string, { title: string; text: (detail: ExchangeDetail) => string }>> = {
  request: { title: "Client's request", text: (detail) => detail.client.request.text },
  upstream: { title: "Request to the provider", text: (detail) => detail.upstream_calls.at(-1)?.request.text ?? "" },
  answer: { title: "Answer", text: answerText },
  raw: { title: "Answer of the provider", text: (detail) => detail.upstream_calls.at(-1)?.response.text ?? "" },
  tools: { title: "Tools", text: (detail) => JSON.stringify(detail.tools.map(({ client_name, provider_name, state, reasons }) => ({ client_name, provider_name, state, reasons }))) },
};

/** An answer in a form that does not depend on its protocol, nor on being a stream. */
export function answerText({ output, calls, row }: ExchangeDetail): string {
  return JSON.stringify({
    status: row.status,
    reasoning: output.reasoning,
    text: output.text,
    calls: calls
      .filter((pair) => pair.is_in_answer)
      .map(({ client, provider }) => client ?? provider)
      .map((side) => ({ name: side?.name, arguments: readArguments(side?.arguments ?? "") })),
  });
}

function readArguments(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function Compare({ args }: ViewProps) {
  const [leftId = "", rightId = "", part = "request"] = args;
  const left = useExchange(leftId);
  const right = useExchange(rightId);
  useKeys({ Escape: () => goTo(writeHash("exchange", [leftId])) });
  const chosen = PARTS[part] ? part : "request";
  const texts = useMemo(
    () => left.data && right.data && { left: PARTS[chosen]!.text(left.data), right: PARTS[chosen]!.text(right.data) },
    [left.data, right.data, chosen],
  );
  return (
    <div class="exchange compare">
      <header class="exchange-head">
        <nav class="crumbs" aria-label="Where you are">
          <a href={writeHash("exchange", [leftId])} class="mono">
            {leftId}
          </a>
          <span aria-hidden="true">/</span>
          <span aria-current="page">compare</span>
        </nav>
        <div class="title-line">
          <h1>
            <a class="mono" href={writeHash("exchange", [leftId])}>
              {leftId}
            </a>{" "}
            and{" "}
            <a class="mono" href={writeHash("exchange", [rightId])}>
              {rightId}
            </a>
          </h1>
          <div class="actions">
            <a class="button" href={writeHash("compare", [rightId, leftId, chosen])}>
              Swap
            </a>
          </div>
        </div>
        {left.error && <ErrorNote error={{ ...left.error, message: `${leftId}: ${left.error.message}` }} onRetry={left.reload} />}
        {right.error && <ErrorNote error={{ ...right.error, message: `${rightId}: ${right.error.message}` }} onRetry={right.reload} />}
        {left.data && right.data && <Facts left={left.data} right={right.data} />}
      </header>
      <Tabs
        label="Parts to compare"
        tabs={Object.entries(PARTS).map(([name, { title }]) => ({ name, title }))}
        chosen={chosen}
        onChoose={(name) => goTo(writeHash("compare", [leftId, rightId, name]), { replace: true })}
      />
      <div class="exchange-content" role="tabpanel" id="panel" aria-labelledby={`tab-${chosen}`} tabIndex={-1}>
        {texts && (
          <DiffView key={chosen} title={PARTS[chosen]!.title} left={texts.left} right={texts.right} leftTitle={leftId} rightTitle={rightId} />
        )}
        {!texts && !left.error && !right.error && <p class="loading">Loading…</p>}
      </div>
    </div>
  );
}

const FACTS: readonly [string, (detail: ExchangeDetail) => string][] = [
  ["Time", ({ row }) => formatMoment(row.started_at)],
  ["Client", ({ row }) => row.client_protocol],
  ["Provider", ({ row }) => row.provider],
  ["Model", ({ row }) => row.model || row.requested_model],
  ["Status", ({ row }) => String(row.status || row.state)],
  ["First byte", ({ row }) => (row.first_byte_ms === null ? "–" : formatMs(row.first_byte_ms))],
  ["Duration", ({ row }) => (row.duration_ms === null ? "–" : formatMs(row.duration_ms))],
  ["Tokens in", ({ row }) => (row.tokens?.input == null ? "–" : formatCount(row.tokens.input))],
  ["Tokens out", ({ row }) => (row.tokens?.output == null ? "–" : formatCount(row.tokens.output))],
  ["Cost", ({ row }) => formatCost(row.cost) || "–"],
  ["Losses", ({ row }) => String(row.loss_count)],
];

export function Facts({ left, right }: { left: ExchangeDetail; right: ExchangeDetail }) {
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Facts of both exchanges">
      <table class="facts-table">
        <thead>
          <tr>
            <td />
            {FACTS.map(([name]) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {[left, right].map((detail, side) => (
            <tr key={side}>
              <th scope="row" class="mono">
                {detail.row.id}
              </th>
              {FACTS.map(([name, value]) => (
                <td key={name} class={side === 1 && value(left) !== value(right) ? "differs" : ""}>
                  {value(detail)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
