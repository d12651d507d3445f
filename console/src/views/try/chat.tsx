import { useEffect, useId, useRef } from "preact/hooks";
import { suggestResult, type Call, type CallResult, type Message } from "../../core/conversation";
import { formatBytes, formatCount } from "../../core/format";
import { prettyLines } from "../../core/json_lines";
import { parseJson } from "../../core/json_text";
import { gateway, outputs, rows } from "../../gateway";
import { Badge } from "../../parts/small";
import { writeHash } from "../../router";
import { clientKey } from "../../client_key";
import { clear, draft, entries, failure, model, resultOf, results, send, sending, stop, takeBack, waitingCalls, type Entry } from "./state";

const STARTERS = ["What is the weather in Paris and London?", "Hello!"];
/** The models that are built in also fail on request. */
const BUILT_IN_STARTERS = [...STARTERS, "loopback: fail 429"];

export function Chat() {
  const end = useRef<HTMLDivElement>(null);
  const count = entries.value.length;
  const bytes = sending.value?.bytes ?? 0;
  useEffect(() => end.current?.scrollIntoView({ block: "nearest" }), [count, bytes, failure.value]);
  return (
    <section class="panel chat" aria-label="Conversation">
      <header class="panel-head">
        <h2>Conversation</h2>
        <span class="grow" />
        <button type="button" class="button quiet" disabled={!count && !failure.value} onClick={clear}>
          New conversation
        </button>
      </header>
      <div class="chat-messages" role="log" aria-label="Messages" tabIndex={0}>
        {count === 0 && !sending.value && <Empty />}
        {entries.value.map((entry, index) => (
          <MessageItem key={index} entry={entry} isLast={index === count - 1} before={entries.value[index - 1]?.message ?? null} />
        ))}
        {sending.value && <RunningAnswer />}
        {failure.value && <FailureNote />}
        <div ref={end} />
      </div>
      <Composer />
    </section>
  );
}

function Empty() {
  return (
    <div class="chat-empty">
      <p>Each message is a real request to this gateway, in the protocol on the left. Tools run by hand: you write what they return.</p>
      <p class="chips">
        {(/^(loopback|demo-)/.test(model.value) ? BUILT_IN_STARTERS : STARTERS).map((text) => (
          <button key={text} type="button" class="button" onClick={() => (draft.value = text)}>
            {text}
          </button>
        ))}
      </p>
    </div>
  );
}

function MessageItem({ entry, isLast, before }: { entry: Entry; isLast: boolean; before: Message | null }) {
  const { message, answer } = entry;
  if (message.role === "tool") return <ResultsItem message={message} calls={before?.calls ?? []} />;
  const isAnswer = message.role === "assistant";
  return (
    <article class={`message ${isAnswer ? "from-model" : "from-person"}`} aria-label={isAnswer ? "Answer" : "You"}>
      {message.reasoning && <Reasoning text={message.reasoning} />}
      {message.text && <p class="message-text">{message.text}</p>}
      {!message.text && !message.calls.length && <p class="muted">The answer has no text.</p>}
      {message.calls.map((call, index) => (
        <CallCard key={call.id} call={call} number={index + 1} isOpen={isLast} />
      ))}
      {answer && (
        <p class="message-facts muted">
          <span>{entry.model}</span>
          <span>{entry.protocol}</span>
          {answer.stopReason && <span>{answer.stopReason}</span>}
          {answer.inputTokens !== null && (
            <span>
              {formatCount(answer.inputTokens)} → {formatCount(answer.outputTokens ?? 0)} tokens
            </span>
          )}
          <ExchangeLink requestId={entry.requestId} />
        </p>
      )}
    </article>
  );
}

function ExchangeLink({ requestId }: { requestId: string }) {
  const row = requestId ? rows.value.find((one) => one.request_id === requestId) : undefined;
  return row ? <a href={writeHash("exchange", [row.id])}>See this exchange</a> : null;
}

function Reasoning({ text }: { text: string }) {
  return (
    <details class="message-reasoning">
      <summary>Reasoning</summary>
      <p class="message-text">{text}</p>
    </details>
  );
}

function ResultsItem({ message, calls }: { message: Message; calls: readonly Call[] }) {
  return (
    <article class="message from-person" aria-label="Results of tools">
      {message.results.map((result) => (
        <div key={result.callId} class="result-item">
          <p>
            <code>{calls.find((call) => call.id === result.callId)?.name ?? result.callId}</code> {result.isError ? <Badge tone="bad">failed</Badge> : <span class="muted">returned</span>}
          </p>
          <p class="mono message-text">{result.content}</p>
        </div>
      ))}
    </article>
  );
}

