// What the provider's prompt cache gave for an exchange, and what it did not give.

import type { CacheUsage } from "../api";
import { formatCount, formatDollars } from "../core/format";

/** Causes without a change of the prompt; for the others there is a sentence about the change. */
const CAUSES: Readonly<Record<string, string>> = {
  expired: "The prompt before was sent more than five minutes ago, and providers forget it after about that time.",
  unknown: "The start of the prompt is the same as before. Why the provider did not read it is not known.",
};

/** `hasPlace`: the place where the prefix broke is shown beside it. */
export function CacheNote({ cache, hasPlace = false }: { cache: CacheUsage; hasPlace?: boolean }) {
  const { expected_tokens: expected, read_tokens: read, missed_tokens: missed, extra_cost_usd: extra } = cache;
  return (
    <>
      <p class="cache-note">
        The provider read <strong>{formatCount(read)}</strong> of {formatCount(expected)} expected tokens from its cache.
        {missed > 0 && (
          <>
            {" "}
            The {formatCount(missed)} that it did not read cost{" "}
            {extra === null ? "more, by an unknown amount." : <strong>{formatDollars(extra)} more.</strong>}
          </>
        )}
      </p>
      {!hasPlace && cache.cause && (
        <p>
          {CAUSES[cache.cause] ?? cache.reason} {!cache.reason.includes(cache.place) && <code>{cache.place}</code>}
        </p>
      )}
    </>
  );
}
