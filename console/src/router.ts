// The view is in the hash of the address, such as `#/exchange/0-17/request?at=/tools/0`, so the server has one page.

import { signal } from "@preact/signals";

export interface Route {
  view: string;
  args: readonly string[];
  query: URLSearchParams;
}

export const DEFAULT_VIEW = "live";

export function readHash(hash: string): Route {
  const [path = "", query = ""] = splitOnce(hash.replace(/^#\/?/, ""), "?");
  const [view, ...args] = path.split("/").map(decodePart);
  return { view: view || DEFAULT_VIEW, args, query: new URLSearchParams(query) };
}

export function writeHash(view: string, args: readonly string[] = [], query?: URLSearchParams): string {
  const search = query?.toString() ?? "";
  return `#/${[view, ...args].map(encodeURIComponent).join("/")}${search && `?${search}`}`;
}

function splitOnce(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decodePart(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = signal<Route>(readHash(globalThis.location?.hash ?? ""));

globalThis.addEventListener?.("hashchange", () => (route.value = readHash(location.hash)));

/** Goes to a view. With `replace`, "back" does not stop at the present one: for filters that change as one types. */
export function goTo(hash: string, { replace = false } = {}): void {
  if (!replace) location.hash = hash;
  else {
    history.replaceState(null, "", hash);
    route.value = readHash(hash);
  }
}
