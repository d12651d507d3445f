import { useState } from "preact/hooks";
import type { ExchangeDetail, LossRow, TimedStep, UpstreamCall } from "../../api";
import { formatBytes, formatCountOf, formatMs } from "../../core/format";
import { Badge, CopyButton, type Tone } from "../../parts/small";
import { Costs } from "./costs";
import { lossHash, tabHash, type TabProps } from "./index";

export function Overview({ detail }: TabProps) {
  return (
    <div class="overview">
      <div class="overview-column">
        <Answer detail={detail} />
        <Losses detail={detail} />
      </div>
      <div class="overview-column">
        <Timing detail={detail} />
        <UpstreamCalls detail={detail} />
        <Costs detail={detail} />
      </div>
    </div>
  );
}

function Answer({ detail: { output, row } }: { detail: ExchangeDetail }) {
  const isRunning = row.state === "running";
  return (
    <section class="panel" aria-label="Answer">
      <header class="panel-head">
        <h2>Answer</h2>
        <span class="muted">as the client got it</span>
        <span class="grow" />
        {output.text && <CopyButton text={output.text} class="button quiet" />}
      </header>
      {output.reasoning && (
        <details class="reasoning">
          <summary>Reasoning</summary>
          <p class="answer-text">{output.reasoning}</p>
        </details>
      )}
      {output.text || isRunning ? (
        <p class="answer-text" tabIndex={0} role="group" aria-label="Text of the answer">
          {output.text}
          {isRunning && <span class="caret" aria-hidden="true" />}
        </p>
      ) : (
        <p class="panel-empty">{output.calls.length ? "No text, only tool calls" : "No text"}</p>
      )}
      {output.calls.length > 0 && (
        <p class="chips padded">
          <span class="muted">calls</span>
          {output.calls.map((name, index) => (
            <a key={index} class="badge tone-accent mono" href={tabHash(row.id, "calls")}>
              {name}
            </a>
          ))}
        </p>
      )}
    </section>
  );
}

function Timing({ detail: { steps, row } }: { detail: ExchangeDetail }) {
  const end = Math.max(row.duration_ms ?? 0, 1, ...steps.map((step) => step.started_ms + step.duration_ms));
  return (
    <section class="panel" aria-label="Timing">
      <header class="panel-head">
        <h2>Timing</h2>
        <span class="muted">{row.duration_ms === null ? "running" : formatMs(row.duration_ms)}</span>
      </header>
      <ol class="waterfall">
        {steps.map((step, index) => (
          <Step key={index} step={step} end={end} />
        ))}
        {row.first_byte_ms !== null && (
          <li class="waterfall-mark">
            <span class="step-name">first byte to the client</span>
            <span class="step-track" aria-hidden="true">
              <span class="first-byte" style={{ left: `${(100 * row.first_byte_ms) / end}%` }} />
            </span>
            <span class="step-time">{formatMs(row.first_byte_ms)}</span>
          </li>
        )}
      </ol>
    </section>
  );
}

function Step({ step, end }: { step: TimedStep; end: number }) {
  const left = (100 * step.started_ms) / end;
  return (
    <li>
      <span class="step-name" title={step.detail}>
        {step.name} {step.detail && <span class="muted">{step.detail}</span>}
      </span>
      <span class="step-track" aria-hidden="true">
        <span class="step-bar" style={{ left: `${left}%`, width: `${Math.max(0.4, Math.min(100 - left, (100 * step.duration_ms) / end))}%` }} />
      </span>
      <span class="step-time" title={`begins at ${formatMs(step.started_ms)}`}>
        {formatMs(step.duration_ms)}
      </span>
    </li>
  );
}

const SHOWN_LOSSES = 20;

function Losses({ detail }: { detail: ExchangeDetail }) {
  const [count, setCount] = useState(SHOWN_LOSSES);
  return (
    <section class="panel" aria-label="Losses">
      <header class="panel-head">
        <h2>Losses</h2>
        <span class="muted">{detail.losses.length ? "in the translation; each links to its place" : ""}</span>
      </header>
      {detail.losses.length === 0 ? (
        <p class="panel-empty">{detail.row.passthrough ? "Nothing was translated" : "Nothing was lost in the translation"}</p>
      ) : (
        <>
          <ul class="losses">
            {detail.losses.slice(0, count).map((loss, index) => (
              <Loss key={index} detail={detail} loss={loss} />
            ))}
          </ul>
          {detail.losses.length > count && (
            <button type="button" class="button quiet" onClick={() => setCount(detail.losses.length)}>
              Show {detail.losses.length - count} more
            </button>
          )}
        </>
      )}
    </section>
  );
}

function Loss({ detail, loss }: { detail: ExchangeDetail; loss: LossRow }) {
  return (
    <li>
      <a class="loss-row" href={lossHash(detail, loss)}>
        <span class={`loss-mark severity-${loss.severity}`}>{loss.severity}</span>
        <span class="loss-name">
          <strong>{loss.code}</strong> <span>{loss.what}</span>
          <span class="muted loss-why">{loss.why}</span>
        </span>
        <code class="loss-path">
          {loss.is_in_answer ? "answer " : "request "}
          {loss.path || "/"}
        </code>
      </a>
    </li>
  );
}

function UpstreamCalls({ detail: { upstream_calls: calls, row } }: { detail: ExchangeDetail }) {
  return (
    <section class="panel" aria-label="Calls to providers">
      <header class="panel-head">
        <h2>Calls to providers</h2>
        <span class="muted">{formatCountOf(calls.length, "call")}</span>
      </header>
      {calls.length === 0 ? (
        <p class="panel-empty">No provider was asked</p>
      ) : (
        <ol class="upstream-calls">
          {calls.map((call, index) => (
            <li key={index}>
              <span class="muted number">{index + 1}</span>
              <Badge tone={callTone(call)}>{call.status || "none"}</Badge>
              <span class="upstream-name">
                <strong>{call.provider}</strong> <span class="muted">{call.protocol}</span>
                <span class="upstream-url mono muted" title={call.url}>
                  {call.url}
                </span>
                {call.error && <span class="tone-text-bad">{call.error}</span>}
              </span>
              <span class="muted upstream-size">
                {formatBytes(call.request.size)} sent
                {call.head_ms !== null && <>, answer after {formatMs(call.head_ms - call.started_ms)}</>}
              </span>
              <span class="upstream-links">
                <a href={tabHash(row.id, "request", { call: String(index) })}>Request</a>
                <a href={tabHash(row.id, "answer", { call: String(index) })}>Answer</a>
              </span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

function callTone(call: UpstreamCall): Tone {
  return call.status >= 200 && call.status < 300 && !call.error ? "plain" : "bad";
}
