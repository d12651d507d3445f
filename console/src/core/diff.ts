// Differences between two lists of lines: the algorithm of Myers (1986), with a limit, because two answers of models may
// have nothing in common. Beyond the limit, lines that both sides have exactly once divide the texts ("patience diff"), and
// what is between them is compared again.

export interface DiffRow {
  kind: "same" | "changed" | "removed" | "added";
  /** Numbers of lines, from 0; -1 where the side has none. */
  left: number;
  right: number;
}

export interface Diff {
  rows: DiffRow[];
  /** More than the limit differs, so that the rest is shown as replaced. */
  isCoarse: boolean;
}

export const MAX_EDITS = 1500;

export function diffLines(left: readonly string[], right: readonly string[], maxEdits = MAX_EDITS): Diff {
  let start = 0;
  const shorter = Math.min(left.length, right.length);
  while (start < shorter && left[start] === right[start]) start++;
  let tail = 0;
  while (tail < shorter - start && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail++;

  const rows: DiffRow[] = [];
  for (let index = 0; index < start; index++) rows.push({ kind: "same", left: index, right: index });
  const { pairs, isCoarse } = pairLines(left.slice(start, left.length - tail), right.slice(start, right.length - tail), maxEdits);
  let [a, b] = [start, start];
  const addBlock = (toA: number, toB: number): void => {
    for (; a < toA && b < toB; a++, b++) rows.push({ kind: "changed", left: a, right: b });
    for (; a < toA; a++) rows.push({ kind: "removed", left: a, right: -1 });
    for (; b < toB; b++) rows.push({ kind: "added", left: -1, right: b });
  };
  for (const [x, y] of pairs) {
    addBlock(x + start, y + start);
    rows.push({ kind: "same", left: a++, right: b++ });
  }
  addBlock(left.length - tail, right.length - tail);
  for (let index = 0; index < tail; index++) rows.push({ kind: "same", left: a++, right: b++ });
  return { rows, isCoarse };
}

type Pair = [number, number];

function pairLines(left: readonly string[], right: readonly string[], maxEdits: number): { pairs: Pair[]; isCoarse: boolean } {
  const whole = commonPairs(left, right, maxEdits);
  if (whole) return { pairs: whole, isCoarse: false };
  const pairs: Pair[] = [];
  let isCoarse = false;
  let [a, b] = [0, 0];
  for (const [x, y] of [...uniquePairs(left, right), [left.length, right.length] as Pair]) {
    const inner = commonPairs(left.slice(a, x), right.slice(b, y), maxEdits);
    for (const [i, j] of inner ?? []) pairs.push([a + i, b + j]);
    isCoarse ||= inner === null;
    if (x < left.length) pairs.push([x, y]);
    [a, b] = [x + 1, y + 1];
  }
  return { pairs, isCoarse };
}

/** The longest sequence of lines, in the order of both sides, that each side has exactly once. */
function uniquePairs(left: readonly string[], right: readonly string[]): Pair[] {
  const places = new Map<string, { left: number[]; right: number[] }>();
  const note = (side: "left" | "right") => (line: string, index: number) => {
    const place = places.get(line) ?? { left: [], right: [] };
    place[side].push(index);
    places.set(line, place);
  };
  left.forEach(note("left"));
  right.forEach(note("right"));
  const unique = [...places.values()].filter((place) => place.left.length === 1 && place.right.length === 1);
  const pairs = unique.map((place): Pair => [place.left[0]!, place.right[0]!]).sort((x, y) => x[0] - y[0]);

  // The longest increasing subsequence of the right side's numbers: `ends[n]` is the pair that ends the best one of n + 1.
  const ends: number[] = [];
  const before: number[] = [];
  pairs.forEach(([, y], index) => {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[ends[middle]!]![1] < y) low = middle + 1;
      else high = middle;
    }
    before[index] = low > 0 ? ends[low - 1]! : -1;
    ends[low] = index;
  });
  const chosen: Pair[] = [];
  for (let at = ends.at(-1) ?? -1; at >= 0; at = before[at]!) chosen.push(pairs[at]!);
  return chosen.reverse();
}

/** Lines that are the same on both sides, in order; null if there are more than `maxEdits` differences. */
function commonPairs(left: readonly string[], right: readonly string[], maxEdits: number): Pair[] | null {
  const [n, m] = [left.length, right.length];
  if (n === 0 || m === 0) return [];
  const limit = Math.min(n + m, maxEdits);
  const size = 2 * limit + 3;
  const furthest = new Int32Array(size);
  const middle = limit + 1;
  const trace: Int32Array[] = [];
  for (let edits = 0; edits <= limit; edits++) {
    // Only the diagonals that the next step reads.
    trace.push(furthest.slice(middle - edits - 1, middle + edits + 2));
    for (let k = -edits; k <= edits; k += 2) {
      const isDown = k === -edits || (k !== edits && furthest[middle + k - 1]! < furthest[middle + k + 1]!);
      let x = isDown ? furthest[middle + k + 1]! : furthest[middle + k - 1]! + 1;
      let y = x - k;
      while (x < n && y < m && left[x] === right[y]) {
        x++;
        y++;
      }
      furthest[middle + k] = x;
      if (x >= n && y >= m) return tracePairs(trace, n, m);
    }
  }
  return null;
}

function tracePairs(trace: readonly Int32Array[], n: number, m: number): Pair[] {
  const pairs: Pair[] = [];
  let [x, y] = [n, m];
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const before = trace[edits]!;
    const at = (k: number): number => before[k + edits + 1]!;
    const k = x - y;
    const isDown = k === -edits || (k !== edits && at(k - 1) < at(k + 1));
    const fromK = isDown ? k + 1 : k - 1;
    const fromX = edits === 0 ? 0 : at(fromK);
    const fromY = edits === 0 ? 0 : fromX - fromK;
    while (x > fromX && y > fromY) pairs.push([--x, --y]);
    [x, y] = [fromX, fromY];
  }
  return pairs.reverse();
}

/** What differs between two lines: the characters that both begin and end with are not part of it. Null if they have so
 * little in common that marking a part of them would not help. */
export function changedRange(left: string, right: string): { start: number; leftEnd: number; rightEnd: number } | null {
  const shorter = Math.min(left.length, right.length);
  let start = 0;
  while (start < shorter && left[start] === right[start]) start++;
  let tail = 0;
  while (tail < shorter - start && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail++;
  const indent = left.length - left.trimStart().length;
  if (start - Math.min(start, indent) + tail < shorter / 4) return null;
  return { start, leftEnd: left.length - tail, rightEnd: right.length - tail };
}

export interface DiffFold {
  /** The first row that is hidden, and how many are. */
  first: number;
  count: number;
}

export type ShownRow = { row: DiffRow } | { fold: DiffFold };

/** Long runs of equal lines become one row, except those in `unfolded` (by their first row). */
export function foldSame(rows: readonly DiffRow[], context: number, unfolded: ReadonlySet<number>): ShownRow[] {
  const shown: ShownRow[] = [];
  for (let at = 0; at < rows.length; ) {
    let end = at;
    while (end < rows.length && rows[end]!.kind === "same") end++;
    if (end === at) {
      shown.push({ row: rows[at++]! });
      continue;
    }
    const first = at === 0 ? 0 : at + context;
    const last = end === rows.length ? end : end - context;
    const isFolded = last - first > 1 && !unfolded.has(first);
    for (; at < end; at++) {
      if (isFolded && at === first) {
        shown.push({ fold: { first, count: last - first } });
        at = last - 1;
      } else shown.push({ row: rows[at]! });
    }
  }
  return shown;
}
