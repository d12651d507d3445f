// A conversation in the unified protocol (docs/reference/unified.md): the steps of a client, as functions of values.
// Messages stay the text that they came as: `JSON.parse` would round large numbers in arguments.

import { findPointer, isContainer, parseJson, scalarText, type JsonNode } from "./json_text";

export interface Call {
  id: string;
  name: string;
  /** JSON. */
  arguments: string;
}

export interface Message {
  /** The whole message, as it is sent. */
  json: string;
  role: string;
  text: string;
  reasoning: string;
  calls: readonly Call[];
  results: readonly CallResult[];
}

export interface CallResult {
  callId: string;
  content: string;
  isError: boolean;
}

export interface ToolDraft {
  name: string;
  description: string;
  /** A JSON Schema, as a person writes it. */
  parameters: string;
}

export interface Settings {
  model: string;
  system: string;
  tools: readonly ToolDraft[];
  isStream: boolean;
}

/** A sentence that says what a person has to change, instead of a value. */
export class Problem {
  constructor(readonly message: string) {}
}

export function userMessage(text: string): Message {
  return readMessage(JSON.stringify({ role: "user", content: text }));
}

/** The message with the results of all calls of the message before it. */
export function resultMessage(results: readonly CallResult[]): Message {
  const items = results.map(({ callId, content, isError }) => `{"tool_call_id":${JSON.stringify(callId)},"content":${contentJson(content)}${isError ? ',"is_error":true' : ""}}`);
  return readMessage(`{"role":"tool","results":[${items.join(",")}]}`);
}

/** Objects and lists are sent as JSON, all else as text. */
function contentJson(content: string): string {
  const json = parseJson(content);
  return json.root && isContainer(json.root) && json.brokenAt < 0 ? content : JSON.stringify(content);
}

export function readMessage(json: string): Message {
  const { root, text } = parseJson(json);
  const at = (node: JsonNode, key: string): JsonNode | undefined => node.items.find((item) => item.key === key);
  const textAt = (node: JsonNode, key: string): string => {
    const found = at(node, key);
    return found?.kind === "string" ? scalarText(text, found) : found && isContainer(found) ? text.slice(found.start, found.end) : "";
  };
  const message = root ?? { kind: "object" as const, start: 0, end: 0, parent: null, key: null, items: [] };
  const content = at(message, "content");
  const parts = content?.kind === "array" ? content.items : [];
  const joinParts = (...types: string[]): string => parts.filter((part) => types.includes(textAt(part, "type"))).map((part) => textAt(part, "text")).join("\n\n");
  return {
    json,
    role: textAt(message, "role"),
    text: content?.kind === "string" ? scalarText(text, content) : joinParts("text", "refusal"),
    reasoning: joinParts("reasoning"),
    calls: (at(message, "tool_calls")?.items ?? []).map((call) => ({ id: textAt(call, "id"), name: textAt(call, "name"), arguments: textAt(call, "arguments") })),
    results: (at(message, "results")?.items ?? []).map((result) => ({
      callId: textAt(result, "tool_call_id"),
      content: textAt(result, "content"),
      isError: textOf(text, at(result, "is_error")) === "true",
    })),
  };
}

function textOf(text: string, node: JsonNode | undefined): string {
  return node ? text.slice(node.start, node.end) : "";
}

/** A request in the unified protocol, or what is wrong with a tool. */
export function writeRequest(settings: Settings, messages: readonly Message[]): string | Problem {
  const members = [`"model":${JSON.stringify(settings.model)}`];
  if (settings.system.trim()) members.push(`"system":${JSON.stringify(settings.system)}`);
  members.push(`"messages":[${messages.map((message) => message.json).join(",")}]`);
  const tools: string[] = [];
  for (const [index, tool] of settings.tools.entries()) {
    const json = writeTool(tool, index);
    if (json instanceof Problem) return json;
    tools.push(json);
  }
  if (tools.length) members.push(`"tools":[${tools.join(",")}]`);
  if (settings.isStream) members.push('"stream":true');
  return `{${members.join(",")}}`;
}

