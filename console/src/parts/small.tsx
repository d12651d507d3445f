// The small parts that all views are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../api";

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without HTTPS, beyond loopback, there is no clipboard API.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}

interface CopyProps {
  text: string | (() => string);
  label?: string;
  title?: string;
  class?: string;
}

export function CopyButton({ text, label = "Copy", title, class: name = "button" }: CopyProps) {
  const [result, setResult] = useState("");
  useEffect(() => {
    if (!result) return;
    const timer = setTimeout(() => setResult(""), 1500);
    return () => clearTimeout(timer);
  }, [result]);
  const copy = async (): Promise<void> => setResult((await copyText(typeof text === "string" ? text : text())) ? "Copied" : "Not copied");
  return (
    <button type="button" class={name} title={title} onClick={copy}>
      <span aria-live="polite">{result || label}</span>
    </button>
  );
}

/** A command or a text to copy. */
export function CodeBlock({ text, label }: { text: string; label: string }) {
  return (
    <div class="code-block">
      <pre tabIndex={0} role="region" aria-label={label}>
        {text}
      </pre>
      <CopyButton text={text} />
    </div>
  );
}

/** `plain` is for what is as it should be: nothing to look at. */
export type Tone = "plain" | "neutral" | "good" | "warn" | "bad" | "accent";

export function Badge({ tone = "neutral", title, children }: { tone?: Tone; title?: string; children: ComponentChildren }) {
  return (
    <span class={`badge tone-${tone}`} title={title}>
      {children}
    </span>
  );
}

/** Instead of a list; with `isPage`, instead of a whole view. */
export function EmptyState({ title, isPage = false, children }: { title: string; isPage?: boolean; children?: ComponentChildren }) {
  return (
    <div class="empty-state">
      {isPage ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}

export function ErrorNote({ error, onRetry }: { error: ApiError; onRetry?: () => void }) {
  return (
    <div class="note tone-bad" role="alert">
      <p>
        <strong>{error.message}</strong>
        {error.hint && <span> {error.hint}</span>}
      </p>
      {onRetry && (
        <button type="button" class="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

interface TabsProps {
  label: string;
  tabs: readonly { name: string; title: string; count?: number }[];
  chosen: string;
  onChoose: (name: string) => void;
}

/** The element with the content must have `role="tabpanel"` and the id `panel`. */
export function Tabs({ label, tabs, chosen, onChoose }: TabsProps) {
  const move = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const index = tabs.findIndex((tab) => tab.name === chosen);
    const next = tabs[(index + step + tabs.length) % tabs.length]!;
    onChoose(next.name);
    document.getElementById(`tab-${next.name}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.name}
          id={`tab-${tab.name}`}
          type="button"
          role="tab"
          class="tab"
          aria-selected={tab.name === chosen}
          aria-controls="panel"
          tabIndex={tab.name === chosen ? 0 : -1}
          onClick={() => onChoose(tab.name)}
        >
          {tab.title}
          {tab.count !== undefined && <span class="tab-count">{tab.count}</span>}
        </button>
      ))}
    </div>
  );
}

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog
      ref={element}
      class="dialog"
      aria-label={title}
      onClose={onClose}
      onClick={(event) => event.target === element.current && element.current?.close()}
    >
      <header class="dialog-head">
        <h2>{title}</h2>
        <button type="button" class="button quiet" onClick={() => element.current?.close()}>
          Close
        </button>
      </header>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  options: readonly { value: T; title: string }[];
  value: T;
  onChange: (value: T) => void;
}

/** A few alternatives next to each other. */
export function Choice<T extends string>({ label, options, value, onChange }: ChoiceProps<T>) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map((option) => (
        <button
          key={option.value}
          type="button"
          aria-pressed={option.value === value}
          class="choice-button"
          onClick={() => onChange(option.value)}
        >
          {option.title}
        </button>
      ))}
    </div>
  );
}

/** The width of the window decides between two layouts that have different elements. */
export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const update = (): void => setMatches(media.matches);
    update();
    media.addEventListener("change", update);
    return () => media.removeEventListener("change", update);
  }, [query]);
  return matches;
}
