import type { PrefixBreak, SessionDetail, SessionTurn, Tokens } from "../api";
import { formatBytes, formatCount, formatCountOf, formatMoment, formatPercent, formatShort, formatTime, showInvisible } from "../core/format";
import { ModelName, StatusBadge, ToolName } from "../parts/exchange_parts";
import { useKeys } from "../parts/keys";
import { useResource } from "../parts/resource";
import { ErrorNote } from "../parts/small";
import { goTo, writeHash } from "../router";
import type { ViewProps } from "./index";
import { endedCount, SOURCES } from "./sessions";

export function Session({ args }: ViewProps) {
  const { data, error, reload } = useResource<SessionDetail>(`sessions/${encodeURIComponent(args[0] ?? "")}`, endedCount());
  useKeys({ Escape: () => goTo(writeHash("sessions")) });
  if (!data) {
    return (
      <div class="page">
        <h1 class="hidden">Session</h1>
        {error ? <ErrorNote error={error} onRetry={reload} /> : <p class="loading">Loading…</p>}
      </div>
    );
  }
  const { session, turns } = data;
  const most = Math.max(1, ...turns.map(({ exchange }) => (exchange.tokens?.input ?? 0) + (exchange.tokens?.output ?? 0)));
  return (
    <div class="page">
      <nav class="crumbs" aria-label="Where you are">
        <a href={writeHash("sessions")}>Sessions</a>
      </nav>
      <h1>{session.title || session.id}</h1>
      <p class="muted">
        {formatCountOf(session.turns, "turn")} · {formatMoment(session.started_at)} to {formatTime(session.last_at)} ·{" "}
        {session.agent || "unknown client"} · {SOURCES[session.source]}
      </p>
      <dl class="figures">
        <Figure name="Input tokens" value={formatCount(session.tokens.input ?? 0)} />
        <Figure name="From the cache" value={formatPercent(session.tokens.cache_read ?? 0, session.tokens.input ?? 0) || "–"} />
        <Figure name="Output tokens" value={formatCount(session.tokens.output ?? 0)} />
        <Figure name="Broken prefixes" value={String(session.broken_prefixes)} />
        <Figure name={session.models.length === 1 ? "Model" : "Models"} value={session.models.join(", ")} />
      </dl>
      <p class="legend" aria-hidden="true">
        <span class="swatch bar-cached" /> from the cache <span class="swatch bar-input" /> new input <span class="swatch bar-output" /> output
      </p>
      <ol class="turns">
        {turns.map((turn, index) => (
          <Turn key={turn.exchange.id} turn={turn} number={index + 1} most={most} />
        ))}
      </ol>
    </div>
  );
}

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Turn({ turn, number, most }: { turn: SessionTurn; number: number; most: number }) {
  const { exchange, prefix_break: broken } = turn;
  return (
    <li class={`turn${broken ? " broken" : ""}`}>
      <div class="turn-line">
        <span class="turn-number muted">{number}</span>
        <a href={writeHash("exchange", [exchange.id])} class="mono">
          {exchange.id}
        </a>
        <span class="muted">{formatTime(exchange.started_at)}</span>
        <StatusBadge row={exchange} />
        <span class="turn-model">
          <ModelName row={exchange} />
        </span>
        <span class="turn-tools">
          {exchange.called_tools.map((tool, index) => (
            <ToolName key={index} tool={tool} />
          ))}
        </span>
        <TokenBar tokens={exchange.tokens} most={most} />
      </div>
      {broken && <BrokenPrefix broken={broken} prefixBytes={turn.prefix_bytes} />}
    </li>
  );
}

function TokenBar({ tokens, most }: { tokens: Tokens | null; most: number }) {
  const input = tokens?.input ?? 0;
  const cached = Math.min(input, tokens?.cache_read ?? 0);
  const output = tokens?.output ?? 0;
  const width = (count: number) => ({ width: `${(100 * count) / most}%` });
  return (
    <span class="token-bar">
      <span class="bar" aria-hidden="true">
        <span class="bar-cached" style={width(cached)} />
        <span class="bar-input" style={width(input - cached)} />
        <span class="bar-output" style={width(output)} />
      </span>
      <span class="bar-text">
        {tokens ? `${formatShort(input)} in, ${formatPercent(cached, input) || "0 %"} cached, ${formatShort(output)} out` : "no tokens reported"}
      </span>
    </span>
  );
}

function BrokenPrefix({ broken, prefixBytes }: { broken: PrefixBreak; prefixBytes: number }) {
  return (
    <div class="prefix-break">
      <p>
        <strong>The cached prefix broke at</strong> <code>{broken.place || "/"}</code>
        <span class="muted">
          {" "}
          after {formatBytes(broken.same_bytes)} of {formatBytes(prefixBytes)} that stayed the same
        </span>
      </p>
      <p>{broken.cause}</p>
      <div class="excerpts mono">
        <Excerpt name="before" text={broken.before} at={broken.difference} kind="removed" />
        <Excerpt name="now" text={broken.after} at={broken.difference} kind="added" />
      </div>
    </div>
  );
}

/** A text with the first character that differs marked in its place. `at` counts characters, not UTF-16 units. */
function Excerpt({ name, text, at, kind }: { name: string; text: string; at: number; kind: "removed" | "added" }) {
  const chars = [...text];
  const char = chars[at];
  return (
    <div class={`excerpt ${kind}`}>
      <span class="excerpt-name">{name}</span>
      <span class="excerpt-text" tabIndex={0} role="group" aria-label={`Request ${name}`}>
        {showInvisible(chars.slice(0, at).join(""))}
        <mark>{char === undefined ? "end" : char === "\n" ? "\\n" : showInvisible(char)}</mark>
        <span class="rest">{showInvisible(chars.slice(at + 1).join(""))}</span>
      </span>
    </div>
  );
}
