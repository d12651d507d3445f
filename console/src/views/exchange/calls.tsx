import { useState } from "preact/hooks";
import type { CallPair, CallSide } from "../../api";
import { prettyLines } from "../../core/json_lines";
import { parseJson } from "../../core/json_text";
import { showInvisible } from "../../core/format";
import { Badge, EmptyState } from "../../parts/small";
import type { TabProps } from "./index";

/** Tool calls and their results, as both sides see them. */
export function Calls({ detail: { calls } }: TabProps) {
  const groups = [
    { title: "In the answer", pairs: calls.filter((pair) => pair.is_in_answer) },
    { title: "In the history, newest first", pairs: calls.filter((pair) => !pair.is_in_answer).reverse() },
  ].filter(({ pairs }) => pairs.length > 0);
  if (!groups.length) return <EmptyState title="No tool was called" />;
  return (
    <>
      {groups.map(({ title, pairs }) => (
        <section key={title} class="call-group" aria-label={title}>
          <h2>
            {title} <span class="muted">{pairs.length}</span>
          </h2>
          <Pairs pairs={pairs} />
        </section>
      ))}
    </>
  );
}

const SHOWN_PAIRS = 30;

/** The history of an agent has hundreds of calls. */
function Pairs({ pairs }: { pairs: readonly CallPair[] }) {
  const [count, setCount] = useState(SHOWN_PAIRS);
  return (
    <>
      {pairs.slice(0, count).map((pair, index) => (
        <Pair key={index} pair={pair} />
      ))}
      {pairs.length > count && (
        <button type="button" class="button" onClick={() => setCount(pairs.length)}>
          Show {pairs.length - count} more
        </button>
      )}
    </>
  );
}

function Pair({ pair }: { pair: CallPair }) {
  return (
    <div class="call-pair">
      <Side title="Client" side={pair.client} other={pair.provider} />
      <Side title="Provider" side={pair.provider} other={pair.client} />
    </div>
  );
}

function Side({ title, side, other }: { title: string; side: CallSide | null; other: CallSide | null }) {
  if (!side) {
    return (
      <div class="call-side absent">
        <span class="side-name">{title}</span>
        <p class="muted">Only the other side has this call</p>
      </div>
    );
  }
  const differs = (name: "id" | "name"): string => (other && other[name] !== side[name] ? "differs" : "");
  return (
    <div class="call-side">
      <p class="call-line">
        <span class="side-name">{title}</span>
        <strong class={`mono ${differs("name")}`}>{side.name}</strong>
        <code class={`muted ${differs("id")}`}>{side.id}</code>
        {side.is_error && <Badge tone="bad">error</Badge>}
      </p>
      <pre class="wire" tabIndex={0} role="group" aria-label={`Arguments of ${side.name}, ${title}`}>
        {prettyText(side.arguments) || "{}"}
      </pre>
      {side.has_result ? (
        <pre class={`wire result${side.is_error ? " failed" : ""}`} tabIndex={0} role="group" aria-label={`Result of ${side.name}, ${title}`}>
          {showInvisible(side.result) || "(empty result)"}
        </pre>
      ) : (
        <p class="muted no-result">no result yet</p>
      )}
    </div>
  );
}

function prettyText(text: string): string {
  const json = parseJson(text);
  return showInvisible(json.root && json.brokenAt < 0 ? prettyLines(json).join("\n") : text);
}
