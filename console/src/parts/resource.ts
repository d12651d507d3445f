import { useCallback, useEffect, useState } from "preact/hooks";
import type { ApiError } from "../api";
import { getJson, RequestFailed } from "../client";

export interface Resource<T> {
  data: T | null;
  error: (ApiError & { status: number }) | null;
  reload: () => void;
}

/** An answer of the API. It is asked for again when the path or `version` changes; meanwhile the old one is shown. */
export function useResource<T>(path: string, version: unknown = 0): Resource<T> {
  const [answer, setAnswer] = useState<{ path: string; data: T | null; error: Resource<T>["error"] }>({ path, data: null, error: null });
  const [count, setCount] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    getJson<T>(path, abort.signal).then(
      (data) => setAnswer({ path, data, error: null }),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const failed = error instanceof RequestFailed ? error : new RequestFailed(0, { message: String(error), hint: "" });
        setAnswer((old) => ({ path, data: old.path === path ? old.data : null, error: { ...failed.error, status: failed.status } }));
      },
    );
    return () => abort.abort();
  }, [path, version, count]);
  const reload = useCallback(() => setCount((old) => old + 1), []);
  const isCurrent = answer.path === path;
  return { data: isCurrent ? answer.data : null, error: isCurrent ? answer.error : null, reload };
}
