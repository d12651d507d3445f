// Requests to the console's API.

import { API_PATH, CONSOLE_HEADER, type ApiError } from "./api";

/** An answer of the API with a status of 400 or more, or none at all (status 0). */
export class RequestFailed extends Error {
  constructor(
    readonly status: number,
    readonly error: ApiError,
  ) {
    super(error.message);
  }
}

export function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return request<T>(path, { headers: { accept: "application/json" }, ...(signal && { signal }) });
}

export function postJson<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const headers = { "content-type": "application/json", [CONSOLE_HEADER]: "1" };
  return request<T>(path, { method: "POST", headers, body: JSON.stringify(body), ...(signal && { signal }) });
}

async function request<T>(path: string, init: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(API_PATH + path, { credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new RequestFailed(0, { message: "The gateway does not answer", hint: "Is `toolwire serve` still running?" });
  }
  const text = await response.text();
  if (!response.ok) throw new RequestFailed(response.status, readError(text, response.status));
  return (text ? JSON.parse(text) : null) as T;
}

function readError(text: string, status: number): ApiError {
  try {
    const { message, hint } = JSON.parse(text) as Partial<ApiError>;
    if (typeof message === "string") return { message, hint: hint ?? "" };
  } catch {
    // Not an answer of the API: a proxy, perhaps.
  }
  return { message: `The gateway answered with status ${status}`, hint: "" };
}
