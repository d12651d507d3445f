import { useCallback, useEffect, useState } from "preact/hooks";
import type { ApiError, Body, BodyPage, ExchangeDetail } from "../api";
import { getJson, RequestFailed } from "../client";

export interface Resource<T> {
  data: T | null;
  error: (ApiError & { status: number }) | null;
  reload: () => void;
}

type Load<T> = (path: string, signal: AbortSignal) => Promise<T>;

/** Both sides of an exchange, with whole bodies: the gateway sends them by page. */
export function useExchange(id: string, version: unknown = 0): Resource<ExchangeDetail> {
  return useResource<ExchangeDetail>(`exchanges/${encodeURIComponent(id)}`, version, loadExchange);
}

async function loadExchange(path: string, signal: AbortSignal): Promise<ExchangeDetail> {
  const detail = await getJson<ExchangeDetail>(path, signal);
  const upstream_calls = [];
  for (const call of detail.upstream_calls) upstream_calls.push(await loadBodies(call, signal));
  return { ...detail, client: await loadBodies(detail.client, signal), upstream_calls };
}

async function loadBodies<T extends { request: Body; response: Body }>(side: T, signal: AbortSignal): Promise<T> {
  return { ...side, request: await loadRest(side.request, signal), response: await loadRest(side.response, signal) };
}

async function loadRest(body: Body, signal: AbortSignal): Promise<Body> {
  const texts = [body.text];
  for (let { next } = body; next; ) {
    const page = await getJson<BodyPage>(next, signal);
    texts.push(page.text);
    next = page.next;
  }
  return { ...body, text: texts.join(""), next: "" };
}

/** An answer of the API. It is asked for again when the path or `version` changes; meanwhile the old one is shown. */
export function useResource<T>(path: string, version: unknown = 0, load: Load<T> = getJson): Resource<T> {
  const [answer, setAnswer] = useState<{ path: string; data: T | null; error: Resource<T>["error"] }>({ path, data: null, error: null });
  const [count, setCount] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    load(path, abort.signal).then(
      (data) => setAnswer({ path, data, error: null }),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const failed = error instanceof RequestFailed ? error : new RequestFailed(0, { message: String(error), hint: "" });
        setAnswer((old) => ({ path, data: old.path === path ? old.data : null, error: { ...failed.error, status: failed.status } }));
      },
    );
    return () => abort.abort();
  }, [path, version, count, load]);
  const reload = useCallback(() => setCount((old) => old + 1), []);
  const isCurrent = answer.path === path;
  return { data: isCurrent ? answer.data : null, error: isCurrent ? answer.error : null, reload };
}
