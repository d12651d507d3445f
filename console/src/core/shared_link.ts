// A text in the fragment of a link: compressed where the browser can, so that a whole request fits. The fragment is not
// sent to any server.

/** Longer links are cut by chat programs and trackers. */
export const MAX_LINK = 24_000;
/** A short fragment can be a very long text. */
export const MAX_LINKED_TEXT = 2_000_000;

/** The parameters of a link that hold a text: `z` is compressed, `t` is not. */
export async function packText(text: string): Promise<[name: "z" | "t", value: string]> {
  const bytes = new TextEncoder().encode(text);
  if (typeof CompressionStream === "undefined") return ["t", writeBase64(bytes)];
  return ["z", writeBase64(await readAll(new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate-raw")), Infinity))];
}

/** The text of a link, or null if it has none. Throws an error with a sentence if it cannot be read. */
export async function unpackText(query: URLSearchParams): Promise<string | null> {
  const [packed, plain] = [query.get("z"), query.get("t")];
  if (packed === null && plain === null) return null;
  try {
    const bytes = readBase64(packed ?? plain ?? "");
    if (packed === null) return decode(bytes);
    return decode(await readAll(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")), MAX_LINKED_TEXT));
  } catch (error) {
    if (error instanceof TooLong) throw error;
    throw new Error("The link is damaged: its text cannot be read. Was it cut?");
  }
}

class TooLong extends Error {}

async function readAll(stream: ReadableStream<Uint8Array>, limit: number): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = stream.getReader();
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    size += chunk.value.length;
    if (size > limit) {
      await reader.cancel();
      throw new TooLong("The text of the link is too long.");
    }
    chunks.push(chunk.value);
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

function writeBase64(bytes: Uint8Array): string {
  let binary = "";
  // In pieces: a call takes a limited number of arguments.
  for (let at = 0; at < bytes.length; at += 8192) binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function readBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
}
