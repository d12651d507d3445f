import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const NAME = "toolwire-theme";
const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };

export const theme = signal<Theme>(readTheme());

function readTheme(): Theme {
  try {
    const stored = localStorage.getItem(NAME);
    return stored === "light" || stored === "dark" ? stored : "auto";
  } catch {
    return "auto"; // storage may be forbidden
  }
}

export function switchTheme(): void {
  theme.value = NEXT[theme.value];
  try {
    localStorage.setItem(NAME, theme.value);
  } catch {
    // It holds until the page is closed.
  }
}

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});
