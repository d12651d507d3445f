// Where a path of a loss is in a text that a person pasted.

import { findPointer, parseJson } from "./json_text";

export interface TextRange {
  start: number;
  end: number;
}

/** The characters of the value at a path: a JSON Pointer, or in a stream `event/N` and a pointer into the data of that event. */
export function findPlace(text: string, path: string): TextRange | null {
  const event = /^event\/(\d+)/.exec(path);
  if (!event) return findInJson(text, 0, text.length, path);
  const data = findEventData(text, Number(event[1]));
  return data && (findInJson(text, data.start, data.end, path.slice(event[0].length)) ?? data);
}

function findInJson(text: string, start: number, end: number, pointer: string): TextRange | null {
  const { root } = parseJson(text.slice(start, end));
  if (!root) return null;
  const { node } = findPointer(root, pointer);
  return { start: start + node.start, end: start + node.end };
}

const DATA_LINE = /^data: ?(.*)$/gm;

/** The data of an event of a stream, counted from 0. Protocols send each event's data on one line. */
export function findEventData(text: string, number: number): TextRange | null {
  let count = 0;
  for (const line of text.matchAll(DATA_LINE)) {
    const data = line[1] ?? "";
    if (count++ < number) continue;
    const start = line.index + line[0].length - data.length;
    return { start, end: start + data.length };
  }
  return null;
}

/** The line and the column of a character, both counted from 1. */
export function lineAndColumn(text: string, at: number): { line: number; column: number } {
  const before = text.slice(0, at);
  const line = before.split("\n").length;
  return { line, column: at - before.lastIndexOf("\n") };
}
