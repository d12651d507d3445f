import { useEffect, useState } from "preact/hooks";
import type { LossRow } from "../../api";
import { writeCode, type Language } from "../../core/code";
import { codeMessages, Problem } from "../../core/conversation";
import { formatCountOf } from "../../core/format";
import { gateway } from "../../gateway";
import { LossList } from "../../parts/losses";
import { Choice, CopyButton } from "../../parts/small";
import { isStream, messages, model, nextMessage, protocol, system, tools, translateRequest } from "./state";

const LANGUAGES: readonly { value: Language; title: string }[] = [
  { value: "python", title: "Python" },
  { value: "typescript", title: "TypeScript" },
  { value: "curl", title: "curl" },
];
const INSTALL: Readonly<Record<string, readonly [python: string, typescript: string]>> = {
  "openai-chat": ["pip install openai", "npm install openai"],
  "openai-responses": ["pip install openai", "npm install openai"],
  anthropic: ["pip install anthropic", "npm install @anthropic-ai/sdk"],
  gemini: ["pip install google-genai", "npm install @google/genai"],
};
const TYPING_MS = 300;

/** The code for the conversation: the request that would be sent now, or that brought the last answer. */
export function Code() {
  const [language, setLanguage] = useState<Language>("python");
  const [request, setRequest] = useState<{ body: string; losses: readonly LossRow[]; problem: string }>({ body: "", losses: [], problem: "" });
  const chosen = protocol.value;
  const all = codeMessages(messages.value, nextMessage.value);
  useEffect(() => {
    if (!chosen) return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      translateRequest(all, chosen.name, abort.signal).then(
        (made) => setRequest(made instanceof Problem ? { body: "", losses: [], problem: made.message } : { ...made, problem: "" }),
        (error: unknown) => !abort.signal.aborted && setRequest({ body: "", losses: [], problem: error instanceof Error ? error.message : String(error) }),
      );
    }, TYPING_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [all.map((message) => message.json).join(), chosen, model.value, system.value, tools.value, isStream.value]);

  const install = INSTALL[chosen?.name ?? ""]?.[language === "python" ? 0 : 1];
  const code =
    chosen && request.body
      ? writeCode(language, { protocol: chosen, body: request.body, model: model.value, isStream: isStream.value, origin: location.origin, needsKey: gateway.value?.needs_client_key ?? false })
      : "";
  return (
    <section class="panel try-code" aria-label="Code">
      <header class="panel-head">
        <h2>Code</h2>
        <span class="grow" />
        <Choice label="Language" options={LANGUAGES} value={language} onChange={setLanguage} />
        {code && <CopyButton text={code} class="button quiet" />}
      </header>
      <div class="try-code-body">
        {request.problem && (
          <p class="note tone-bad" role="alert">
            {request.problem}
          </p>
        )}
        {language !== "curl" && install && (
          <p class="muted">
            <code>{install}</code>
          </p>
        )}
        {code && (
          <pre class="code-text" tabIndex={0} role="region" aria-label={`Code in ${language}`}>
            {code}
          </pre>
        )}
        {request.losses.length > 0 && (
          <details class="try-losses">
            <summary>{formatCountOf(request.losses.length, "change", "changes")} on the way from the unified protocol</summary>
            <LossList label="Changes" losses={request.losses} />
          </details>
        )}
      </div>
    </section>
  );
}