function writeTool(tool: ToolDraft, index: number): string | Problem {
  const name = tool.name.trim();
  const called = name ? `The tool \`${name}\`` : `Tool ${index + 1}`;
  if (!name) return new Problem(`${called} has no name.`);
  const start = `{"name":${JSON.stringify(name)},"description":${JSON.stringify(tool.description.trim() || name)}`;
  if (!tool.parameters.trim()) return `${start}}`;
  const schema = parseJson(tool.parameters);
  if (schema.brokenAt >= 0) return new Problem(`${called}: its parameters are not JSON from character ${schema.brokenAt + 1} on.`);
  if (schema.root?.kind !== "object") return new Problem(`${called}: its parameters must be a JSON Schema, which is an object.`);
  return `${start},"parameters":${tool.parameters.trim()}}`;
}

/** The calls at the end of a conversation that wait for results. */
export function openCalls(messages: readonly Message[]): readonly Call[] {
  return messages.at(-1)?.calls ?? [];
}

/** The messages of the request that would be sent now, or that brought the last answer: what the code is for. */
export function codeMessages(messages: readonly Message[], next: Message | null): readonly Message[] {
  if (next) return [...messages, next];
  const last = messages.at(-1);
  if (!last) return [userMessage("Hello")];
  return last.role === "assistant" ? messages.slice(0, -1) : messages;
}

export interface Answer {
  message: Message;
  stopReason: string;
  inputTokens: number | null;
  outputTokens: number | null;
}

/** An answer in the unified protocol: a whole one, or a stream, whose last event has it. */
export function readAnswer(text: string, kind: "response" | "stream"): Answer | Problem {
  const data = kind === "response" ? text : lastAnswer(text);
  if (data === null) return new Problem("The stream ended without an answer: it was cut off.");
  const { root } = parseJson(data);
  const message = root && findPointer(root, "/message");
  if (!root || !message?.isExact) {
    const error = root && findPointer(root, "/error/message");
    return new Problem(error?.isExact ? scalarText(data, error.node) : "The answer has no message.");
  }
  const at = (pointer: string): string => {
    const { node, isExact } = findPointer(root, pointer);
    return isExact ? scalarText(data, node) : "";
  };
  const count = (pointer: string): number | null => (at(pointer) ? Number(at(pointer)) : null);
  return {
    message: readMessage(data.slice(message.node.start, message.node.end)),
    stopReason: at("/stop_reason"),
    inputTokens: count("/usage/input_tokens"),
    outputTokens: count("/usage/output_tokens"),
  };
}

/** The answer in the `end` event of a stream, or its `error` event. */
function lastAnswer(frames: string): string | null {
  for (const frame of frames.split("\n\n").reverse()) {
    const data = frame.replace(/^data: ?/, "");
    const { root } = parseJson(data);
    const type = root && findPointer(root, "/type");
    const name = type?.isExact ? scalarText(data, type.node) : "";
    if (name === "error") return data;
    const response = root && findPointer(root, "/response");
    if (name === "end" && response?.isExact) return data.slice(response.node.start, response.node.end);
  }
  return null;
}

const DUMMY_RESULTS: readonly [RegExp, string][] = [
  [/weather|temperature|forecast/i, '{"temperature": 21, "unit": "C", "sky": "clear"}'],
  [/time|date|clock/i, '{"now": "2026-01-01T12:00:00Z"}'],
  [/search|find|list|query/i, '{"results": [{"title": "The first result", "url": "https://example.com/1"}]}'],
  [/read|cat|file|fetch|open/i, "Hello from the file.\n"],
];

/** A result that a person can send without inventing one. */
export function suggestResult(call: Call): string {
  return DUMMY_RESULTS.find(([pattern]) => pattern.test(call.name))?.[1] ?? '{"ok": true}';
}

export const EXAMPLE_TOOL: ToolDraft = {
  name: "get_weather",
  description: "The weather at a place, now.",
  parameters: `{
  "type": "object",
  "properties": {
    "location": {
      "type": "string",
      "description": "A city, such as Paris"
    }
  },
  "required": ["location"]
}`,
};
