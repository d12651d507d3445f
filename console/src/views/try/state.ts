// The conversation of the view Try, which stays while one looks at other views. It is kept in the unified protocol; the
// gateway translates each request to the chosen protocol, and each answer back.

import { batch, computed, signal } from "@preact/signals";
import type { LossRow, ProtocolInfo, TranslateAnswer, TranslateQuestion, TranslateResult } from "../../api";
import { postJson } from "../../client";
import { requestPath } from "../../core/code";
import { EXAMPLE_TOOL, openCalls, Problem, readAnswer, resultMessage, userMessage, writeRequest, type Answer, type CallResult, type Message, type ToolDraft } from "../../core/conversation";
import { gateway } from "../../gateway";
import { requestHeaders } from "../../client_key";

/** A message, and for an answer what is known about its exchange. */
export interface Entry {
  message: Message;
  answer: Answer | null;
  requestId: string;
  protocol: string;
  model: string;
}

export interface Sending {
  requestId: string;
  bytes: number;
}

export interface Failure {
  /** 0 without an answer of the gateway. */
  status: number;
  message: string;
  /** The answer as it came. */
  raw: string;
  requestId: string;
}

export const protocolName = signal("");
export const model = signal("");
export const isStream = signal(true);
export const system = signal("");
export const tools = signal<readonly ToolDraft[]>([EXAMPLE_TOOL]);
export const entries = signal<readonly Entry[]>([]);
export const draft = signal("");
/** What a person has written as results of the calls at the end, by the id of the call. */
export const results = signal<ReadonlyMap<string, CallResult>>(new Map());
export const sending = signal<Sending | null>(null);
export const failure = signal<Failure | null>(null);

export const protocol = computed<ProtocolInfo | null>(() => {
  const all = gateway.value?.protocols ?? [];
  return all.find((one) => one.name === protocolName.value) ?? all[0] ?? null;
});
export const messages = computed(() => entries.value.map((entry) => entry.message));
export const waitingCalls = computed(() => openCalls(messages.value));

export function resultOf(callId: string): CallResult {
  return results.value.get(callId) ?? { callId, content: "", isError: false };
}

/** The message that comes next: the results of the calls that wait, or what a person has written. */
export const nextMessage = computed<Message | null>(() => {
  if (waitingCalls.value.length) return resultMessage(waitingCalls.value.map((call) => resultOf(call.id)));
  return draft.value.trim() ? userMessage(draft.value) : null;
});

export function settings() {
  return { model: model.value, system: system.value, tools: tools.value, isStream: isStream.value };
}

/** A request in the chosen protocol, or why there is none. */
export async function translateRequest(all: readonly Message[], target: string, signal?: AbortSignal): Promise<{ body: string; losses: readonly LossRow[] } | Problem> {
  const request = writeRequest(settings(), all);
  if (request instanceof Problem) return request;
  const result = await translate({ text: request, kind: "request", source: "unified" }, target, signal);
  return result instanceof Problem ? result : { body: result.text, losses: result.losses };
}

async function translate(question: TranslateQuestion, target: string, signal?: AbortSignal): Promise<TranslateResult | Problem> {
  const answer = await postJson<TranslateAnswer>("translate", question, signal);
  const result = answer.results.find((one) => one.protocol === target);
  if (answer.error || !result) return new Problem(answer.error || `The gateway has no protocol \`${target}\`.`);
  return result.error ? new Problem(result.error) : result;
}

let abort: AbortController | null = null;
/** The API takes up to 2 MiB, and JSON makes a text longer. */
const MAX_ANSWER = 1_000_000;

export function stop(): void {
  abort?.abort();
}

export function clear(): void {
  stop();
  abort = null; // what comes of it belongs to no conversation
  batch(() => {
    sending.value = null;
    entries.value = [];
    results.value = new Map();
    failure.value = null;
    draft.value = "";
  });
}

/** Takes back the last message of the person, to change it. */
export function takeBack(): void {
  const last = entries.value.at(-1)?.message;
  batch(() => {
    entries.value = entries.value.slice(0, -1);
    failure.value = null;
    if (last?.role === "user") draft.value = last.text;
    else results.value = new Map(last?.results.map((result) => [result.callId, result]));
  });
}

/** Sends the conversation with what comes next; without it, as it is: another try after a failure. */
export async function send(): Promise<void> {
  const chosen = protocol.value;
  if (sending.value || !chosen || !model.value) return;
  const next = nextMessage.value;
  if (!next && entries.value.at(-1)?.message.role === "assistant") return;
  const control = (abort = new AbortController());
  batch(() => {
    if (next) entries.value = [...entries.value, { message: next, answer: null, requestId: "", protocol: "", model: "" }];
    if (next?.role === "user") draft.value = "";
    failure.value = null;
    sending.value = { requestId: "", bytes: 0 };
  });
  const ended = await exchange(chosen, control).catch(
    (error: unknown): Failure => ({ status: 0, message: control.signal.aborted ? "Stopped." : errorText(error), raw: "", requestId: sending.value?.requestId ?? "" }),
  );
  if (abort !== control) return;
  batch(() => {
    sending.value = null;
    if ("raw" in ended) failure.value = ended;
    else {
      entries.value = [...entries.value, ended];
      results.value = new Map();
    }
  });
}

function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** One request and its answer. */
async function exchange(chosen: ProtocolInfo, control: AbortController): Promise<Entry | Failure> {
  const asked = { protocol: chosen, model: model.value, isStream: isStream.value };
  const request = await translateRequest(messages.value, chosen.name, control.signal);
  if (request instanceof Problem) return { status: 0, message: request.message, raw: "", requestId: "" };
  const response = await fetch(requestPath(asked), { method: "POST", headers: requestHeaders(), body: request.body, signal: control.signal, credentials: "same-origin" });
  const requestId = response.headers.get("x-request-id") ?? "";
  const progress = (bytes: number): void => {
    if (abort === control) sending.value = { requestId, bytes };
  };
  progress(0);
  const raw = await readText(response, progress);
  const fail = (message: string): Failure => ({ status: response.status, message, raw, requestId });
  if (!response.ok) return fail(errorMessage(raw) || `The gateway answered with status ${response.status}.`);
  if (raw.length > MAX_ANSWER) return fail("The answer is too long to be read here.");
  const kind = response.headers.get("content-type")?.startsWith("text/event-stream") ? "stream" : "response";
  const result = await translate({ text: raw, kind, source: chosen.name }, "unified", control.signal);
  const answer = result instanceof Problem ? result : readAnswer(result.text, kind);
  if (answer instanceof Problem) return fail(answer.message);
  return { message: answer.message, answer, requestId, protocol: chosen.name, model: asked.model };
}

async function readText(response: Response, onBytes: (bytes: number) => void): Promise<string> {
  const decoder = new TextDecoder();
  let [text, bytes] = ["", 0];
  const reader = response.body?.getReader();
  for (let chunk = await reader?.read(); chunk && !chunk.done; chunk = await reader?.read()) {
    bytes += chunk.value.length;
    if (text.length <= MAX_ANSWER) text += decoder.decode(chunk.value, { stream: true });
    onBytes(bytes);
  }
  return text + decoder.decode();
}

/** The sentence of an error of any protocol: all of them have it in the same place. */
function errorMessage(raw: string): string {
  try {
    const { error } = JSON.parse(raw) as { error?: { message?: unknown } };
    return typeof error?.message === "string" ? error.message : "";
  } catch {
    return "";
  }
}
