import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import type { ExchangeDetail, ExchangeRow, ModelList, Output } from "../api";
import { clientKey, requestHeaders } from "../client_key";
import { formatBytes } from "../core/format";
import { changeModel } from "../core/send_again";
import { gateway, outputs, rows } from "../gateway";
import { ModelName, StatusBadge } from "../parts/exchange_parts";
import { useKeys } from "../parts/keys";
import { useExchange, useResource } from "../parts/resource";
import { CopyButton, ErrorNote } from "../parts/small";
import { goTo, writeHash } from "../router";
import { answerText, Facts } from "./compare";
import { DiffView } from "../parts/diff_view";
import type { ViewProps } from "./index";

interface Sending {
  requestId: string;
  bytes: number;
  text: string;
  isDone: boolean;
  error: string;
}

const MAX_RAW = 256 * 1024;

export function SendAgain({ args }: ViewProps) {
  const id = args[0] ?? "";
  const { data, error, reload } = useExchange(id);
  useKeys({ Escape: () => goTo(writeHash("exchange", [id])) });
  return (
    <div class="page wide-page">
      <nav class="crumbs" aria-label="Where you are">
        <a href={writeHash("exchange", [id])} class="mono">
          {id}
        </a>
        <span aria-hidden="true">/</span>
        <span aria-current="page">send again</span>
      </nav>
      <h1>Send again to another model</h1>
      {error && <ErrorNote error={error} onRetry={reload} />}
      {data && <Form detail={data} />}
    </div>
  );
}

function Form({ detail }: { detail: ExchangeDetail }) {
  const { row, client } = detail;
  const models = useResource<ModelList>("models");
  const [model, setModel] = useState("");
  const [sending, setSending] = useState<Sending | null>(null);
  const abort = useRef<AbortController | null>(null);
  const ids = { model: useId(), models: useId(), key: useId() };
  const protocol = gateway.value?.protocols.find((one) => one.name === row.client_protocol);
  const request = useMemo(() => changeModel(row, client, protocol, model), [row, client, protocol, model]);
  useEffect(() => () => abort.current?.abort(), []);

  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (typeof request === "string" || !model) return;
    abort.current?.abort();
    const control = (abort.current = new AbortController());
    const update = (change: Partial<Sending>): void => {
      if (abort.current === control) setSending((old) => ({ ...(old ?? NOT_SENT), ...change }));
    };
    setSending(NOT_SENT);
    try {
      await sendRequest(request.path, request.body, control.signal, update);
    } catch (failure) {
      update({ isDone: true, error: control.signal.aborted ? "Stopped" : `The gateway does not answer: ${String(failure)}` });
    }
  };
  const isRunning = sending !== null && !sending.isDone;
  const newRow = sending?.requestId ? (rows.value.find((one) => one.request_id === sending.requestId) ?? null) : null;
  return (
    <>
      <form class="send-form" onSubmit={send}>
        <label for={ids.model}>
          Model
          <input id={ids.model} list={ids.models} value={model} required autocomplete="off" spellcheck={false} placeholder={row.requested_model} onInput={(event) => setModel(event.currentTarget.value)} />
          <datalist id={ids.models}>
            {models.data?.models.map((one) => (
              <option key={one.name} value={one.name}>
                {one.provider}
              </option>
            ))}
          </datalist>
        </label>
        {gateway.value?.needs_client_key && (
          <label for={ids.key}>
            Client key
            <input id={ids.key} type="password" required autocomplete="off" value={clientKey.value} onInput={(event) => (clientKey.value = event.currentTarget.value)} />
          </label>
        )}
        {isRunning ? (
          <button type="button" class="button" onClick={() => abort.current?.abort()}>
            Stop
          </button>
        ) : (
          <button type="submit" class="button primary" disabled={typeof request === "string"}>
            Send
          </button>
        )}
        <p class="muted">
          {typeof request === "string" ? request : `The client's own request (${formatBytes(client.request.size)}) with another model, to ${protocol?.name}. It is a real request, and may cost money.`}
        </p>
      </form>
      {models.data && models.data.models.length > 0 && !sending && (
        <p class="chips">
          {models.data.models.slice(0, 24).map((one) => (
            <button key={one.name} type="button" class="button mono" aria-pressed={one.name === model} onClick={() => setModel(one.name)}>
              {one.name}
            </button>
          ))}
        </p>
      )}
      {models.data?.problems.map((problem) => (
        <p key={problem} class="note tone-warn">
          {problem}
        </p>
      ))}
      {models.error && <ErrorNote error={models.error} onRetry={models.reload} />}
      {sending && <BothAnswers detail={detail} sending={sending} newRow={newRow} />}
    </>
  );
}

