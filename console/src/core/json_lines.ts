// A JSON text as lines of equal height: what a virtual list shows, and what a comparison compares.

import { isContainer, scalarText, type JsonNode, type JsonText } from "./json_text";

export interface JsonLine {
  node: JsonNode;
  /** `part` is a line of a string that takes more than one. */
  kind: "value" | "open" | "close" | "folded" | "part";
  depth: number;
  /** The characters of a string's value that are on this line. */
  from: number;
  to: number;
}

const INDENT = "  ";

/** The characters that fit on the first line of a value, beside its key, and on each line after it. */
export interface Columns {
  first: number;
  next: number;
}

const MIN_COLUMNS = 16;
const MAX_TEXT_LINES = 12;

function valueColumns(node: JsonNode, depth: number, columns: number): Columns {
  const next = Math.max(MIN_COLUMNS, columns - INDENT.length * depth - 2);
  return { next, first: Math.max(MIN_COLUMNS, next - (typeof node.key === "string" ? node.key.length + 4 : 2)) };
}

/** Where the lines of a string end: after each newline, and where a line is full, after a word if there is one. */
export function lineEnds(value: string, columns: Columns): number[] {
  const ends: number[] = [];
  for (let from = 0; from < value.length; from = ends.at(-1)!) {
    const newline = value.indexOf("\n", from);
    const end = newline < 0 ? value.length : newline + 1;
    const full = from + (from === 0 ? columns.first : columns.next);
    const space = end <= full ? -1 : value.lastIndexOf(" ", full - 1);
    ends.push(Math.min(end, space >= (from + full) / 2 ? space + 1 : full));
  }
  return ends.length ? ends : [0];
}

function isFoldable(text: string, node: JsonNode, columns: Columns): boolean {
  if (isContainer(node)) return node.items.length > 0;
  return node.kind === "string" && takesLines(text, node, columns);
}

function takesLines(text: string, node: JsonNode, columns: Columns): boolean {
  if (node.end - node.start > columns.first + 2) return true;
  const hasNewline = text.slice(node.start, node.end).includes("\\n");
  return hasNewline && lineEnds(scalarText(text, node), columns).length > 1;
}

/** The lines of a document, in which only some nodes are unfolded (null: all). */
export function visibleLines({ text, root }: JsonText, unfolded: ReadonlySet<JsonNode> | null, columns: number): JsonLine[] {
  const lines: JsonLine[] = [];
  if (!root) return lines;
  const stack: [JsonNode, number, boolean][] = [[root, 0, false]];
  for (let top = stack.pop(); top; top = stack.pop()) {
    const [node, depth, isClose] = top;
    const line = { node, depth, from: 0, to: 0 };
    const width = valueColumns(node, depth, columns);
    if (isClose) {
      lines.push({ ...line, kind: "close" });
    } else if (!isFoldable(text, node, width)) {
      lines.push({ ...line, kind: "value" });
    } else if (unfolded && !unfolded.has(node)) {
      lines.push({ ...line, kind: "folded" });
    } else if (isContainer(node)) {
      lines.push({ ...line, kind: "open" });
      stack.push([node, depth, true]);
      for (let index = node.items.length - 1; index >= 0; index--) stack.push([node.items[index]!, depth + 1, false]);
    } else {
      let from = 0;
      for (const to of lineEnds(scalarText(text, node), width)) {
        lines.push({ node, depth, kind: "part", from, to });
        from = to;
      }
    }
  }
  return lines;
}

/** What is unfolded at first: level by level, as long as there are not more lines than a person reads at once. */
export function unfoldUpTo({ text, root }: JsonText, maxLines: number, columns: number): Set<JsonNode> {
  const unfolded = new Set<JsonNode>();
  let level = root ? [root] : [];
  let count = 1;
  for (let depth = 0; level.length; depth++) {
    const next: JsonNode[] = [];
    for (const node of level) {
      const width = valueColumns(node, depth, columns);
      if (!isFoldable(text, node, width)) continue;
      const more = isContainer(node) ? node.items.length + 1 : lineEnds(scalarText(text, node), width).length - 1;
      // The outermost level is shown in any case; a long text, such as the instructions of an agent, is not.
      if (node !== root && (count + more > maxLines || (!isContainer(node) && more > MAX_TEXT_LINES))) continue;
      count += more;
      unfolded.add(node);
      next.push(...node.items);
    }
    level = next;
  }
  return unfolded;
}

/** Unfolds all that contains a node. */
export function unfoldTo(node: JsonNode, unfolded: ReadonlySet<JsonNode>): Set<JsonNode> {
  const all = new Set(unfolded);
  for (let outer = node.parent; outer; outer = outer.parent) all.add(outer);
  return all;
}

/** The start of what a folded node contains, on one line. */
export function foldedPreview(text: string, node: JsonNode, length: number): string {
  // Twice the length, because white space between tokens goes away.
  const start = text.slice(node.start, Math.min(node.end, node.start + length * 2)).replace(/\s+/g, " ");
  return start.length > length || node.end - node.start > length * 2 ? `${start.slice(0, length)}…` : start;
}

/** The lines of a document as text, for a comparison. Strings are broken after their newlines. */
export function prettyLines(json: JsonText): string[] {
  const { text, brokenAt } = json;
  if (!json.root) return text ? text.split("\n") : [];
  const lines = visibleLines(json, null, Infinity).map((line) => lineText(text, line));
  return brokenAt < 0 ? lines : [...lines, ...text.slice(brokenAt).split("\n")];
}

function lineText(text: string, { node, kind, depth, from, to }: JsonLine): string {
  const indent = INDENT.repeat(depth);
  const [open, close] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
  const comma = node.parent && node.parent.items.at(-1) !== node ? "," : "";
  if (kind === "close") return indent + close + comma;
  const key = typeof node.key === "string" ? `${JSON.stringify(node.key)}: ` : "";
  if (kind === "open") return indent + key + open;
  if (kind !== "part") return indent + key + text.slice(node.start, node.end) + comma;
  const value = scalarText(text, node);
  const piece = JSON.stringify(value.slice(from, to)).slice(1, -1);
  const start = from === 0 ? `${indent}${key}"` : indent + INDENT;
  return start + piece + (to === value.length ? `"${comma}` : "");
}