/** A call of the model. While it waits, the person writes its result. */
function CallCard({ call, number, isOpen }: { call: Call; number: number; isOpen: boolean }) {
  const ids = { result: useId() };
  const result = resultOf(call.id);
  const change = (part: Partial<CallResult>): void => void (results.value = new Map(results.value).set(call.id, { ...result, ...part }));
  return (
    <div class="call-card" role="group" aria-label={`Call ${number}: ${call.name}`}>
      <p class="call-head">
        <Badge tone="accent">call</Badge> <code class="call-name">{call.name}</code>
      </p>
      <pre class="call-arguments" tabIndex={0} role="group" aria-label={`Arguments of call ${number}`}>
        {prettyLines(parseJson(call.arguments)).join("\n")}
      </pre>
      {isOpen && (
        <div class="call-result">
          <label class="field" for={ids.result}>
            Result: text, or JSON
            <textarea
              id={ids.result}
              class="mono"
              rows={2}
              spellcheck={false}
              value={result.content}
              onInput={(event) => change({ content: event.currentTarget.value })}
              onKeyDown={(event) => {
                if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void send();
              }}
            />
          </label>
          <div class="call-actions">
            <label class="check">
              <input type="checkbox" checked={result.isError} onChange={(event) => change({ isError: event.currentTarget.checked })} />
              It failed
            </label>
            <span class="grow" />
            <button type="button" class="button quiet" onClick={() => change({ content: suggestResult(call), isError: false })}>
              Suggest a result
            </button>
          </div>
        </div>
      )}
    </div>
  );
}

/** What has come so far, from the events of the list of exchanges; before them, the number of bytes. */
function RunningAnswer() {
  const { requestId, bytes } = sending.value!;
  const row = requestId ? rows.value.find((one) => one.request_id === requestId) : undefined;
  const output = row ? outputs.value.get(row.id) : undefined;
  return (
    <article class="message from-model" aria-label="Answer, running" aria-busy="true">
      {output?.reasoning && <p class="message-text muted">{output.reasoning}</p>}
      <p class="message-text">
        {output?.text}
        <span class="caret" aria-hidden="true" />
      </p>
      {output && output.calls.length > 0 && (
        <p class="chips">
          <span class="muted">calls</span>
          {output.calls.map((name, index) => (
            <Badge key={index} tone="accent">
              {name}
            </Badge>
          ))}
        </p>
      )}
      <p class="message-facts muted">{bytes ? `${formatBytes(bytes)} so far` : "Waiting for the first byte…"}</p>
    </article>
  );
}

function FailureNote() {
  const { status, message, raw, requestId } = failure.value!;
  return (
    <div class="message failure" role="alert">
      <p>
        {status > 0 && <Badge tone="bad">{status}</Badge>} <strong>{message}</strong>
      </p>
      {raw && (
        <details>
          <summary>The answer as it came</summary>
          <pre class="call-arguments" tabIndex={0} role="group" aria-label="The answer as it came">
            {prettyLines(parseJson(raw)).join("\n")}
          </pre>
        </details>
      )}
      <p class="actions">
        <button type="button" class="button" onClick={() => void send()}>
          Send again
        </button>
        <button type="button" class="button" onClick={takeBack}>
          Change the message
        </button>
        <ExchangeLink requestId={requestId} />
      </p>
    </div>
  );
}

function Composer() {
  const id = useId();
  const field = useRef<HTMLTextAreaElement>(null);
  const calls = waitingCalls.value;
  const isRunning = sending.value !== null;
  const missingKey = gateway.value?.needs_client_key && !clientKey.value;
  const why = !model.value ? "Choose a model first." : missingKey ? "Give a client key first." : "";
  const submit = (event: Event): void => {
    event.preventDefault();
    if (!why && !failure.value) void send().then(() => field.current?.focus());
  };
  const button = isRunning ? (
    <button type="button" class="button" onClick={stop}>
      Stop
    </button>
  ) : (
    <button type="submit" class="button primary" disabled={why !== "" || failure.value !== null || (!calls.length && !draft.value.trim())}>
      {calls.length > 1 ? "Send the results" : calls.length ? "Send the result" : "Send"}
    </button>
  );
  return (
    <form class="composer" onSubmit={submit}>
      {why && <p class="muted">{why}</p>}
      {calls.length ? (
        <div class="composer-line">
          <p class="muted grow">{calls.length === 1 ? "The model waits for the result of its call." : `The model waits for the results of ${calls.length} calls.`}</p>
          {!isRunning && (
            <button type="button" class="button" onClick={() => (results.value = new Map(calls.map((call) => [call.id, { callId: call.id, content: suggestResult(call), isError: false }])))}>
              Suggest all
            </button>
          )}
          {button}
        </div>
      ) : (
        <div class="composer-line">
          <label class="hidden" for={id}>
            Message
          </label>
          <textarea
            id={id}
            ref={field}
            rows={2}
            placeholder="Write a message. Enter sends, Shift+Enter makes a new line"
            value={draft.value}
            onInput={(event) => (draft.value = event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
            }}
          />
          {button}
        </div>
      )}
    </form>
  );
}
