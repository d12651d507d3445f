import { describe, expect, test } from "vitest";
import { codeMessages, EXAMPLE_TOOL, openCalls, Problem, readAnswer, readMessage, resultMessage, suggestResult, userMessage, writeRequest, type Settings } from "../src/core/conversation";

const SETTINGS: Settings = { model: "loopback", system: "", tools: [], isStream: false };
const ASSISTANT = '{"role":"assistant","content":null,"tool_calls":[{"id":"tw_1","name":"f","arguments":{"n":12345678901234567890}},{"id":"tw_2","name":"g","arguments":{}}]}';

function requestOf(settings: Partial<Settings>, ...messages: string[]): unknown {
  const request = writeRequest({ ...SETTINGS, ...settings }, messages.map(readMessage));
  return request instanceof Problem ? request.message : JSON.parse(request);
}

describe("requests", () => {
  test("only what was set is in them", () => {
    expect(requestOf({}, userMessage('say "hi"').json)).toEqual({ model: "loopback", messages: [{ role: "user", content: 'say "hi"' }] });
  });

  test("with all settings", () => {
    expect(requestOf({ system: "Be brief.", tools: [EXAMPLE_TOOL], isStream: true })).toEqual({
      model: "loopback",
      system: "Be brief.",
      messages: [],
      tools: [{ name: "get_weather", description: EXAMPLE_TOOL.description, parameters: JSON.parse(EXAMPLE_TOOL.parameters) }],
      stream: true,
    });
  });

  test.each([
    [{ name: " ", description: "", parameters: "" }, "Tool 1 has no name."],
    [{ name: "f", description: "", parameters: '{"a":}' }, "The tool `f`: its parameters are not JSON from character 6 on."],
    [{ name: "f", description: "", parameters: "[]" }, "The tool `f`: its parameters must be a JSON Schema, which is an object."],
  ])("a tool that cannot be sent: %j", (tool, problem) => expect(requestOf({ tools: [tool] })).toBe(problem));

  test("messages of the model are sent back as they came, also large numbers", () => {
    expect(writeRequest(SETTINGS, [readMessage(ASSISTANT)])).toContain(ASSISTANT);
  });
});

describe("results of calls", () => {
  test("objects and lists are JSON, all else is text", () => {
    const contents = ['{"a": 1}', "[1]", "15", "true", "not {json", '{"a": 1} and more', ""];
    const message = resultMessage(contents.map((content, index) => ({ callId: `tw_${index}`, content, isError: index === 1 })));
    const { role, results } = JSON.parse(message.json) as { role: string; results: { content: unknown; is_error?: boolean }[] };
    expect(role).toBe("tool");
    expect(results.map((result) => result.content)).toEqual([{ a: 1 }, [1], ...contents.slice(2)]);
    expect(results.map((result) => result.is_error ?? false)).toEqual(contents.map((_, index) => index === 1));
    expect(message.results.map((result) => result.content)).toEqual(contents);
  });

  test("only the calls of the last message wait", () => {
    const messages = [userMessage("hi"), readMessage(ASSISTANT)];
    expect(openCalls(messages).map((call) => call.id)).toEqual(["tw_1", "tw_2"]);
    expect(openCalls([...messages, resultMessage([])])).toEqual([]);
    expect(openCalls([])).toEqual([]);
  });

  test.each(["get_weather", "now_time", "web_search", "read_file", "anything"])("a suggestion for %s", (name) => {
    expect(suggestResult({ id: "", name, arguments: "{}" })).not.toBe("");
  });
});

test("the parts of a message", () => {
  const message = readMessage('{"role":"assistant","content":[{"type":"reasoning","text":"Hm."},{"type":"text","text":"A"},{"type":"tool_call","index":0},{"type":"refusal","text":"B"}],"tool_calls":[{"id":"1","name":"f","arguments":{"n":1.0}}]}');
  expect([message.reasoning, message.text, message.calls]).toEqual(["Hm.", "A\n\nB", [{ id: "1", name: "f", arguments: '{"n":1.0}' }]]);
});

describe("answers", () => {
  const response = `{"id":"1","message":${ASSISTANT},"stop_reason":"tool_calls","usage":{"input_tokens":3,"output_tokens":4},"losses":[]}`;
  const stream = `data: {"type":"start","id":"1"}\n\ndata: {"type":"text","delta":"a"}\n\ndata: {"type":"end","response":${response}}\n\n`;
  test.each([["response", response], ["stream", stream]] as const)("%s", (kind, text) => {
    const answer = readAnswer(text, kind);
    if (answer instanceof Problem) throw new Error(answer.message);
    expect(answer.message.json).toBe(ASSISTANT);
    expect([answer.stopReason, answer.inputTokens, answer.outputTokens]).toEqual(["tool_calls", 3, 4]);
  });

  test.each([
    ["response", '{"error":{"message":"too hot"}}', "too hot"],
    ["response", "{}", "The answer has no message."],
    ["stream", 'data: {"type":"start"}\n\ndata: {"type":"error","error":{"message":"broke"}}\n\n', "broke"],
    ["stream", 'data: {"type":"start"}\n\n', "The stream ended without an answer: it was cut off."],
  ] as const)("%s: %s", (kind, text, message) => expect(readAnswer(text, kind)).toEqual(new Problem(message)));
});

describe("the code is for the request that comes next, or that brought the last answer", () => {
  const [hi, answer] = [userMessage("hi"), readMessage(ASSISTANT)];
  test.each([
    [[], null, ["user"]],
    [[], hi, ["user"]],
    [[hi, answer], null, ["user"]],
    [[hi, answer], resultMessage([]), ["user", "assistant", "tool"]],
    [[hi], null, ["user"]],
  ])("%#", (messages, next, roles) => expect(codeMessages(messages, next).map((message) => message.role)).toEqual(roles));
});
