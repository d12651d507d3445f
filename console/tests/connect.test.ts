import { describe, expect, test } from "vitest";
import type { ProtocolInfo } from "../src/api";
import { AGENTS } from "../src/core/agents";
import { writeCode, type CodeRequest, type Language } from "../src/core/code";
import { SDK_SNIPPETS, writeEnvironment } from "../src/core/snippets";

const FILES = import.meta.glob<string>("../../src/toolwire/agents/*.toml", { query: "?raw", import: "default", eager: true });

function protocolNamed(name: string): ProtocolInfo {
  const path = name === "gemini" ? "/v1beta/models/{model}:generateContent" : `/v1/${name}`;
  return { name, path, stream_path: name === "gemini" ? "/v1beta/models/{model}:streamGenerateContent?alt=sse" : path, has_model_in_body: name !== "gemini" };
}

function requestOf(name: string, body: unknown, part: Partial<CodeRequest> = {}): CodeRequest {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { protocol: protocolNamed(name), body: text, model: "a/b", isStream: false, origin: "http://127.0.0.1:8642", needsKey: false, ...part };
}

describe("the agents are those of toolwire run", () => {
  const files = new Map(Object.entries(FILES).map(([path, text]) => [/([^/]+)\.toml$/.exec(path)![1]!, text]));
  test("all of them, in the same order", () => expect(AGENTS.map((agent) => agent.name)).toEqual([...files.keys()].sort()));

  test.each(AGENTS.map((agent) => [agent.name, agent] as const))("%s", (name, agent) => {
    const file = files.get(name)!;
    expect(agent.title).toBe(/^title = "(.*)"$/m.exec(file)?.[1]);
    expect(agent.protocols).toEqual([...file.matchAll(/^\[protocols\.([a-z-]+)\]$/gm)].map((found) => found[1]));
    const lines = agent.byHand?.({ origin: "http://here:1", key: "any", model: "m" }) ?? "";
    for (const [, variable] of lines.matchAll(/export (\w+)=/g)) expect(file).toContain(`\n${variable} = `);
    if (lines) expect(lines).toContain("http://here:1");
  });
});

describe("code", () => {
  const languages: Language[] = ["python", "typescript", "curl"];
  test.each(SDK_SNIPPETS.flatMap((snippet) => languages.map((language) => [snippet.protocol, language, snippet] as const)))("%s in %s", (name, language, snippet) => {
    const code = writeCode(language, requestOf(name, snippet.body("a/b")));
    expect(code).toMatchSnapshot();
    expect(code).toContain("http://127.0.0.1:8642");
    const withKey = writeCode(language, requestOf(name, snippet.body("a/b"), { needsKey: true, isStream: true }));
    expect(withKey).toContain("TOOLWIRE_CLIENT_KEY");
    expect(withKey).not.toContain('"any"');
  });

  test("values of JSON are values of the language", () => {
    const body = '{"model":"m","messages":[],"a":[true,false,null,12345678901234567890,1.0],"x":{"y-z":"\\ud83d\\ude00 \\/ \\" \\u0001"}}';
    expect(writeCode("python", requestOf("anthropic", body))).toContain('a=[True, False, None, 12345678901234567890, 1.0],\n    x={"y-z": "😀 / \\" \\u0001"}');
    expect(writeCode("typescript", requestOf("anthropic", body))).toContain('a: [true, false, null, 12345678901234567890, 1.0],\n  x: { "y-z": "😀 / \\" \\u0001" }');
  });

  test("a quote cannot end the text of a command", () => {
    expect(writeCode("curl", requestOf("anthropic", { model: "it's; rm -rf" }))).toContain("-d '{\"model\":\"it'\\''s; rm -rf\"}'");
  });

  test("Google's SDKs take a configuration, and its Python SDK takes bytes", () => {
    const body = { systemInstruction: { parts: [] }, contents: [{ role: "model", parts: [{ text: "", thoughtSignature: "AAAA" }] }], generationConfig: { maxOutputTokens: 5 } };
    const python = writeCode("python", requestOf("gemini", body, { isStream: true }));
    expect(python).toContain('config={"system_instruction": {"parts": []}, "max_output_tokens": 5}');
    expect(python).toContain('"thoughtSignature": b64decode("AAAA")');
    expect(python).toContain("from base64 import b64decode");
    expect(python).toContain("generate_content_stream(");
    expect(writeCode("typescript", requestOf("gemini", body))).toContain('thoughtSignature: "AAAA"');
    expect(writeCode("curl", requestOf("gemini", body))).toContain("'http://127.0.0.1:8642/v1beta/models/a%2Fb:generateContent'");
  });

  test("what is not JSON has no code", () => expect(writeCode("python", requestOf("gemini", "{"))).toBe(""));
});

test("variables of the environment", () => {
  expect(SDK_SNIPPETS.map((snippet) => writeEnvironment(snippet, "http://a:1", false))).toEqual([
    "export OPENAI_BASE_URL=http://a:1/v1\nexport OPENAI_API_KEY=any\n",
    "export OPENAI_BASE_URL=http://a:1/v1\nexport OPENAI_API_KEY=any\n",
    "export ANTHROPIC_BASE_URL=http://a:1\nexport ANTHROPIC_API_KEY=any\n",
    "export GOOGLE_GEMINI_BASE_URL=http://a:1\nexport GEMINI_API_KEY=any\n",
    "",
  ]);
  expect(writeEnvironment(SDK_SNIPPETS[0]!, "http://a:1", true)).toContain('OPENAI_API_KEY="$TOOLWIRE_CLIENT_KEY"');
});
