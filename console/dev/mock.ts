// Invented exchanges, for work on the page without a gateway: `MOCK=1 npm run dev`. Not part of the built page.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Plugin } from "vite";
import type * as api from "../src/api";

const GATEWAY_ID = String(Date.now());
const START = Number(process.env["MOCK_ROWS"] ?? 1200);
const LIVE = process.env["MOCK_LIVE"] !== "0";
let seed = 7;
const random = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
const pick = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!;

const CLIENTS = ["chat", "responses", "anthropic", "gemini"];
const AGENTS = ["claude-cli/2.0.31", "codex_cli_rs/0.56.0", "OpenAI/Python", "opencode/1.0.55", "curl/8.5.0", ""];
const PROVIDERS = [["openai", "gpt-5.1", "responses"], ["anthropic", "claude-sonnet-4-5-20250929", "anthropic"], ["vllm", "Qwen/Qwen3-Coder-30B-A3B-Instruct", "chat"], ["gemini", "gemini-2.5-pro", "gemini"], ["loopback", "loopback", "chat"]] as const;
const TOOLS = [["Read", "Read"], ["mcp__github__create_pull_request_review_comment", "mcp__github__create_pull_request_revi_3f9a"], ["get_weather", "get_weather"], ["apply_patch", "apply_patch"], ["Bash", "Bash"]] as const;
const LOSSES = ["cache-dropped", "name-rewritten", "no-counterpart", "reasoning-as-text", "policy-dropped", "schema-changed"];
const FAILURES = [["rate_limit", 429, "openai is rate limited: try again in 12 s"], ["upstream_timeout", 504, "vllm sent nothing for 60 s"], ["invalid_request", 400, "messages/2/content: expected a string or an array"]] as const;

const rows: api.ExchangeRow[] = [];
let number = 0;

function makeRow(startedAt: number, state: api.ExchangeRow["state"] = "done"): api.ExchangeRow {
  const [provider, model, protocol] = pick(PROVIDERS);
  const failed = state === "done" && random() < 0.06 ? pick(FAILURES) : null;
  const losses = random() < 0.35 ? [...new Set([pick(LOSSES), pick(LOSSES)])] : [];
  const duration = 200 + random() ** 3 * 30000;
  const input = Math.round(400 + random() ** 2 * 90000);
  return {
    id: `${number % 2}-${number++}`, request_id: `req_${(1e6 * random()).toFixed(0)}`, state: failed ? "failed" : state, started_at: startedAt,
    first_byte_ms: failed ? null : duration * 0.3, duration_ms: state === "running" ? null : duration, operation: "chat", method: "POST",
    path: "/v1/messages", agent: pick(AGENTS), key_name: random() < 0.2 ? "team-a" : "", client_protocol: pick(CLIENTS), provider_protocol: protocol,
    provider, requested_model: random() < 0.5 ? "coder" : model, model, stream: random() < 0.8, passthrough: random() < 0.1,
    status: failed ? failed[1] : state === "running" ? 0 : 200, failure: failed ? failed[0] : "", message: failed ? failed[2] : "", losses,
    loss_count: losses.length * 2, called_tools: !failed && random() < 0.5 ? [pick(TOOLS), pick(TOOLS)].slice(random() < 0.7 ? 1 : 0).map(([client, p]) => ({ client, provider: p })) : [],
    tool_runs: random() < 0.05 ? ["web_search"] : [], tokens: failed || state === "running" ? null : { input, output: Math.round(20 + random() * 1500), cache_read: Math.round(input * random()) },
    attempts: random() < 0.1 ? 2 : 1, bytes_in: input * 4, bytes_out: 4000, session: random() < 0.5 ? "s1" : "",
  }; // prettier-ignore
}
for (let index = 0; index < START; index++) rows.unshift(makeRow(Date.now() / 1000 - (START - index) * 7));

