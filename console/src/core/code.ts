// A request as code that sends it: Python and TypeScript with the official SDKs, and curl.

import type { ProtocolInfo } from "../api";
import { parseJson, scalarText, type JsonNode } from "./json_text";

export type Language = "python" | "typescript" | "curl";

export interface CodeRequest {
  protocol: ProtocolInfo;
  /** JSON in this protocol. */
  body: string;
  model: string;
  isStream: boolean;
  /** Of the gateway, such as `http://127.0.0.1:8642`. */
  origin: string;
  needsKey: boolean;
}

export const KEY_VARIABLE = "TOOLWIRE_CLIENT_KEY";
export const KEY_HEADER = "x-toolwire-key";

/** Code for the request; a sentence if the body cannot be read. */
export function writeCode(language: Language, request: CodeRequest): string {
  const json = parseJson(request.body);
  if (json.root?.kind !== "object" || json.brokenAt >= 0) return "";
  const body = readValue(json.text, json.root) as ObjectValue;
  const sdk = SDKS[request.protocol.name] ?? NO_SDK;
  if (language === "curl") return writeCurl(request);
  return language === "python" ? sdk.python(request, body) : sdk.typescript(request, body);
}

export function requestPath({ protocol, model, isStream }: Pick<CodeRequest, "protocol" | "model" | "isStream">): string {
  return (isStream ? protocol.stream_path : protocol.path).replace("{model}", encodeURIComponent(model));
}

function writeCurl(request: CodeRequest): string {
  const lines = [`curl${request.isStream ? " -N" : ""} ${quoteShell(request.origin + requestPath(request))}`, "-H 'content-type: application/json'"];
  if (request.needsKey) lines.push(`-H "${KEY_HEADER}: $${KEY_VARIABLE}"`);
  lines.push(`-d ${quoteShell(request.body)}`);
  return lines.join(" \\\n  ");
}

function quoteShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// --- values ---

interface ObjectValue {
  kind: "object";
  members: readonly (readonly [string, Value])[];
}
type Value = ObjectValue | { kind: "array"; items: readonly Value[] } | { kind: "string"; text: string } | { kind: "token"; text: string } | { kind: "bytes"; base64: string };

/** Members of Gemini's JSON that are bytes in base64; its Python SDK takes bytes. */
const GEMINI_BYTES: ReadonlySet<string | number | null> = new Set(["thoughtSignature", "data"]);

function readValue(text: string, node: JsonNode, bytes: ReadonlySet<string | number | null> = new Set()): Value {
  if (node.kind === "object") return { kind: "object", members: node.items.map((item) => [String(item.key), readValue(text, item, bytes)]) };
  if (node.kind === "array") return { kind: "array", items: node.items.map((item) => readValue(text, item, bytes)) };
  if (node.kind !== "string") return { kind: "token", text: text.slice(node.start, node.end) };
  return bytes.has(node.key) ? { kind: "bytes", base64: scalarText(text, node) } : { kind: "string", text: scalarText(text, node) };
}

/** How a language writes values. */
interface Style {
  tokens: Readonly<Record<string, string>>;
  key: (name: string) => string;
  bytes: (base64: string) => string;
  indent: string;
  /** Between the brackets of an object on one line. */
  space: string;
}

const PYTHON: Style = {
  tokens: { true: "True", false: "False", null: "None" },
  key: (name) => `${writeString(name)}: `,
  bytes: (base64) => `b64decode(${writeString(base64)})`,
  indent: "    ",
  space: "",
};
const TYPESCRIPT: Style = {
  tokens: {},
  key: (name) => `${/^[A-Za-z_$][\w$]*$/.test(name) ? name : writeString(name)}: `,
  bytes: writeString,
  indent: "  ",
  space: " ",
};

/** JSON.stringify writes only escapes that Python and TypeScript read in the same way. */
function writeString(text: string): string {
  return JSON.stringify(text);
}

const LINE = 88;

