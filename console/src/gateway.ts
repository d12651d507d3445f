// The connection to the gateway: its state, the recent exchanges, and the events that change them.

import { batch, computed, signal } from "@preact/signals";
import { API_PATH, type ConsoleState, type ExchangeList, type ExchangeRow, type Hello, type Output } from "./api";
import { getJson, postJson, RequestFailed } from "./client";
import { joinOutput, mergeRows, newestFirst } from "./core/exchange_rows";
import { FrameBatch } from "./core/frame_batch";

export type Connection = "connecting" | "open" | "gone" | "login";

export const connection = signal<Connection>("connecting");
/** Why the gateway cannot be asked, as a sentence. */
export const problem = signal("");
export const gateway = signal<ConsoleState | null>(null);
/** Newest first. */
export const rows = signal<readonly ExchangeRow[]>([]);
/** Have the exchanges been loaded at least once? */
export const isLoaded = signal(false);
/** Older exchanges that the gateway no longer has. */
export const removedCount = signal(0);
export const outputs = signal<ReadonlyMap<string, Output>>(new Map());
export const isPaused = signal(false);
/** Exchanges that wait because the list is paused. */
export const waitingCount = signal(0);

const byId = computed(() => new Map(rows.value.map((row) => [row.id, row])));

export function findRow(id: string): ExchangeRow | null {
  return byId.value.get(id) ?? null;
}

const MAX_ROWS = 20_000;
const MAX_OUTPUTS = 200;
const RETRY_MS = [500, 1000, 2000, 4000];

const nextFrame = (run: () => void): void => void requestAnimationFrame(run);
const rowBatch = new FrameBatch<ExchangeRow>(
  (changes) => (rows.value = mergeRows(rows.value, changes, rowLimit())),
  (_, added) => added,
  nextFrame,
);
const outputBatch = new FrameBatch<Output>(addOutputs, joinOutput, nextFrame);

function rowLimit(): number {
  return Math.min(MAX_ROWS, (gateway.value?.max_exchanges ?? MAX_ROWS) * Math.max(1, gateway.value?.workers ?? 1));
}

function addOutputs(added: ReadonlyMap<string, Output>): void {
  const all = new Map(outputs.value);
  for (const [id, output] of added) {
    const old = all.get(id);
    all.delete(id); // so that the order is that of the last change
    all.set(id, old ? joinOutput(old, output) : output);
  }
  for (const id of all.keys()) {
    if (all.size <= MAX_OUTPUTS) break;
    all.delete(id);
  }
  outputs.value = all;
}

export function pauseList(paused: boolean): void {
  isPaused.value = paused;
  waitingCount.value = 0;
  rowBatch.pause(paused);
  outputBatch.pause(paused);
}

let events: EventSource | null = null;
let tries = 0;
let timer = 0;
let gatewayId = "";

/** Connects, and stays connected: also after the gateway was restarted. */
export function connect(): void {
  clearTimeout(timer);
  events?.close();
  events = new EventSource(`${API_PATH}events`);
  events.addEventListener("hello", (event) => void greet(JSON.parse(event.data) as Hello));
  events.addEventListener("exchange", (event) => {
    const row = JSON.parse(event.data) as ExchangeRow;
    rowBatch.add(row.id, row);
    if (isPaused.value) waitingCount.value = rowBatch.size;
  });
  events.addEventListener("output", (event) => {
    const output = JSON.parse(event.data) as Output;
    outputBatch.add(output.id, output);
  });
  events.onerror = () => void reconnect();
}

/** A page in the background looks at nothing: after a while it lets the connection go, so that the gateway has no work for
 * it, and so that many open pages do not use up the browser's connections to one host. */
const HIDDEN_MS = 60_000;
let hiddenTimer = 0;
globalThis.document?.addEventListener("visibilitychange", () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = window.setTimeout(() => {
      clearTimeout(timer);
      events?.close();
    }, HIDDEN_MS);
  } else if (events && (events.readyState === EventSource.CLOSED || connection.value === "gone")) connectNow();
});

/** The page has logged in or out, or a person does not want to wait. */
export function connectNow(): void {
  tries = 0;
  if (connection.value === "login") connection.value = "connecting";
  connect();
}

/** Ends the session, and forgets all that the page has in memory: exchanges, conversations, a client key. */
export async function logOut(): Promise<void> {
  try {
    await postJson("logout", {});
    location.reload();
  } catch (error) {
    fail(error);
    void reconnect();
  }
}

async function reconnect(): Promise<void> {
  events?.close();
  clearTimeout(timer);
  const delay = RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)]!;
  // An EventSource does not say why it failed; the same question by fetch does.
  try {
    await getJson<ConsoleState>("state");
    if (connection.value === "open") connection.value = "connecting";
  } catch (error) {
    fail(error);
  }
  if (connection.value !== "login") timer = window.setTimeout(connect, delay);
}

function fail(error: unknown): void {
  const isRequest = error instanceof RequestFailed;
  batch(() => {
    connection.value = isRequest && error.status === 401 ? "login" : "gone";
    problem.value = isRequest ? [error.error.message, error.error.hint].filter(Boolean).join(". ") : String(error);
  });
}

/** Each connection begins with the whole list: events between two connections are lost. */
async function greet(hello: Hello): Promise<void> {
  try {
    const [state, list] = await Promise.all([getJson<ConsoleState>("state"), getJson<ExchangeList>("exchanges")]);
    batch(() => {
      gateway.value = state;
      if (gatewayId !== hello.gateway_id) outputs.value = new Map();
      gatewayId = hello.gateway_id;
      rows.value = [...list.exchanges].sort(newestFirst);
      removedCount.value = list.removed;
      isLoaded.value = true;
      connection.value = "open";
      problem.value = "";
      tries = 0;
    });
  } catch (error) {
    fail(error);
    void reconnect();
  }
}
