import { describe, expect, test } from "vitest";
import type { Output } from "../src/api";
import { joinOutput, MAX_OUTPUT, mergeRows } from "../src/core/exchange_rows";
import { FrameBatch } from "../src/core/frame_batch";
import { keepPlace, moveIndex, scrollToRow, visibleRows } from "../src/core/row_window";
import { makeRow } from "./rows";

describe("the rows of a list that are in the document", () => {
  test.each([
    [{ count: 1000, top: 0 }, { first: 0, end: 12 }],
    [{ count: 1000, top: 205 }, { first: 8, end: 33 }],
    [{ count: 1000, top: 19_800 }, { first: 988, end: 1000 }],
    [{ count: 0, top: 0 }, { first: 0, end: 0 }],
    [{ count: 3, top: 5000 }, { first: 3, end: 3 }],
    [{ count: 1000, top: -50 }, { first: 0, end: 12 }],
  ])("%o", ({ count, top }, expected) => {
    expect(visibleRows(count, 20, top, top === 205 ? 405 : 200, 2)).toEqual(expected);
  });
});

test.each([
  [0, 100, 0],
  [5, 100, 100],
  [9, 100, 100],
  [20, 100, 320],
])("row %i from %i scrolls to %i", (index, from, expected) => expect(scrollToRow(index, 20, from, 100)).toBe(expected));

test("rows that come in above do not move what is read, except at the top", () => {
  expect(keepPlace(400, 20, 20, 23)).toBe(460);
  expect(keepPlace(0, 20, 0, 3)).toBe(0);
  expect(keepPlace(400, 20, 20, -1)).toBe(400);
});

test.each([
  [-1, 1, 3, 0],
  [-1, -1, 3, 2],
  [0, -1, 3, 0],
  [1, 5, 3, 2],
  [0, 1, 0, -1],
])("from %i by %i of %i is %i", (index, step, count, expected) => expect(moveIndex(index, step, count)).toBe(expected));

describe("events of one frame", () => {
  function makeBatch() {
    const frames: (() => void)[] = [];
    const applied: [string, string][][] = [];
    const batch = new FrameBatch<string>((values) => applied.push([...values]), (old, added) => old + added, (run) => frames.push(run));
    return { batch, frames, applied, runFrame: () => frames.splice(0).forEach((run) => run()) };
  }

  test("become one change", () => {
    const { batch, frames, applied, runFrame } = makeBatch();
    batch.add("a", "1");
    batch.add("b", "2");
    batch.add("a", "3");
    expect(frames).toHaveLength(1);
    runFrame();
    batch.add("a", "4");
    runFrame();
    expect(applied).toEqual([[["a", "13"], ["b", "2"]], [["a", "4"]]]);
  });

  test("wait while the list is paused, and come after it", () => {
    const { batch, applied, runFrame } = makeBatch();
    batch.add("a", "1");
    batch.pause(true);
    batch.add("a", "2");
    runFrame();
    expect([applied, batch.size]).toEqual([[], 1]);
    batch.pause(false);
    runFrame();
    expect(applied).toEqual([[["a", "12"]]]);
  });

  test("are forgotten by clear", () => {
    const { batch, applied, runFrame } = makeBatch();
    batch.add("a", "1");
    batch.clear();
    runFrame();
    expect(applied).toEqual([]);
  });
});

describe("the list of exchanges", () => {
  const old = [makeRow({ id: "0-2", started_at: 20 }), makeRow({ id: "0-1", started_at: 10 })];
  const merge = (changes: ReturnType<typeof makeRow>[], limit = 10) =>
    mergeRows(old, new Map(changes.map((row) => [row.id, row])), limit).map((row) => [row.id, row.state]);

  test("a row that changed stays in its place", () => {
    expect(merge([makeRow({ id: "0-1", started_at: 10, state: "failed" })])).toEqual([["0-2", "done"], ["0-1", "failed"]]);
  });

  test("a new row comes where its time says, also from another worker", () => {
    expect(merge([makeRow({ id: "1-7", started_at: 15 }), makeRow({ id: "0-10", started_at: 30 }), makeRow({ id: "0-9", started_at: 30 })])).toEqual([
      ["0-10", "done"], ["0-9", "done"], ["0-2", "done"], ["1-7", "done"], ["0-1", "done"],
    ]); // prettier-ignore
  });

  test("beyond the limit the oldest one goes", () => {
    expect(merge([makeRow({ id: "0-3", started_at: 30 })], 2)).toEqual([["0-3", "done"], ["0-2", "done"]]);
  });
});

test("of a long answer the end is kept", () => {
  const output = (text: string, calls: string[] = []): Output => ({ id: "0-1", text, reasoning: "", calls, bytes_out: 1 });
  expect(joinOutput(output("a", ["x"]), output("b", ["y"]))).toEqual(output("ab", ["x", "y"]));
  const joined = joinOutput(output("a".repeat(MAX_OUTPUT)), output("end"));
  expect([joined.text.length, joined.text.slice(-4)]).toEqual([MAX_OUTPUT, "aend"]);
});