const LONG = "You are Claude Code, Anthropic's official CLI for Claude.\n\n# Tone and style\nBe concise, direct, and to the point.\n".repeat(12);
const SCHEMA = { type: "object", properties: { owner: { type: "string" }, repo: { type: "string" }, pullNumber: { type: "integer", minimum: 1 }, body: { type: "string" } }, required: ["owner", "repo"], additionalProperties: false };
const BIG = TOOLS[1];
const clientRequest = { model: "coder", max_tokens: 32000, stream: true, temperature: 1.0, system: [{ type: "text", text: LONG, cache_control: { type: "ephemeral" } }], messages: [{ role: "user", content: [{ type: "text", text: "Review the pull request <img src=x onerror=alert(1)> and comment on the off-by-one error." }] }, { role: "assistant", content: [{ type: "thinking", thinking: "I need the diff.", signature: "EqQBCkYIBxgCKkBh" }, { type: "tool_use", id: "toolu_01A", name: "Read", input: { file_path: "/src/window.ts" } }] }, { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_01A", content: "export function visibleRows() {}\n" }] }], tools: [{ name: "Read", description: "Reads a file.", input_schema: { type: "object", properties: { file_path: { type: "string" } } } }, { name: BIG[0], description: "Adds a review comment.", input_schema: SCHEMA }, { type: "web_search_20250305", name: "web_search" }] };
const providerRequest = { model: "Qwen/Qwen3-Coder-30B-A3B-Instruct", max_completion_tokens: 32000, stream: true, stream_options: { include_usage: true }, temperature: 1.0, messages: [{ role: "system", content: LONG }, { role: "user", content: clientRequest.messages[0]!.content }, { role: "assistant", tool_calls: [{ id: "toolu_01A", type: "function", function: { name: "Read", arguments: '{"file_path":"/src/window.ts"}' } }] }, { role: "tool", tool_call_id: "toolu_01A", content: "export function visibleRows() {}\n" }], tools: [{ type: "function", function: { name: "Read", description: "Reads a file.", parameters: { type: "object", properties: { file_path: { type: "string" } } } } }, { type: "function", function: { name: BIG[1], description: "Adds a review comment.", parameters: { ...SCHEMA, additionalProperties: undefined } } }] };
const body = (value: unknown): api.Body => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return { text, size: text.length, is_cut: false };
};
const ANSWER = "The loop reads one row too many: `end` is inclusive here and exclusive in the caller. I'll leave a comment on line 14.";
const words = ANSWER.split(/(?<= )/);

function makeDetail(row: api.ExchangeRow): api.ExchangeDetail {
  const provider: api.StreamEvent[] = [], client: api.StreamEvent[] = [];
  let ms = 812;
  client.push({ ms: ms + 1, event: "message_start", data: JSON.stringify({ type: "message_start", message: { id: "msg_1", role: "assistant", content: [], model: "coder" } }) });
  for (let index = 0; index < 400; index++) {
    ms += 4 + random() ** 4 * 200;
    provider.push({ ms, event: "", data: JSON.stringify({ id: "chatcmpl-9", choices: [{ index: 0, delta: { content: words[index % words.length] } }] }) });
    client.push({ ms: ms + 0.3, event: "content_block_delta", data: JSON.stringify({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: words[index % words.length] } }) });
  }
  provider.push({ ms: ms + 1, event: "", data: "[DONE]" });
  client.push({ ms: ms + 2, event: "message_stop", data: '{"type":"message_stop"}' });
  const empty = body("");
  const call = { id: "call_8f", name: BIG[1], arguments: '{"owner":"acme","repo":"app","pullNumber":12,"body":"One row too many."}', result: "", has_result: false, is_error: false };
  return {
    row, output: { id: row.id, text: ANSWER, reasoning: "The range is half-open in the caller.", calls: row.called_tools.map((tool) => tool.client), bytes_out: row.bytes_out },
    client: { protocol: "anthropic", method: "POST", path: "/v1/messages", request: body({ ...clientRequest, model: row.requested_model }), status: row.status, response: empty, events: client },
    upstream_calls: [
      { provider: "openai", protocol: "chat", url: "https://api.openai.example/v1/chat/completions", request: body(providerRequest), status: 429, error: "", started_ms: 3, head_ms: 210, ended_ms: 212, response: body({ error: { message: "Rate limit reached", type: "requests", code: "rate_limit_exceeded" } }), events: [] },
      { provider: row.provider, protocol: row.provider_protocol, url: "http://10.0.0.5:8000/v1/chat/completions", request: body({ ...providerRequest, model: row.model }), status: 200, error: "", started_ms: 220, head_ms: 810, ended_ms: ms + 1, response: empty, events: provider },
    ],
    tools: [
      { client_name: "Read", provider_name: "Read", kind: "function", state: "kept", reasons: [], client_declaration: JSON.stringify(clientRequest.tools[0]), provider_declaration: JSON.stringify(providerRequest.tools[0]) },
      { client_name: BIG[0], provider_name: BIG[1], kind: "function", state: "renamed", reasons: ["name-rewritten: OpenAI allows at most 64 characters"], client_declaration: JSON.stringify(clientRequest.tools[1]), provider_declaration: JSON.stringify(providerRequest.tools[1]) },
      { client_name: "web_search", provider_name: "", kind: "web_search", state: "dropped", reasons: ["tool-dropped: vllm does not run this tool"], client_declaration: JSON.stringify(clientRequest.tools[2]), provider_declaration: "" },
      { client_name: "", provider_name: "docs_search", kind: "function", state: "added", reasons: ["policy rule 2 adds the tools of the MCP server docs"], client_declaration: "", provider_declaration: '{"type":"function","function":{"name":"docs_search"}}' },
    ],
    calls: [
      { is_in_answer: false, client: { id: "toolu_01A", name: "Read", arguments: '{"file_path":"/src/window.ts"}', result: "export function visibleRows() {}\n", has_result: true, is_error: false }, provider: { id: "toolu_01A", name: "Read", arguments: '{"file_path":"/src/window.ts"}', result: "export function visibleRows() {}\n", has_result: true, is_error: false } },
      { is_in_answer: true, client: { ...call, id: "toolu_call_8f", name: BIG[0] }, provider: call },
    ],
    losses: [
      { code: "cache-dropped", severity: "lost", path: "/system/0/cache_control", is_in_answer: false, what: "cache_control", why: "the target has no cache breakpoint here" },
      { code: "name-rewritten", severity: "changed", path: "/tools/1/name", is_in_answer: false, what: `${BIG[0]} became ${BIG[1]}`, why: "the target allows only certain characters or a shorter name" },
      { code: "reasoning-dropped", severity: "lost", path: "/messages/1/content/0", is_in_answer: false, what: "thinking", why: "the target accepts here only thinking that it has signed itself" },
      { code: "unknown-field", severity: "lost", path: "event/12/choices/0/delta", is_in_answer: true, what: "x", why: "only the source has this field" },
    ],
    steps: [
      { name: "prepare", detail: "translate the request", started_ms: 0, duration_ms: 3 }, { name: "openai", detail: "429, retried elsewhere", started_ms: 3, duration_ms: 209 },
      { name: `${row.provider} first byte`, detail: "fallback", started_ms: 220, duration_ms: 590 }, { name: `${row.provider} answer`, detail: "401 events", started_ms: 810, duration_ms: ms - 810 },
    ],
    curl: `curl http://127.0.0.1:8642/v1/messages \\\n  -H "x-api-key: $TOOLWIRE_KEY" \\\n  -d '${JSON.stringify(clientRequest).replaceAll("'", "'\\''")}'`,
  }; // prettier-ignore
}

const session: api.SessionRow = { id: "s1", title: "Review the pull request and comment on the off-by-one error", source: "header", agent: "claude-cli/2.0.31", models: ["claude-sonnet-4-5-20250929", "gpt-5.1"], turns: 9, started_at: Date.now() / 1000 - 900, last_at: Date.now() / 1000 - 30, tokens: { input: 482000, output: 9100, cache_read: 361000 }, broken_prefixes: 2 };
const turns = (): api.SessionTurn[] =>
  rows.filter((row) => row.tokens).slice(0, 9).reverse().map((exchange, index) => {
    const input = 22000 + index * 6000, isBroken = index === 4 || index === 7;
    return {
      exchange: { ...exchange, tokens: { input, output: 300 + 100 * index, cache_read: index === 0 ? 0 : isBroken ? 900 : input - 4000, cache_write: isBroken ? 20000 : 3000 } }, prefix_bytes: input * 4 - 2000,
      prefix_break: isBroken ? { place: "/tools/3/description", same_bytes: 3612, before: '"description":"Runs a command. The time is 2026-11-16T22:01:07Z, the folder /src', after: '"description":"Runs a command. The time is 2026-11-16T22:04:55Z, the folder /src', difference: 59, cause: "The description of a tool contains a time, so the prefix is another one in each request." } : null,
    }; // prettier-ignore
  });

const state: api.ConsoleState = { version: "0.9.0", gateway_id: GATEWAY_ID, needs_client_key: false, can_log_out: false, workers: 2, max_exchanges: 2000, max_bytes: 64e6, protocols: [{ name: "chat", title: "OpenAI Chat Completions", path: "/v1/chat/completions", stream_path: "/v1/chat/completions", has_model_in_body: true }, { name: "responses", title: "OpenAI Responses", path: "/v1/responses", stream_path: "/v1/responses", has_model_in_body: true }, { name: "anthropic", title: "Anthropic Messages", path: "/v1/messages", stream_path: "/v1/messages", has_model_in_body: true }, { name: "gemini", title: "Google Gemini", path: "/v1beta/models/{model}:generateContent", stream_path: "/v1beta/models/{model}:streamGenerateContent?alt=sse", has_model_in_body: false }] };

const listeners = new Set<ServerResponse>();
const send = (event: string, data: unknown): void => listeners.forEach((one) => one.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`));

function runOne(requestId?: string): void {
  const row = { ...makeRow(Date.now() / 1000, "running"), stream: true, ...(requestId && { request_id: requestId }) };
  rows.unshift(row);
  send("exchange", row);
  let index = 0;
  const timer = setInterval(() => {
    send("output", { id: row.id, text: words[index % words.length]!, reasoning: "", calls: index === 20 ? ["Read"] : [], bytes_out: index * 150 });
    if (++index < 60) return;
    clearInterval(timer);
    const done: api.ExchangeRow = { ...row, state: "done", status: 200, first_byte_ms: 80, duration_ms: 4800, tokens: { input: 1200, output: 60 }, bytes_out: 9000 };
    rows[rows.indexOf(row)] = done;
    send("exchange", done);
  }, 80);
}

function answer(request: IncomingMessage, response: ServerResponse, next: () => void): void {
  const url = request.url ?? "";
  const path = url.replace("/console/api/v1/", "");
  if (url.startsWith("/v1/")) {
    runOne("req_again");
    response.writeHead(200, { "content-type": "text/event-stream", "x-request-id": "req_again" });
    let count = 0;
    const timer = setInterval(() => (count++ < 50 ? response.write(`data: {"n":${count}}\n\n`) : (clearInterval(timer), response.end())), 90);
    return;
  }
  if (path === url) return next();
  const json = (value: unknown, status = 200): void => void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
  const [kind, id] = path.split("/");
  const row = rows.find((one) => one.id === id);
  if (path === "events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    listeners.add(response);
    request.on("close", () => listeners.delete(response));
    response.write(`event: hello\ndata: ${JSON.stringify({ gateway_id: GATEWAY_ID })}\n\n`);
  } else if (path === "state") json(state);
  else if (path === "exchanges") json({ exchanges: rows, removed: 31 });
  else if (kind === "exchanges" && row) json(makeDetail(row));
  else if (path === "sessions") json({ sessions: START ? [session, { ...session, id: "s2", title: "What is the weather in Paris?", turns: 2, models: ["loopback"], source: "prefix", broken_prefixes: 0, agent: "curl/8.5.0" }] : [] });
  else if (kind === "sessions") json({ session, turns: turns() });
  else if (path === "models") json({ models: PROVIDERS.map(([provider, name]) => ({ name, provider })), problems: [] });
  else json({ message: "This exchange is no longer kept", hint: "The console keeps the last 2,000." }, 404);
}

export function mock(): Plugin {
  return {
    name: "mock",
    configureServer(server) {
      server.middlewares.use(answer);
      if (LIVE) setInterval(runOne, 2500);
    },
  };
}
