import { useState } from "preact/hooks";
import type { SessionList, SessionRow } from "../api";
import { formatCost, formatCount, formatMoment, formatPercent, formatShort } from "../core/format";
import { rows } from "../gateway";
import { useKeys } from "../parts/keys";
import { useResource } from "../parts/resource";
import { Badge, Choice, EmptyState, ErrorNote } from "../parts/small";
import { writeHash } from "../router";

export const SOURCES: Record<SessionRow["source"], string> = {
  previous_response_id: "linked by previous_response_id",
  conversation: "linked by conversation",
  header: "linked by the agent's session header",
  prefix: "linked by the same beginning of their messages",
};

/** Changes with every exchange that ends: then a session may have another turn. */
export function endedCount(): number {
  return rows.value.reduce((count, row) => count + (row.state === "running" ? 0 : 1), 0);
}

export function Sessions() {
  const { data, error, reload } = useResource<SessionList>("sessions", endedCount());
  const [isComplete, setComplete] = useState(false);
  const all = data?.sessions ?? [];
  const conversations = all.filter((session) => session.turns > 1);
  // A single request is in the list of exchanges; here it would hide the conversations.
  const shown = isComplete || !conversations.length ? all : conversations;
  useKeys({ j: () => moveFocus(1), k: () => moveFocus(-1), ArrowDown: () => moveFocus(1), ArrowUp: () => moveFocus(-1) });
  return (
    <div class="page">
      <div class="title-line">
        <h1>Sessions</h1>
        {conversations.length > 0 && conversations.length < all.length && (
          <Choice
            label="Show"
            options={[
              { value: "conversations", title: `${conversations.length} with several turns` },
              { value: "all", title: `All ${all.length}` },
            ]}
            value={isComplete ? "all" : "conversations"}
            onChange={(value) => setComplete(value === "all")}
          />
        )}
      </div>
      {error && <ErrorNote error={error} onRetry={reload} />}
      {data?.sessions.length === 0 && (
        <EmptyState title="No sessions yet">
          <p>
            The turns of a conversation are shown here together, with the tokens that came from the provider's cache, and the place where a
            cached prefix broke. A session begins with the second request of a conversation: start an agent with <code>toolwire run</code>.
          </p>
        </EmptyState>
      )}
      {shown.length > 0 && (
        <ol class="session-list">
          {shown.map((session) => (
            <li key={session.id}>
              <a class="session-row" href={writeHash("session", [session.id])}>
                <span class="session-title">{session.title || session.id}</span>
                <span class="session-facts muted">
                  {[formatMoment(session.last_at), session.agent || "unknown client", session.models.join(", "), session.turns > 1 && SOURCES[session.source]].filter(Boolean).join(" · ")}
                </span>
                <span class="session-numbers">
                  <span>
                    <strong>{formatCount(session.turns)}</strong> {session.turns === 1 ? "turn" : "turns"}
                  </span>
                  <span>
                    <strong>{formatShort(session.tokens.input ?? 0)}</strong> in
                  </span>
                  <span>
                    <strong>{formatPercent(session.tokens.cache_read ?? 0, session.tokens.input ?? 0) || "0 %"}</strong> cached
                  </span>
                  <span>
                    <strong>{formatShort(session.tokens.output ?? 0)}</strong> out
                  </span>
                  {session.cost && (
                    <span>
                      {session.cost.cost_usd === null ? "cost " : ""}
                      <strong>{formatCost(session.cost)}</strong>
                    </span>
                  )}
                  {session.broken_prefixes > 0 && (
                    <Badge tone="warn">
                      {session.broken_prefixes} {session.broken_prefixes === 1 ? "break" : "breaks"}
                    </Badge>
                  )}
                </span>
              </a>
            </li>
          ))}
        </ol>
      )}
    </div>
  );
}

function moveFocus(step: number): void {
  const links = [...document.querySelectorAll<HTMLElement>(".session-row")];
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
}
