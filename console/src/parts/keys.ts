// Keys that work anywhere on the page, except while one types or a dialog is open.

import { useEffect, useRef } from "preact/hooks";

export type Keys = Readonly<Record<string, () => void>>;

const TYPING = "input, textarea, select, [contenteditable]";

export function useKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector("dialog[open]")) return;
      const target = event.target instanceof Element ? event.target : null;
      if (target?.closest(TYPING)) {
        if (event.key === "Escape" && target instanceof HTMLElement) target.blur();
        return;
      }
      const run = latest.current[event.key];
      if (!run) return;
      // A button or a link that has the focus keeps Enter; a tree or a group of tabs keeps the arrows.
      if (event.key === "Enter" && target?.closest("a, button, summary")) return;
      if (event.key.startsWith("Arrow") && target?.closest("[role=tree], [role=tablist]")) return;
      event.preventDefault();
      run();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