function writeValue(value: Value, style: Style, depth = 0, used = 0): string {
  if (value.kind === "string") return writeString(value.text);
  if (value.kind === "token") return style.tokens[value.text] ?? value.text;
  if (value.kind === "bytes") return style.bytes(value.base64);
  const [open, close] = value.kind === "object" ? ["{", "}"] : ["[", "]"];
  const write = (inner: number): string[] =>
    value.kind === "object"
      ? value.members.map(([name, item]) => style.key(name) + writeValue(item, style, inner, style.key(name).length))
      : value.items.map((item) => writeValue(item, style, inner));
  const parts = write(depth + 1);
  if (!parts.length) return open + close;
  const space = value.kind === "object" ? style.space : "";
  const line = open + space + parts.join(", ") + space + close;
  if (!line.includes("\n") && line.length + used + style.indent.length * depth <= LINE) return line;
  const inside = style.indent.repeat(depth + 1);
  return `${open}\n${parts.map((part) => `${inside}${part},\n`).join("")}${style.indent.repeat(depth)}${close}`;
}

// --- SDKs ---

interface Sdk {
  python: (request: CodeRequest, body: ObjectValue) => string;
  typescript: (request: CodeRequest, body: ObjectValue) => string;
}

interface SdkText {
  python: { importLine: string; client: (origin: string, key: string) => string; call: string; result: string };
  typescript: { importLine: string; client: (origin: string, key: string) => string; call: string; result: string };
}

const OPENAI = {
  python: { importLine: "from openai import OpenAI", client: (origin: string, key: string) => `OpenAI(base_url="${origin}/v1", api_key=${key})` },
  typescript: { importLine: 'import OpenAI from "openai";', client: (origin: string, key: string) => `new OpenAI({ baseURL: "${origin}/v1", apiKey: ${key} })` },
};

/** SDKs whose methods take the members of the body as arguments. */
function sdkOf(text: SdkText): Sdk {
  return {
    python: (request, body) => writePython(text.python, request, body.members, text.python.call),
    typescript: (request, body) => writeTypescript(text.typescript, request, body, text.typescript.call),
  };
}

function pythonKey(needsKey: boolean): string {
  return needsKey ? `os.environ["${KEY_VARIABLE}"]` : '"any"';
}

function typescriptKey(needsKey: boolean): string {
  return needsKey ? `process.env.${KEY_VARIABLE}` : '"any"';
}

function writePython(text: SdkText["python"], request: CodeRequest, members: ObjectValue["members"], call: string): string {
  const args = members.map(([name, value]) => `    ${name}=${writeValue(value, PYTHON, 1, name.length + 1)},\n`).join("");
  const code = [`client = ${text.client(request.origin, pythonKey(request.needsKey))}`, `answer = client.${call}(\n${args})`];
  code.push(request.isStream ? "for event in answer:\n    print(event)" : `print(${text.result})`);
  const needed = [request.needsKey && "import os", code.some((part) => part.includes("b64decode(")) && "from base64 import b64decode"].filter(Boolean);
  return `${[...needed, ...(needed.length ? [""] : []), text.importLine].join("\n")}\n\n${code.join("\n")}\n`;
}

function writeTypescript(text: SdkText["typescript"], request: CodeRequest, body: Value, call: string): string {
  const code = [text.importLine, "", `const client = ${text.client(request.origin, typescriptKey(request.needsKey))};`];
  code.push(`const answer = await client.${call}(${writeValue(body, TYPESCRIPT)});`);
  code.push(request.isStream ? "for await (const event of answer) {\n  console.log(event);\n}" : `console.log(${text.result});`);
  return `${code.join("\n")}\n`;
}

const GOOGLE: SdkText = {
  python: {
    importLine: "from google import genai",
    client: (origin, key) => `genai.Client(api_key=${key}, http_options={"base_url": "${origin}"})`,
    call: "models.generate_content",
    result: "answer.candidates[0].content",
  },
  typescript: {
    importLine: 'import { GoogleGenAI } from "@google/genai";',
    client: (origin, key) => `new GoogleGenAI({ apiKey: ${key}, httpOptions: { baseUrl: "${origin}" } })`,
    call: "models.generateContent",
    result: "answer.candidates?.[0]?.content",
  },
};

