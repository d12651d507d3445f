import { useId, useRef, useState } from "preact/hooks";
import { postJson, RequestFailed } from "../client";
import { connectNow } from "../gateway";

/** Shown instead of the views while the gateway answers 401. The address stays, so the view that was wanted comes next. */
export function Login() {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState("");
  const [isSending, setSending] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const ids = { key: useId(), about: useId(), problem: useId() };
  const logIn = async (event: Event): Promise<void> => {
    event.preventDefault();
    setSending(true);
    setProblem("");
    try {
      await postJson("login", { key });
      connectNow();
    } catch (error) {
      setProblem(describe(error));
      field.current?.select();
    }
    setSending(false);
  };
  return (
    <form class="login" onSubmit={logIn}>
      <h1>The console needs its key</h1>
      <p class="muted" id={ids.about}>
        Its own key, which the operator set as <code>[console] sha256</code>. The keys of clients do not open it.
      </p>
      <label class="field" for={ids.key}>
        Key
        <input
          id={ids.key}
          ref={field}
          type="password"
          required
          autofocus
          autocomplete="current-password"
          aria-describedby={`${ids.about} ${ids.problem}`}
          aria-invalid={problem ? true : undefined}
          value={key}
          onInput={(event) => setKey(event.currentTarget.value)}
        />
      </label>
      <div id={ids.problem} role="alert">
        {problem && <p class="note tone-bad">{problem}</p>}
      </div>
      <button type="submit" class="button primary" disabled={isSending}>
        {isSending ? "Checking…" : "Log in"}
      </button>
    </form>
  );
}

function describe(error: unknown): string {
  if (!(error instanceof RequestFailed)) return String(error);
  if (error.status === 401) return "This is not the key of the console.";
  // With status 429 the sentence says how many seconds to wait.
  const sentence = [error.error.message, error.error.hint].filter(Boolean).join(". ");
  return sentence.charAt(0).toUpperCase() + sentence.slice(1);
}
