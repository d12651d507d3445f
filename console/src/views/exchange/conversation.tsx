import { useState } from "preact/hooks";
import { type Conversation as ConversationData, type ConversationPart, type ConversationSide, type ConversationTurn, type LossRow } from "../../api";
import { formatCount, formatCountOf, showInvisible } from "../../core/format";
import { prettyLines } from "../../core/json_lines";
import { parseJson } from "../../core/json_text";
import { useResource } from "../../parts/resource";
import { Badge, Choice, EmptyState, ErrorNote } from "../../parts/small";
import { setQuery, tabHash, type TabProps } from "./index";

type SideName = "client" | "provider";

/** An exchange to read: what was said, called and answered, as one of the sides sees it. */
export function Conversation({ detail: { row }, query }: TabProps) {
  const { data, error, reload } = useResource<ConversationData>(`exchanges/${encodeURIComponent(row.id)}/conversation`, row.state);
  if (!data) return error ? <ErrorNote error={error} onRetry={reload} /> : <p class="loading">Loading…</p>;
  const wanted: SideName = query.get("side") === "provider" ? "provider" : "client";
  const name = data[wanted] ? wanted : data.client ? "client" : "provider";
  const side = data[name];
  if (!side) return <EmptyState title="There is nothing here that can be read as a conversation" />;
  const options: { value: SideName; title: string }[] = [];
  if (data.client) options.push({ value: "client", title: `Client (${data.client.protocol})` });
  if (data.provider) options.push({ value: "provider", title: `Provider (${data.provider.protocol})` });
  const changes = countChanges(side);
  return (
    <div class="conversation">
      <div class="conversation-bar">
        <Choice label="Whose side" options={options} value={name} onChange={(value) => setQuery("side", value)} />
        <span class="muted" role="status">
          {data.client && data.provider && (changes ? `${formatCountOf(changes, "difference")} from the other side` : "both sides say the same")}
        </span>
      </div>
      {side.hidden_turns > 0 && <p class="muted">{formatCountOf(side.hidden_turns, "older turn")} not shown here: the Request tab has them.</p>}
      <ol class="talk">
        {side.turns.map((turn, index) => (
          <Turn key={index} turn={turn} id={row.id} />
        ))}
      </ol>
    </div>
  );
}

function countChanges(side: ConversationSide): number {
  return side.turns.reduce((sum, turn) => sum + turn.parts.filter((part) => part.is_changed || part.losses.length > 0).length, 0);
}

const ROLES: Readonly<Record<string, string>> = { system: "Instructions", user: "User", assistant: "Model", tool: "Tools" };

function Turn({ turn, id }: { turn: ConversationTurn; id: string }) {
  const title = turn.is_answer ? "Answer" : (ROLES[turn.role] ?? turn.role);
  const onlyResults = turn.parts.length > 0 && turn.parts.every((part) => part.kind === "result");
  const parts = turn.parts.map((part, index) => <Part key={index} part={part} id={id} />);
  return (
    <li class={`talk-turn role-${turn.role}${turn.is_answer ? " is-answer" : ""}`}>
      <h2 class="talk-role">{onlyResults ? "Tools" : title}</h2>
      <div class="talk-parts">
        {turn.role === "system" ? (
          <details>
            <summary>{firstWords(turn)}</summary>
            {parts}
          </details>
        ) : parts.length ? (
          parts
        ) : (
          <p class="muted">nothing</p>
        )}
      </div>
    </li>
  );
}

function firstWords(turn: ConversationTurn): string {
  return showInvisible(turn.parts.map((part) => part.text).join(" ").replace(/\s+/g, " ").slice(0, 160)) || "empty";
}

function Part({ part, id }: { part: ConversationPart; id: string }) {
  return (
    <div class={`talk-part kind-${part.kind}${part.is_changed ? " is-changed" : ""}`}>
      <Content part={part} />
      {part.is_cut && <p class="muted">The rest is in the Request and Answer tabs.</p>}
      {part.pictures.map((url, index) => (
        <img key={index} class="talk-picture" src={url} alt={part.text || "a picture"} />
      ))}
      {(part.is_changed || part.losses.length > 0) && (
        <p class="talk-marks">
          {part.losses.map((loss, index) => (
            <Mark key={index} loss={loss} id={id} />
          ))}
          {part.is_changed && !part.losses.length && <span class="loss-mark severity-changed">only on this side</span>}
        </p>
      )}
    </div>
  );
}

function Mark({ loss, id }: { loss: LossRow; id: string }) {
  return (
    <a class={`loss-mark severity-${loss.severity}`} href={tabHash(id, "request", { at: loss.path })} title={`${loss.what}: ${loss.why}`}>
      {loss.code}
    </a>
  );
}

function Content({ part }: { part: ConversationPart }) {
  switch (part.kind) {
    case "reasoning":
      return (
        <details class="reasoning">
          <summary>Reasoning {part.name && <span class="muted">· {part.name}</span>}</summary>
          <Text text={part.text} />
        </details>
      );
    case "call":
      return (
        <details class="talk-call" open={part.text.length < OPEN_LENGTH}>
          <summary>
            calls <strong class="mono">{part.name}</strong> <code class="muted">{part.call_id}</code>
          </summary>
          <pre class="wire" tabIndex={0} role="group" aria-label="Arguments">{prettyText(part.text) || "{}"}</pre>
        </details>
      );
    case "result":
      return <Result part={part} />;
    case "media":
      return (
        <p>
          <span class="muted">{part.name}</span> {part.text}
        </p>
      );
    case "other":
      return (
        <p class="muted">
          {part.name} {part.text}
        </p>
      );
    default:
      return <Text text={part.text} />;
  }
}

/** Longer arguments and results are folded. */
const OPEN_LENGTH = 600;

function Result({ part }: { part: ConversationPart }) {
  const [isOpen, setOpen] = useState(part.text.length < OPEN_LENGTH);
  return (
    <details class="talk-call" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        result {part.name && <strong class="mono">{part.name}</strong>} <code class="muted">{part.call_id}</code> {part.is_error && <Badge tone="bad">error</Badge>}
      </summary>
      {isOpen && <pre class={`wire${part.is_error ? " failed" : ""}`} tabIndex={0} role="group" aria-label="Result">{showInvisible(part.text) || "(empty result)"}</pre>}
    </details>
  );
}

/** Of longer texts only so much is shown at first: an agent sends whole files. */
const SHOWN_LENGTH = 2000;

function Text({ text }: { text: string }) {
  const [isOpen, setOpen] = useState(false);
  if (!text) return null;
  const isLong = text.length > 2 * SHOWN_LENGTH;
  return (
    <>
      <p class="answer-text">{showInvisible(isLong && !isOpen ? `${text.slice(0, SHOWN_LENGTH)}…` : text)}</p>
      {isLong && (
        <button type="button" class="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Show less" : `Show all ${formatCount(text.length)} characters`}
        </button>
      )}
    </>
  );
}

function prettyText(text: string): string {
  const json = parseJson(text);
  return showInvisible(json.root && json.brokenAt < 0 ? prettyLines(json).join("\n") : text);
}
