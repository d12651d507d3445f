import type { Body, ExchangeDetail, Header, LossRow, StreamEvent } from "../../api";
import { showInvisible } from "../../core/format";
import { JsonView } from "../../parts/json_view";
import { Choice } from "../../parts/small";
import { setQuery, tabHash, type TabProps } from "./index";

export function RequestBodies({ detail, query }: TabProps) {
  const index = chosenCall(detail, query);
  const call = detail.upstream_calls[index];
  const heads = (
    <>
      <Headers title="Headers of the client" line={`${detail.client.method} ${detail.client.path}`} headers={detail.client.request_headers} />
      {call && <Headers title={`Headers to ${call.provider}`} line={call.url} headers={call.request_headers} />}
    </>
  );
  return (
    <TwoSides detail={detail} index={index} heads={heads}>
      <JsonView title="Client sent" body={detail.client.request} losses={requestLosses(detail)} at={query.get("at")} />
      {call ? <JsonView title={`${call.provider} got`} body={call.request} /> : <NoCall />}
    </TwoSides>
  );
}

export function AnswerBodies({ detail, query }: TabProps) {
  const index = chosenCall(detail, query);
  const call = detail.upstream_calls[index];
  const isLast = index === detail.upstream_calls.length - 1;
  const heads = (
    <>
      <Headers title="Headers to the client" line={`Status ${detail.client.status || "none"}`} headers={detail.client.response_headers} />
      {call && <Headers title={`Headers of ${call.provider}`} line={`Status ${call.status || "none"}`} headers={call.response_headers} />}
    </>
  );
  return (
    <TwoSides detail={detail} index={index} heads={heads}>
      <JsonView title={`Client got ${detail.client.status || "nothing"}`} body={answerBody(detail.client)} />
      {call ? (
        <JsonView
          title={call.error && !call.status ? `${call.provider}: ${call.error}` : `${call.provider} sent ${call.status}`}
          body={answerBody(call)}
          losses={isLast ? detail.losses.filter((loss) => loss.is_in_answer && !isInStream(loss)) : []}
          at={query.get("at")}
        />
      ) : (
        <NoCall />
      )}
      {detail.client.events.length > 0 && (
        <p class="muted below">
          This is a stream: <a href={tabHash(detail.row.id, "stream")}>its events in time</a>.
        </p>
      )}
    </TwoSides>
  );
}

interface HeadersProps {
  title: string;
  line: string;
  headers: readonly Header[];
}

/** Folded: one looks at headers when something is wrong with them. */
function Headers({ title, line, headers }: HeadersProps) {
  return (
    <details class="panel headers">
      <summary>
        {title} <span class="muted">{headers.length}</span>
      </summary>
      <p class="mono headers-line">{showInvisible(line)}</p>
      <dl class="mono">
        {headers.map(({ name, value }, index) => (
          <div key={index}>
            <dt>{showInvisible(name)}</dt>
            <dd>{showInvisible(value)}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

export function isInStream(loss: LossRow): boolean {
  return /^\/?event\//.test(loss.path);
}

function requestLosses(detail: ExchangeDetail): readonly LossRow[] {
  return detail.losses.filter((loss) => !loss.is_in_answer);
}

function NoCall() {
  return (
    <section class="panel" aria-label="Provider">
      <p class="panel-empty">No provider was asked</p>
    </section>
  );
}

/** A whole answer, or the frames of a stream. */
export function answerBody(side: { response: Body; events: readonly StreamEvent[] }): Body {
  if (side.response.text || !side.events.length) return side.response;
  const text = side.events.map(({ event, data }) => `${event && `event: ${event}\n`}data: ${data}\n`).join("\n");
  return { text, size: side.response.size || text.length, is_cut: side.response.is_cut, next: "" };
}

/** The call of the address; otherwise the last one, which gave the answer. */
function chosenCall(detail: ExchangeDetail, query: URLSearchParams): number {
  const asked = Number(query.get("call") ?? NaN);
  return detail.upstream_calls[asked] ? asked : detail.upstream_calls.length - 1;
}

interface SidesProps {
  detail: ExchangeDetail;
  index: number;
  heads: preact.ComponentChildren;
  children: preact.ComponentChildren;
}

function TwoSides({ detail, index, heads, children }: SidesProps) {
  const calls = detail.upstream_calls;
  return (
    <>
      {calls.length > 1 && (
        <div class="call-choice">
          <span class="muted">Call to a provider</span>
          <Choice
            label="Call to a provider"
            options={calls.map((call, at) => ({ value: String(at), title: `${at + 1} ${call.provider} ${call.status || "none"}` }))}
            value={String(index)}
            onChange={(value) => setQuery("call", value)}
          />
        </div>
      )}
      <div class="two-sides">{children}</div>
      <div class="two-sides heads">{heads}</div>
    </>
  );
}