/** Google's SDKs take the model, the contents, and all else as one configuration. */
function googleArguments(request: CodeRequest, rename: (name: string) => string): ObjectValue["members"] {
  const json = parseJson(request.body);
  const { members } = readValue(json.text, json.root!, GEMINI_BYTES) as ObjectValue;
  const rest = members.filter(([name]) => name !== "contents" && name !== "model");
  const config = rest.flatMap(([name, value]): readonly (readonly [string, Value])[] => (name === "generationConfig" && value.kind === "object" ? value.members : [[name, value]]));
  const contents = members.filter(([name]) => name === "contents");
  const model: readonly [string, Value] = ["model", { kind: "string", text: request.model }];
  if (!config.length) return [model, ...contents];
  return [model, ...contents, ["config", { kind: "object", members: config.map(([name, value]) => [rename(name), value] as const) }]];
}

const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (char) => `_${char.toLowerCase()}`);

/** Protocols without an SDK of their own. */
const NO_SDK: Sdk = {
  python: (request, body) => {
    const imports = ["import json", ...(request.needsKey ? ["import os"] : []), "from urllib.request import Request, urlopen"].join("\n");
    const headers = `{"content-type": "application/json"${request.needsKey ? `, "${KEY_HEADER}": ${pythonKey(true)}` : ""}}`;
    const url = writeString(request.origin + requestPath(request));
    const result = request.isStream ? 'for line in answer:\n        print(line.decode(), end="")' : "print(json.load(answer))";
    return `${imports}\n\nbody = ${writeValue(body, PYTHON)}\nrequest = Request(${url}, json.dumps(body).encode(), ${headers})\nwith urlopen(request) as answer:\n    ${result}\n`;
  },
  typescript: (request, body) => {
    const headers = `{ "content-type": "application/json"${request.needsKey ? `, "${KEY_HEADER}": ${typescriptKey(true)}!` : ""} }`;
    const result = request.isStream
      ? "for await (const text of answer.body!.pipeThrough(new TextDecoderStream())) {\n  process.stdout.write(text);\n}"
      : "console.log(await answer.json());";
    const url = writeString(request.origin + requestPath(request));
    return `const body = ${writeValue(body, TYPESCRIPT)};\nconst answer = await fetch(${url}, {\n  method: "POST",\n  headers: ${headers},\n  body: JSON.stringify(body),\n});\n${result}\n`;
  },
};

const SDKS: Readonly<Record<string, Sdk>> = {
  "openai-chat": sdkOf({
    python: { ...OPENAI.python, call: "chat.completions.create", result: "answer.choices[0].message" },
    typescript: { ...OPENAI.typescript, call: "chat.completions.create", result: "answer.choices[0]?.message" },
  }),
  "openai-responses": sdkOf({
    python: { ...OPENAI.python, call: "responses.create", result: "answer.output" },
    typescript: { ...OPENAI.typescript, call: "responses.create", result: "answer.output" },
  }),
  anthropic: sdkOf({
    python: {
      importLine: "from anthropic import Anthropic",
      client: (origin, key) => `Anthropic(base_url="${origin}", api_key=${key})`,
      call: "messages.create",
      result: "answer.content",
    },
    typescript: {
      importLine: 'import Anthropic from "@anthropic-ai/sdk";',
      client: (origin, key) => `new Anthropic({ baseURL: "${origin}", apiKey: ${key} })`,
      call: "messages.create",
      result: "answer.content",
    },
  }),
  gemini: {
    python: (request) => writePython(GOOGLE.python, request, googleArguments(request, snakeCase), GOOGLE.python.call + (request.isStream ? "_stream" : "")),
    typescript: (request) =>
      writeTypescript(GOOGLE.typescript, request, { kind: "object", members: googleArguments(request, (name) => name) }, GOOGLE.typescript.call + (request.isStream ? "Stream" : "")),
  },
};
