// The client key for the gateway's endpoints: where it is kept, and how it is sent.

import { signal } from "@preact/signals";
import { KEY_HEADER } from "./core/code";

/** In memory only: it is gone when the page is closed. */
export const clientKey = signal("");

/** The headers of a JSON request to the gateway. */
export function requestHeaders(): Record<string, string> {
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (clientKey.value) headers[KEY_HEADER] = clientKey.value;
  return headers;
}