const NOT_SENT: Sending = { requestId: "", bytes: 0, text: "", isDone: false, error: "" };

async function sendRequest(path: string, body: string, signal: AbortSignal, update: (change: Partial<Sending>) => void): Promise<void> {
  const response = await fetch(path, { method: "POST", headers: requestHeaders(), body, signal, credentials: "same-origin" });
  update({ requestId: response.headers.get("x-request-id") ?? "", error: response.ok ? "" : `The gateway answered with status ${response.status}` });
  const decoder = new TextDecoder();
  let [text, bytes] = ["", 0];
  const reader = response.body?.getReader();
  for (let chunk = await reader?.read(); chunk && !chunk.done; chunk = await reader?.read()) {
    bytes += chunk.value.length;
    if (text.length < MAX_RAW) text += decoder.decode(chunk.value, { stream: true });
    update({ bytes, text });
  }
  update({ isDone: true });
}

interface BothProps {
  detail: ExchangeDetail;
  sending: Sending;
  newRow: ExchangeRow | null;
}

function BothAnswers({ detail, sending, newRow }: BothProps) {
  return (
    <>
      {sending.error && <p class="note tone-bad">{sending.error}</p>}
      {newRow && newRow.state !== "running" ? (
        <EndedAnswers left={detail} row={newRow} />
      ) : (
        <div class="two-sides answers">
          <OneAnswer title="Before" row={detail.row} output={detail.output} />
          {newRow ? <OneAnswer title="Now" row={newRow} output={outputs.value.get(newRow.id) ?? null} /> : <RawAnswer sending={sending} />}
        </div>
      )}
    </>
  );
}

/** Before its exchange is known: the bytes. */
function RawAnswer({ sending }: { sending: Sending }) {
  return (
    <section class="panel" aria-label="Now">
      <header class="panel-head">
        <h2>Now</h2>
        <span class="muted">{sending.isDone ? formatBytes(sending.bytes) : `${formatBytes(sending.bytes)} so far`}</span>
      </header>
      <p class="answer-text mono">{sending.text}</p>
    </section>
  );
}

function EndedAnswers({ left, row }: { left: ExchangeDetail; row: ExchangeRow }) {
  const { data, error, reload } = useExchange(row.id);
  return (
    <>
      <div class="two-sides answers">
        <OneAnswer title="Before" row={left.row} output={left.output} />
        <OneAnswer title="Now" row={row} output={data?.output ?? outputs.value.get(row.id) ?? null} />
      </div>
      {error && <ErrorNote error={error} onRetry={reload} />}
      {data && (
        <>
          <Facts left={left} right={data} />
          <DiffView title="Answers" left={answerText(left)} right={answerText(data)} leftTitle={left.row.id} rightTitle={row.id} isCompact />
          <p>
            <a href={writeHash("compare", [left.row.id, row.id, "upstream"])}>Compare the requests to the providers</a>
          </p>
        </>
      )}
    </>
  );
}

function OneAnswer({ title, row, output }: { title: string; row: ExchangeRow; output: Output | null }) {
  return (
    <section class="panel" aria-label={title}>
      <header class="panel-head">
        <h2>{title}</h2>
        <StatusBadge row={row} />
        <ModelName row={row} />
        <span class="grow" />
        {output?.text && <CopyButton text={output.text} class="button quiet" />}
        <a href={writeHash("exchange", [row.id])} class="mono">
          {row.id}
        </a>
      </header>
      {row.message && <p class="note tone-bad">{row.message}</p>}
      {output?.reasoning && (
        <details class="reasoning">
          <summary>Reasoning</summary>
          <p class="answer-text">{output.reasoning}</p>
        </details>
      )}
      <p class="answer-text" tabIndex={0} role="group" aria-label={`${title}: text of the answer`}>
        {output?.text}
        {row.state === "running" && <span class="caret" aria-hidden="true" />}
      </p>
      {output && output.calls.length > 0 && (
        <p class="chips padded">
          <span class="muted">calls</span>
          {output.calls.map((name, index) => (
            <span key={index} class="badge tone-accent mono">
              {name}
            </span>
          ))}
        </p>
      )}
    </section>
  );
}
