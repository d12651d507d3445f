import { signal } from "@preact/signals";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import type { LossRow, TranslateAnswer, TranslateQuestion, TranslateResult } from "../api";
import { postJson, RequestFailed } from "../client";
import { EXAMPLES } from "../core/examples";
import { formatBytes, formatCountOf, showInvisible } from "../core/format";
import { parseJson } from "../core/json_text";
import { MAX_LINK, packText, unpackText } from "../core/shared_link";
import { findPlace, lineAndColumn, type TextRange } from "../core/text_place";
import { gateway } from "../gateway";
import { DiffView } from "../parts/diff_view";
import { JsonView } from "../parts/json_view";
import { LossList } from "../parts/losses";
import { Choice, CopyButton, copyText, Tabs } from "../parts/small";
import { writeHash } from "../router";
import type { ViewProps } from "./index";

type Question = Required<TranslateQuestion>;
type MessageKind = TranslateAnswer["kind"];

/** Stays while one looks at other views. */
const question = signal<Question>({ text: "", kind: "", source: "" });
const chosenProtocol = signal("");

const KINDS: Record<MessageKind, string> = { request: "Request", response: "Answer", stream: "Stream", error: "Error" };
const TYPING_MS = 250;

export function Translate({ query }: ViewProps) {
  const input = useRef<HTMLTextAreaElement>(null);
  const [linkProblem, setLinkProblem] = useState("");
  const { answer, problem } = useTranslation(question.value);
  const linked = query.toString();

  useEffect(() => {
    unpackText(query).then(
      (text) => {
        if (text !== null) question.value = { text, kind: (query.get("kind") ?? "") as Question["kind"], source: query.get("source") ?? "" };
        setLinkProblem("");
      },
      (error: Error) => setLinkProblem(error.message),
    );
  }, [linked]);

  const results = answer?.results ?? [];
  const chosen = results.find((one) => one.protocol === chosenProtocol.value) ?? results.find((one) => one.protocol !== answer?.source) ?? null;
  return (
    <div class="translate">
      <h1 class="hidden">Translate</h1>
      <Input input={input} answer={answer} problem={linkProblem || problem} />
      <div class="translate-results">
        {chosen && answer ? (
          <>
            <Tabs
              label="Protocols"
              tabs={results.map((one) => ({ name: one.protocol, title: one.protocol, count: one.losses.length }))}
              chosen={chosen.protocol}
              onChoose={(name) => (chosenProtocol.value = name)}
            />
            <Result result={chosen} answer={answer} onShow={(loss) => showLoss(input.current, loss)} />
          </>
        ) : (
          <div class="translate-empty">
            <p>
              A request, an answer, a stream or an error of one protocol appears here in all {formatCountOf(gateway.value?.protocols.length ?? 5, "protocol")}, with what
              each of them cannot express. Nothing is sent to a provider, and nothing is kept.
            </p>
          </div>
        )}
      </div>
    </div>
  );
}

