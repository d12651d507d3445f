// The first request with each SDK.

import { KEY_VARIABLE } from "./code";

export interface SdkSnippet {
  protocol: string;
  title: string;
  body: (model: string) => string;
  /** Variables that the SDK reads: where the gateway is, and the key. */
  variables: { base: string; path: string; key: string } | null;
}

const QUESTION = "What is Toolwire?";

export const SDK_SNIPPETS: readonly SdkSnippet[] = [
  {
    protocol: "openai-chat",
    title: "OpenAI",
    body: (model) => JSON.stringify({ model, messages: [{ role: "user", content: QUESTION }] }),
    variables: { base: "OPENAI_BASE_URL", path: "/v1", key: "OPENAI_API_KEY" },
  },
  {
    protocol: "openai-responses",
    title: "OpenAI Responses",
    body: (model) => JSON.stringify({ model, input: QUESTION }),
    variables: { base: "OPENAI_BASE_URL", path: "/v1", key: "OPENAI_API_KEY" },
  },
  {
    protocol: "anthropic",
    title: "Anthropic",
    body: (model) => JSON.stringify({ model, max_tokens: 1024, messages: [{ role: "user", content: QUESTION }] }),
    variables: { base: "ANTHROPIC_BASE_URL", path: "", key: "ANTHROPIC_API_KEY" },
  },
  {
    protocol: "gemini",
    title: "Google",
    body: () => JSON.stringify({ contents: [{ role: "user", parts: [{ text: QUESTION }] }] }),
    variables: { base: "GOOGLE_GEMINI_BASE_URL", path: "", key: "GEMINI_API_KEY" },
  },
  {
    protocol: "unified",
    title: "Unified, without an SDK",
    body: (model) => JSON.stringify({ model, messages: [{ role: "user", content: QUESTION }] }),
    variables: null,
  },
];

/** Lines for a shell; programs that use the SDK then need no change. */
export function writeEnvironment({ variables }: SdkSnippet, origin: string, needsKey: boolean): string {
  if (!variables) return "";
  return `export ${variables.base}=${origin}${variables.path}\nexport ${variables.key}=${needsKey ? `"$${KEY_VARIABLE}"` : "any"}\n`;
}
