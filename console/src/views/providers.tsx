import { useId, useState } from "preact/hooks";
import type { ProviderList, ProviderRow, RateLimit } from "../api";
import { postJson, RequestFailed } from "../client";
import { formatCount, formatCountOf, formatMoment, formatPercent, formatTime } from "../core/format";
import { useResource } from "../parts/resource";
import { Badge, CopyButton, ErrorNote, type Tone } from "../parts/small";
import { endedCount } from "./sessions";

/** What a provider said when it was asked. */
interface Check {
  isRunning: boolean;
  row: ProviderRow | null;
  problem: string;
}

const MAX_SHOWN = 200;

export function Providers() {
  const { data, error, reload } = useResource<ProviderList>("providers", endedCount());
  const [checks, setChecks] = useState<ReadonlyMap<string, Check>>(new Map());
  const set = (name: string, check: Check): void => setChecks((old) => new Map(old).set(name, check));
  const check = async (name: string): Promise<void> => {
    set(name, { isRunning: true, row: null, problem: "" });
    try {
      const row = await postJson<ProviderRow>(`providers/${encodeURIComponent(name)}/check`, {});
      set(name, { isRunning: false, row, problem: row.problem });
    } catch (failure) {
      set(name, { isRunning: false, row: null, problem: failure instanceof RequestFailed ? failure.message : String(failure) });
    }
  };
  const remote = data?.providers.filter((row) => !row.is_embedded) ?? [];
  const embedded = data?.providers.filter((row) => row.is_embedded) ?? [];
  return (
    <div class="page">
      <div class="title-line">
        <h1>Providers</h1>
        {remote.length > 1 && (
          <button type="button" class="button" onClick={() => remote.forEach((row) => void check(row.name))}>
            Check all
          </button>
        )}
        <button type="button" class="button" onClick={reload}>
          Refresh
        </button>
      </div>
      {error && <ErrorNote error={error} onRetry={reload} />}
      {data && remote.length === 0 && (
        <div class="note tone-neutral">
          <p>
            No provider is configured yet, so only the built-in models answer. Set a key such as <code>ANTHROPIC_API_KEY</code>, <code>OPENAI_API_KEY</code> or{" "}
            <code>GEMINI_API_KEY</code> and start the gateway again, or name a provider in <code>toolwire.toml</code>.
          </p>
        </div>
      )}
      <ul class="cards">
        {[...remote, ...embedded].map((row) => (
          <Provider key={row.name} row={row} check={checks.get(row.name) ?? null} onCheck={() => void check(row.name)} />
        ))}
      </ul>
    </div>
  );
}

const KEY_STATES: Record<ProviderRow["key"], readonly [Tone, string]> = {
  set: ["good", "key set"],
  missing: ["bad", "key missing"],
  from_client: ["neutral", "key from the client"],
  not_needed: ["neutral", "no key needed"],
};

function Provider({ row, check, onCheck }: { row: ProviderRow; check: Check | null; onCheck: () => void }) {
  const [tone, key] = KEY_STATES[row.key];
  const models = check?.row?.models ?? row.models;
  const problem = check?.isRunning ? "" : check?.problem || row.problem;
  const title = useId();
  return (
    <li class="panel card" aria-labelledby={title}>
      <header class="panel-head">
        <h2 id={title}>{row.name}</h2>
        {row.kind && row.kind !== row.name && <span class="muted">{row.kind}</span>}
        {row.is_embedded ? <Badge>built in</Badge> : <Badge tone={tone}>{key}</Badge>}
        {row.cooldowns.length > 0 && <Badge tone="warn">resting</Badge>}
        {check?.row && !problem && !row.is_embedded && <Badge tone="good">reachable</Badge>}
        <span class="grow" />
        {!row.is_embedded && (
          <button type="button" class="button quiet" disabled={check?.isRunning} onClick={onCheck} aria-label={`Check ${row.name}`}>
            {check?.isRunning ? "Checking…" : "Check"}
          </button>
        )}
      </header>
      <div class="card-body">
        {problem && (
          <p class="note tone-bad" role={check ? "alert" : undefined}>
            {problem}
          </p>
        )}
        <dl class="facts">
          <Fact name="Protocols">{row.protocols.join(", ")}</Fact>
          {row.address && (
            <Fact name="Address">
              <code>{row.address}</code>
            </Fact>
          )}
          {row.key_variable && (
            <Fact name="Key from">
              <code>{row.key_variable}</code>
            </Fact>
          )}
          <Fact name="Last answer">{row.last_at === null ? <span class="muted">none yet</span> : <LastOutcome row={row} at={row.last_at} />}</Fact>
          {row.cooldowns.map((one) => (
            <Fact key={one.model} name="Resting">
              {one.model || "all models"}, for {Math.ceil(one.seconds)} s more
            </Fact>
          ))}
        </dl>
        {row.rate_limits.length > 0 && (
          <ul class="limits" aria-label={`Limits of ${row.name}`}>
            {row.rate_limits.map((limit) => (
              <Limit key={limit.name} limit={limit} />
            ))}
          </ul>
        )}
        {models && <Models provider={row.name} models={models} />}
      </div>
    </li>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function LastOutcome({ row, at }: { row: ProviderRow; at: number }) {
  return (
    <>
      <Badge tone={row.last_outcome === "ok" ? "good" : "bad"}>{row.last_outcome}</Badge> <span class="muted">at {formatMoment(at)}</span>
    </>
  );
}

function Limit({ limit }: { limit: RateLimit }) {
  const { name, limit: most, remaining, resets_at: resets } = limit;
  const share = most && remaining !== null ? remaining / most : null;
  return (
    <li class="limit">
      <span>{name}</span>
      <span class="bar" aria-hidden="true">
        {share !== null && <span class={share < 0.1 ? "bar-low" : "bar-cached"} style={{ width: `${100 * Math.max(0, Math.min(1, share))}%` }} />}
      </span>
      <span class="bar-text">
        {remaining === null ? "?" : formatCount(remaining)}
        {most !== null && ` of ${formatCount(most)} left`}
        {most !== null && remaining !== null && ` (${formatPercent(remaining, most)})`}
        {resets !== null && `, resets ${resets * 1000 < Date.now() ? "since" : "at"} ${formatTime(resets)}`}
      </span>
    </li>
  );
}

function Models({ provider, models }: { provider: string; models: readonly string[] }) {
  const [query, setQuery] = useState("");
  const search = useId();
  const found = query ? models.filter((name) => name.toLowerCase().includes(query.toLowerCase())) : models;
  return (
    <details class="model-list" open={models.length <= 12}>
      <summary>{formatCountOf(models.length, "model")}</summary>
      {models.length > 12 && (
        <>
          <label class="hidden" for={search}>
            Search the models of {provider}
          </label>
          <input id={search} type="search" placeholder="Search" value={query} onInput={(event) => setQuery(event.currentTarget.value)} />
        </>
      )}
      <ul>
        {found.slice(0, MAX_SHOWN).map((name) => (
          <li key={name}>
            <code>{name}</code>
            <CopyButton text={name} class="button quiet" title={`Copy ${name}`} />
          </li>
        ))}
      </ul>
      {found.length > MAX_SHOWN && <p class="muted">and {formatCount(found.length - MAX_SHOWN)} more: search for them</p>}
      {found.length === 0 && <p class="muted">None has this in its name.</p>}
    </details>
  );
}
