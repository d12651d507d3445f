import type { CacheUsage, PrefixBreak, SessionDetail, SessionTurn, Tokens } from "../api";
import {
  formatBytes,
  formatCost,
  formatCount,
  formatCountOf,
  formatDollars,
  formatMoment,
  formatPercent,
  formatShort,
  formatTime,
  showInvisible,
  UNKNOWN,
} from "../core/format";
import { CacheNote } from "../parts/cache_note";
import { ModelName, StatusBadge, ToolName } from "../parts/exchange_parts";
import { useKeys } from "../parts/keys";
import { useResource } from "../parts/resource";
import { ErrorNote } from "../parts/small";
import { goTo, writeHash } from "../router";
import type { ViewProps } from "./index";
import { endedCount, SOURCES } from "./sessions";

const LEGEND: readonly [string, string][] = [
  ["bar-cached", "from the cache"],
  ["bar-input", "new input"],
  ["bar-output", "output"],
  ["bar-expected", "expected from the cache"],
];

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
  const { cost, tokens, extra_cost_usd: extra } = session;
  const last = turns.at(-1)?.exchange;
  const read = turns.reduce((sum, { cache }) => sum + (cache?.read_tokens ?? 0), 0);
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
      <p>
        <a class="button primary" href={writeHash("exchange", [last?.id ?? "", "conversation"])}>
          Read the conversation
        </a>{" "}
        {last?.conversation && (
          <a class="button" href={writeHash("live", [], new URLSearchParams({ session: last.conversation }))}>
            Show its exchanges
          </a>
        )}
      </p>
      <dl class="figures">
        {cost && <Figure name="Cost" value={formatCost(cost)} />}
        {cost?.reported_cost_usd != null && <Figure name="As providers report it" value={formatDollars(cost.reported_cost_usd)} />}
        <Figure name="Input tokens" value={formatCount(tokens.input ?? 0)} />
        <Figure name="From the cache" value={formatPercent(tokens.cache_read ?? 0, tokens.input ?? 0) || "–"} />
        {tokens.cache_expected != null && <Figure name="Cached of expected" value={`${formatCount(read)} of ${formatCount(tokens.cache_expected)}`} />}
        <Figure name="Output tokens" value={formatCount(tokens.output ?? 0)} />
        <Figure name="Broken prefixes" value={String(session.broken_prefixes)} />
        {!!tokens.cache_missed && <Figure name="Cost of missed tokens" value={extra === null ? UNKNOWN : formatDollars(extra)} />}
        <Figure name={session.models.length === 1 ? "Model" : "Models"} value={session.models.join(", ")} />
      </dl>
      <p class="legend" aria-hidden="true">
        {LEGEND.map(([name, title]) => (
          <span key={name}>
            <span class={`swatch ${name}`} /> {title}
          </span>
        ))}
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
  const { exchange, prefix_break: broken, cache } = turn;
  const isMissed = broken !== null || (cache !== null && cache.missed_tokens > 0);
  return (
    <li class={`turn${isMissed ? " broken" : ""}`}>
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
        <TokenBar tokens={exchange.tokens} cache={cache} most={most} />
        <span class={`turn-cost number${exchange.cost?.cost_usd == null ? " muted" : ""}`}>{formatCost(exchange.cost)}</span>
      </div>
      {isMissed && (
        <div class="prefix-break">
          {broken && <BrokenPrefix broken={broken} prefixBytes={turn.prefix_bytes} />}
          {cache && <CacheNote cache={cache} hasPlace={broken !== null} />}
        </div>
      )}
    </li>
  );
}

function TokenBar({ tokens, cache, most }: { tokens: Tokens | null; cache: CacheUsage | null; most: number }) {
  const input = tokens?.input ?? 0;
  const cached = Math.min(input, tokens?.cache_read ?? 0);
  const output = tokens?.output ?? 0;
  const cachedText = cache
    ? `${formatShort(cache.read_tokens)} of ${formatShort(cache.expected_tokens)} expected cached`
    : `${formatPercent(cached, input) || "0 %"} cached`;
  const width = (count: number) => ({ width: `${(100 * count) / most}%` });
  return (
    <span class="token-bar">
      <span class="bar" aria-hidden="true">
        <span class="bar-cached" style={width(cached)} />
        <span class="bar-input" style={width(input - cached)} />
        <span class="bar-output" style={width(output)} />
        {cache && <span class="bar-expected" style={{ left: `${Math.min(100, (100 * cache.expected_tokens) / most)}%` }} />}
      </span>
      <span class="bar-text">
        {tokens ? `${formatShort(input)} in, ${cachedText}, ${formatShort(output)} out` : "no tokens reported"}
      </span>
    </span>
  );
}

function BrokenPrefix({ broken, prefixBytes }: { broken: PrefixBreak; prefixBytes: number }) {
  return (
    <>
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
    </>
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
