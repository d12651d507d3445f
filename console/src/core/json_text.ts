// JSON as it was sent. `JSON.parse` would round large numbers, reorder keys such as "1" and hide duplicate keys; a page
// that shows what went over the wire must not. A body that was cut, or is not JSON, is read as far as it goes.

export type JsonKind = "object" | "array" | "string" | "number" | "literal";

export interface JsonNode {
  kind: JsonKind;
  start: number;
  end: number;
  parent: JsonNode | null;
  /** Its key in an object, its index in an array. */
  key: string | number | null;
  items: JsonNode[];
}

export interface JsonText {
  text: string;
  root: JsonNode | null;
  /** Where the text stops being JSON; -1 if all of it is. */
  brokenAt: number;
}

const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const LITERAL = /true|false|null/y;
const SPACE = /[ \t\n\r]*/y;

export function parseJson(text: string): JsonText {
  let at = skipSpace(text, 0);
  let root: JsonNode | null = null;
  let open: JsonNode | null = null;
  let key: string | null = null;
  let expectsValue = true;

  const stop = (): JsonText => {
    for (let node = open; node; node = node.parent) node.end = text.length;
    return { text, root, brokenAt: at };
  };
  const place = (node: JsonNode): void => {
    node.parent = open;
    if (open) {
      node.key = open.kind === "array" ? open.items.length : key;
      open.items.push(node);
    } else root = node;
    key = null;
  };

  while (at < text.length) {
    if (!expectsValue) {
      if (!open) return stop();
      const char = text[at];
      if (char === (open.kind === "object" ? "}" : "]")) {
        open.end = ++at;
        open = open.parent;
      } else if (char === ",") {
        at = skipSpace(text, at + 1);
        expectsValue = true;
        if (open.kind === "object") {
          const read = readKey(text, at);
          if (!read) return stop();
          [key, at] = read;
        }
        continue;
      } else return stop();
    } else {
      const char = text[at]!;
      if (char === "{" || char === "[") {
        const node: JsonNode = newNode(char === "{" ? "object" : "array", at);
        place(node);
        at = skipSpace(text, at + 1);
        if (text[at] === (char === "{" ? "}" : "]")) {
          node.end = ++at;
          expectsValue = false;
        } else {
          open = node;
          if (char === "{") {
            const read = readKey(text, at);
            if (!read) return stop();
            [key, at] = read;
          }
          continue;
        }
      } else {
        const kind: JsonKind = char === '"' ? "string" : char === "-" || (char >= "0" && char <= "9") ? "number" : "literal";
        const end = kind === "string" ? stringEnd(text, at) : matchEnd(kind === "number" ? NUMBER : LITERAL, text, at);
        if (end < 0) {
          if (kind === "string") place({ ...newNode("string", at), end: text.length });
          return stop();
        }
        place({ ...newNode(kind, at), end });
        at = end;
        expectsValue = false;
      }
    }
    at = skipSpace(text, at);
    if (!open && at >= text.length) return { text, root, brokenAt: -1 };
  }
  return stop();
}

function newNode(kind: JsonKind, start: number): JsonNode {
  return { kind, start, end: start, parent: null, key: null, items: [] };
}

function skipSpace(text: string, at: number): number {
  SPACE.lastIndex = at;
  SPACE.test(text);
  return SPACE.lastIndex;
}

function matchEnd(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : -1;
}

/** The place after the closing quote; -1 if there is none. */
function stringEnd(text: string, at: number): number {
  for (let index = at + 1; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code === 0x22) return index + 1;
    if (code === 0x5c) index++;
  }
  return -1;
}

function readKey(text: string, at: number): [string, number] | null {
  if (text[at] !== '"') return null;
  const end = stringEnd(text, at);
  if (end < 0) return null;
  const colon = skipSpace(text, end);
  if (text[colon] !== ":") return null;
  return [decodeString(text.slice(at, end)), skipSpace(text, colon + 1)];
}

/** The value of a string in quotes. Where its end was cut off, or it has invalid escapes, its characters as they are. */
function decodeString(quoted: string): string {
  if (!quoted.includes("\\")) return quoted.slice(1, quoted.endsWith('"') && quoted.length > 1 ? -1 : undefined);
  try {
    return JSON.parse(quoted) as string;
  } catch {
    const inner = quoted.slice(1).replace(/\\(?:u[0-9a-fA-F]{0,3})?$/, "");
    try {
      return JSON.parse(`"${inner}"`) as string;
    } catch {
      return inner;
    }
  }
}

/** The text of a string's value, or the token of any other scalar. */
export function scalarText(text: string, node: JsonNode): string {
  const token = text.slice(node.start, node.end);
  return node.kind === "string" ? decodeString(token) : token;
}

export function isContainer(node: JsonNode): boolean {
  return node.kind === "object" || node.kind === "array";
}

/** The JSON Pointer (RFC 6901) of a node. */
export function pointerOf(node: JsonNode): string {
  const steps: string[] = [];
  for (let inner: JsonNode | null = node; inner?.parent; inner = inner.parent) {
    steps.push(String(inner.key).replaceAll("~", "~0").replaceAll("/", "~1"));
  }
  return steps.map((_, index) => `/${steps[steps.length - 1 - index]}`).join("");
}

/** The node at a JSON Pointer, or the deepest one on the way to it: what was lost may be a member that is absent. */
export function findPointer(root: JsonNode, pointer: string): { node: JsonNode; isExact: boolean } {
  let node = root;
  for (const step of pointer === "" ? [] : pointer.replace(/^\//, "").split("/")) {
    const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
    // The last one of duplicate keys is the one that readers use.
    const inner = node.items.findLast((item) => String(item.key) === key);
    if (!inner) return { node, isExact: false };
    node = inner;
  }
  return { node, isExact: true };
}

/** All nodes in the order of the text. */
export function* walkNodes(root: JsonNode): Generator<JsonNode> {
  const stack = [root];
  for (let node = stack.pop(); node; node = stack.pop()) {
    yield node;
    for (let index = node.items.length - 1; index >= 0; index--) stack.push(node.items[index]!);
  }
}

/** The nodes whose key or value contains a text, in the order of the document. */
export function searchNodes({ text, root }: JsonText, query: string, limit = 2000): JsonNode[] {
  const wanted = query.toLowerCase();
  const found: JsonNode[] = [];
  if (!root || !wanted) return found;
  for (const node of walkNodes(root)) {
    const isKey = typeof node.key === "string" && node.key.toLowerCase().includes(wanted);
    if (isKey || (!isContainer(node) && scalarText(text, node).toLowerCase().includes(wanted))) found.push(node);
    if (found.length >= limit) break;
  }
  return found;
}