/** The answer to the latest question; the one before it is shown while one types. */
function useTranslation(asked: Question): { answer: TranslateAnswer | null; problem: string } {
  const [state, setState] = useState<{ answer: TranslateAnswer | null; problem: string }>({ answer: null, problem: "" });
  useEffect(() => {
    const abort = new AbortController();
    const ask = async (): Promise<void> => {
      try {
        const answer = await postJson<TranslateAnswer>("translate", asked, abort.signal);
        setState({ answer, problem: answer.error });
      } catch (error) {
        if (!abort.signal.aborted) setState((old) => ({ ...old, problem: error instanceof RequestFailed ? error.message : String(error) }));
      }
    };
    if (!asked.text.trim()) setState({ answer: null, problem: "" });
    const timer = asked.text.trim() ? setTimeout(() => void ask(), TYPING_MS) : 0;
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [asked]);
  return state;
}

interface InputProps {
  input: { current: HTMLTextAreaElement | null };
  answer: TranslateAnswer | null;
  problem: string;
}

function Input({ input, answer, problem }: InputProps) {
  const { text, kind, source } = question.value;
  const ids = { text: useId(), kind: useId(), source: useId() };
  const [shared, setShared] = useState("");
  const change = (part: Partial<Question>): void => {
    question.value = { ...question.value, ...part };
    setShared("");
  };
  const guessed = answer && !answer.error ? answer : null;
  const broken = useMemo(() => (problem && !/^\s*(data|event|:)/.test(text) ? parseJson(text).brokenAt : -1), [problem, text]);
  const place = broken >= 0 ? lineAndColumn(text, broken) : null;

  const share = async (): Promise<void> => {
    const [name, value] = await packText(text);
    const query = new URLSearchParams({ ...(kind && { kind }), ...(source && { source }), [name]: value });
    const link = location.origin + location.pathname + writeHash("translate", [], query);
    if (link.length > MAX_LINK) {
      setShared(`Too long for a link: ${formatBytes(link.length)} compressed, and at most ${formatBytes(MAX_LINK)} work everywhere.`);
      return;
    }
    history.replaceState(null, "", link);
    setShared((await copyText(link)) ? "Copied. The link holds the whole text." : "The link is in the address bar.");
  };
  return (
    <section class="panel translate-input" aria-label="Input">
      <header class="panel-head">
        <h2>
          <label for={ids.text}>Input</label>
        </h2>
        <label class="field-inline" for={ids.kind}>
          <span class="hidden">Kind</span>
          <select id={ids.kind} value={kind} onChange={(event) => change({ kind: event.currentTarget.value as Question["kind"] })}>
            <option value="">{guessed && !kind ? `${KINDS[guessed.kind]} (guessed)` : "Guess the kind"}</option>
            {Object.entries(KINDS).map(([name, title]) => (
              <option key={name} value={name}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <label class="field-inline" for={ids.source}>
          <span class="hidden">Protocol</span>
          <select id={ids.source} value={source} onChange={(event) => change({ source: event.currentTarget.value })}>
            <option value="">{guessed && !source ? `${guessed.source} (guessed)` : "Guess the protocol"}</option>
            {gateway.value?.protocols.map((one) => (
              <option key={one.name} value={one.name}>
                {one.name}
              </option>
            ))}
          </select>
        </label>
        <span class="grow" />
        <button type="button" class="button quiet" disabled={!text} onClick={() => void share()} title="A link that holds this text in its fragment, which is sent to no server">
          Copy link
        </button>
        <button type="button" class="button quiet" disabled={!text} onClick={() => change({ text: "", kind: "", source: "" })}>
          Clear
        </button>
      </header>
      <p class="hidden" role="status">
        {shared}
      </p>
      {shared && (
        <p class="note tone-neutral" aria-hidden="true">
          {shared}
        </p>
      )}
      {problem && (
        <div class="note tone-bad" role="alert">
          <span>
            {problem}
            {place && !/line \d+/.test(problem) && ` (line ${place.line}, column ${place.column})`}
          </span>
          {place && (
            <button type="button" class="button quiet" onClick={() => showRange(input.current, { start: broken, end: broken + 1 })}>
              Show the place
            </button>
          )}
        </div>
      )}
      <textarea
        id={ids.text}
        ref={input}
        class="mono translate-text"
        wrap="off"
        spellcheck={false}
        autocomplete="off"
        placeholder="Paste a request, an answer, a stream or an error, of any protocol"
        value={text}
        onInput={(event) => change({ text: event.currentTarget.value })}
      />
      <footer class="panel-foot examples">
        <span class="muted">Examples</span>
        {EXAMPLES.map((example) => (
          <button key={example.title} type="button" class="button quiet" onClick={() => change({ text: example.text, kind: "", source: "" })}>
            {example.title}
          </button>
        ))}
      </footer>
    </section>
  );
}

interface ResultProps {
  result: TranslateResult;
  answer: TranslateAnswer;
  onShow: (loss: LossRow) => void;
}

function Result({ result, answer, onShow }: ResultProps) {
  const [shape, setShape] = useState<"result" | "diff">("result");
  const { text, kind } = { text: question.value.text, kind: answer.kind };
  const isSource = result.protocol === answer.source;
  return (
    <div class="translate-result" role="tabpanel" id="panel" aria-labelledby={`tab-${result.protocol}`} tabIndex={-1}>
      {result.error ? (
        <p class="note tone-bad" role="alert">
          {result.error}
        </p>
      ) : (
        <>
          <div class="translate-shape">
            <Choice
              label="Show"
              options={[
                { value: "result", title: "Result" },
                { value: "diff", title: "Differences from the input" },
              ]}
              value={shape}
              onChange={setShape}
            />
            <span class="muted">{isSource ? "The protocol of the input: what a client and a provider of it would exchange" : ""}</span>
          </div>
          <div class="translate-body">
            {shape === "diff" ? (
              <DiffView title="Differences" left={text} right={result.text} leftTitle={`input (${answer.source})`} rightTitle={result.protocol} />
) : kind === "stream" ? (
              <StreamFrames title={`Stream in ${result.protocol}`} text={result.text} />
            ) : (
              <JsonView title={`${KINDS[kind]} in ${result.protocol}`} body={{ text: result.text, size: new Blob([result.text]).size, is_cut: false, next: "" }} />
            )}
          </div>
          <section class="panel translate-losses" aria-label="Losses">
            <header class="panel-head">
              <h2>Losses</h2>
              <span class="muted">{result.losses.length ? formatCountOf(result.losses.length, "loss", "losses") : "none: everything has a counterpart"}</span>
            </header>
            {result.losses.length > 0 && <LossList label={`Losses in ${result.protocol}`} losses={result.losses} onShow={onShow} />}
          </section>
        </>
      )}
    </div>
  );
}

const MAX_FRAMES = 1000;

/** The events of a stream, with the numbers that paths of losses have. */
function StreamFrames({ title, text }: { title: string; text: string }) {
  const frames = useMemo(() => text.split("\n\n").filter((frame) => frame.trim()), [text]);
  return (
    <section class="panel stream-panel" aria-label={title}>
      <header class="panel-head">
        <h2>{title}</h2>
        <span class="muted">{formatCountOf(frames.length, "event")}</span>
        <span class="grow" />
        <CopyButton text={text} class="button quiet" />
      </header>
      <ol class="stream-frames mono" tabIndex={0} aria-label={`Events of the ${title.toLowerCase()}`}>
        {frames.slice(0, MAX_FRAMES).map((frame, index) => (
          <li key={index}>
            <span class="frame-number">{index}</span>
            <span class="frame-data">{showInvisible(frame)}</span>
          </li>
        ))}
        {frames.length > MAX_FRAMES && <li>and {frames.length - MAX_FRAMES} more: copy the stream to see them</li>}
      </ol>
    </section>
  );
}

function showLoss(area: HTMLTextAreaElement | null, loss: LossRow): void {
  const place = findPlace(question.value.text, loss.path);
  if (place) showRange(area, place);
}

/** Selects a part of the text and scrolls to it. Lines do not wrap, so the line says how far to scroll. */
function showRange(area: HTMLTextAreaElement | null, { start, end }: TextRange): void {
  if (!area) return;
  area.scrollIntoView({ block: "nearest" });
  area.focus({ preventScroll: true });
  area.setSelectionRange(start, end);
  const { line } = lineAndColumn(area.value, start);
  const lineHeight = parseFloat(getComputedStyle(area).lineHeight) || 18;
  area.scrollTop = Math.max(0, (line - 1) * lineHeight - area.clientHeight / 3);
  area.scrollLeft = 0;
}
