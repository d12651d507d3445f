import { describe, expect, test } from "vitest";
import type { ClientSide, ExchangeDetail, LossRow, ProtocolInfo, StreamEvent } from "../src/api";
import { changeModel } from "../src/core/send_again";
import { lossesByEvent, makeTimeline, readEventPath } from "../src/core/timeline";
import { readHash, writeHash } from "../src/router";
import { makeRow } from "./rows";

const chat: ProtocolInfo = { name: "chat", path: "/v1/chat/completions", stream_path: "/v1/chat/completions", has_model_in_body: true };
const gemini: ProtocolInfo = {
  name: "gemini",
  path: "/v1beta/models/{model}:generateContent",
  stream_path: "/v1beta/models/{model}:streamGenerateContent?alt=sse",
  has_model_in_body: false,
};

function clientWith(text: string, isCut = false): ClientSide {
  const empty = { text: "", size: 0, is_cut: false, next: "" };
  return { protocol: "", method: "POST", path: "", request: { text, size: text.length, is_cut: isCut, next: "" }, status: 200, response: empty, events: [], request_headers: [], response_headers: [] };
}

describe("a request for another model", () => {
  test("differs only in the model's name", () => {
    const text = '{ "seed": 12345678901234567890, "model" : "old", "m": {"model": "inner"} }';
    expect(changeModel(makeRow({}), clientWith(text), chat, 'a"b')).toEqual({ path: chat.path, body: text.replace('"old"', '"a\\"b"') });
  });

  test("has the model in the path, where the protocol has it there", () => {
    const made = changeModel(makeRow({ stream: true }), clientWith('{"contents":[]}'), gemini, "vendor/m 1");
    expect(made).toEqual({ path: "/v1beta/models/vendor%2Fm%201:streamGenerateContent?alt=sse", body: '{"contents":[]}' });
  });

  test.each([
    [undefined, clientWith("{}")],
    [chat, clientWith('{"model":"a"', true)],
    [chat, clientWith("[]")],
    [chat, clientWith("{}")],
    [chat, clientWith('{"model":"a"')],
  ])("is refused with a sentence (%#)", (protocol, client) => {
    expect(changeModel(makeRow({}), client, protocol, "new")).toMatch(/^The|^This/);
  });
});

describe("a stream in time", () => {
  const event = (ms: number, data = ""): StreamEvent => ({ ms, event: "", data });
  const detail = {
    client: { events: [event(10.5), event(30)] },
    upstream_calls: [{ events: [] }, { events: [event(10), event(30), event(50)] }],
  } as unknown as ExchangeDetail;

  test("has the events of both sides, with the gap on their own side", () => {
    expect(makeTimeline(detail).map((row) => [row.side, row.call, row.index, row.event.ms, row.gap])).toEqual([
      ["provider", 1, 0, 10, null],
      ["client", 0, 0, 10.5, null],
      ["provider", 1, 1, 30, 20],
      ["client", 0, 1, 30, 19.5],
      ["provider", 1, 2, 50, 20],
    ]);
  });

  test.each([
    ["event/12/choices/0", { index: 12, pointer: "/choices/0" }],
    ["/event/3", { index: 3, pointer: "" }],
    ["/choices/0", null],
    ["/events/1", null],
  ])("the place of a loss: %s", (path, expected) => expect(readEventPath(path)).toEqual(expected));

  test("losses are found by the number of their event", () => {
    const loss = (path: string, isInAnswer: boolean): LossRow => ({ code: "c", severity: "lost", path, is_in_answer: isInAnswer, what: "", why: "" });
    const found = lossesByEvent([loss("event/1/a", true), loss("event/1/b", true), loss("event/2", false), loss("/a", true)]);
    expect([...found].map(([index, losses]) => [index, losses.map((one) => one.path)])).toEqual([[1, ["/a", "/b"]]]);
  });
});

describe("addresses", () => {
  test.each([
    ["", "live", [], ""],
    ["#/", "live", [], ""],
    ["#/live?client=chat&q=a%26b", "live", [], "client=chat&q=a%26b"],
    ["#/exchange/0-17/request?at=%2Ftools%2F0", "exchange", ["0-17", "request"], "at=%2Ftools%2F0"],
    ["#/session/a%2Fb", "session", ["a/b"], ""],
    ["#/session/%zz", "session", ["%zz"], ""],
  ])("%s", (hash, view, args, query) => {
    const read = readHash(hash);
    expect([read.view, read.args, read.query.toString()]).toEqual([view, args, query]);
  });

  test("what is written is read", () => {
    const read = readHash(writeHash("compare", ["0/1", "a?b#c"], new URLSearchParams({ at: "/a b" })));
    expect([read.view, read.args, read.query.get("at")]).toEqual(["compare", ["0/1", "a?b#c"], "/a b"]);
  });
});
