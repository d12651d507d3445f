// Words in prompts, answers, arguments and results: the gateway searches what it has in memory, when typing pauses.

import { batch, effect, signal } from "@preact/signals";
import type { SearchResult } from "./api";
import { getJson } from "./client";
import type { Found } from "./core/filter";

const NOTHING: Found = new Map();
/** For the text that was searched last. */
export const found = signal<Found>(NOTHING);
/** What a person is told about the search. */
export const searchNote = signal("");
/** The text to search for; nothing is asked for one letter. */
export const searchText = signal("");

const PAUSE_MS = 400;
const MIN_LENGTH = 2;
let timer = 0;
let running: AbortController | null = null;

effect(() => {
  const text = searchText.value.trim();
  clearTimeout(timer);
  running?.abort();
  if (text.length < MIN_LENGTH) show(NOTHING, "");
  else {
    searchNote.value = "searching…";
    timer = window.setTimeout(() => void search(text), PAUSE_MS);
  }
});

/** At once: Enter was pressed. What has come since the last search is searched, too. */
export function searchNow(): void {
  clearTimeout(timer);
  running?.abort();
  const text = searchText.value.trim();
  if (text) void search(text);
}

function show(hits: Found, note: string): void {
  batch(() => {
    found.value = hits;
    searchNote.value = note;
  });
}

async function search(text: string): Promise<void> {
  const own = (running = new AbortController());
  try {
    const result = await getJson<SearchResult>(`search?q=${encodeURIComponent(text)}`, own.signal);
    if (running === own) show(new Map(result.hits.map((hit) => [hit.id, hit.excerpt])), result.is_complete ? "" : "older ones were not searched");
  } catch (error) {
    if (running === own && !own.signal.aborted) show(NOTHING, `not searched: ${String(error)}`);
  }
}
