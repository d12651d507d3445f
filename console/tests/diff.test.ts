import { describe, expect, test } from "vitest";
import { changedRange, diffLines, foldSame, type DiffRow } from "../src/core/diff";

const SIGNS = { same: "=", changed: "~", removed: "-", added: "+" };
const show = (left: string, right: string, limit?: number) =>
  diffLines([...left], [...right], limit).rows.map((row) => SIGNS[row.kind] + ([...left][row.left] ?? "") + ([...right][row.right] ?? "")).join(" ");

describe("differences", () => {
  test.each([
    ["", "", ""],
    ["a", "a", "=aa"],
    ["", "a", "+a"],
    ["ab", "b", "-a =bb"],
    ["abc", "axc", "=aa ~bx =cc"],
    ["abcd", "bd", "-a =bb -c =dd"],
    ["aXbYc", "abZc", "=aa -X =bb ~YZ =cc"],
    ["abc", "xyz", "~ax ~by ~cz"],
  ])("%s and %s", (left, right, expected) => expect(show(left, right)).toBe(expected));
});

/** The length of the longest common subsequence, in the plain way. */
function commonLength(a: readonly string[], b: readonly string[]): number {
  let row = new Array<number>(b.length + 1).fill(0);
  for (const x of a) {
    const next = [0];
    b.forEach((y, index) => next.push(x === y ? row[index]! + 1 : Math.max(row[index + 1]!, next[index]!)));
    row = next;
  }
  return row[b.length]!;
}

test("law: each side is whole and in order, equal lines are equal, and no shorter script exists", () => {
  let seed = 42;
  const random = (limit: number) => (seed = (seed * 48271) % 2147483647) % limit;
  for (let round = 0; round < 300; round++) {
    const make = () => Array.from({ length: random(14) }, () => "abc"[random(3)]!);
    const [left, right] = [make(), make()];
    const { rows, isCoarse } = diffLines(left, right);
    expect(isCoarse).toBe(false);
    expect(rows.filter((row) => row.left >= 0).map((row) => row.left)).toEqual(left.map((_, index) => index));
    expect(rows.filter((row) => row.right >= 0).map((row) => row.right)).toEqual(right.map((_, index) => index));
    const same = rows.filter((row) => row.kind === "same");
    for (const row of same) expect(left[row.left]).toBe(right[row.right]);
    expect(same.length).toBe(commonLength(left, right));
  }
});

test("beyond the limit, lines that are unique divide the texts", () => {
  const left = Array.from({ length: 50 }, (_, index) => [`key ${index}`, "old", "}"]).flat();
  const right = left.map((line, index) => (line === "old" ? `new ${index}` : line));
  const diff = diffLines(left, right, 10);
  expect(diff.isCoarse).toBe(false);
  expect(diff.rows).toEqual(left.map((line, index) => ({ kind: line === "old" ? "changed" : "same", left: index, right: index })));
});

test("lines that moved are paired once, and in order", () => {
  const left = [..."abcdefgh"].map((char) => char.repeat(3));
  const { rows } = diffLines([...left, "x1"], [...left.slice(4), ...left.slice(0, 4), "x2"], 2);
  const same = rows.filter((row) => row.kind === "same");
  expect(same).toHaveLength(4);
  expect(same.map((row) => row.right)).toEqual(same.map((row) => row.right).toSorted((x, y) => x - y));
});

test("beyond the limit, the middle is replaced as a whole", () => {
  expect(diffLines([..."a1234z"], [..."a5678z"], 3).isCoarse).toBe(true);
  expect(show("a1234z", "a5678z", 3)).toBe("=aa ~15 ~26 ~37 ~48 =zz");
});

test("the changed part of a line", () => {
  expect(changedRange('"model": "a1"', '"model": "a22"')).toEqual({ start: 11, leftEnd: 12, rightEnd: 13 });
  expect(changedRange("aaa", "aa")).toEqual({ start: 2, leftEnd: 3, rightEnd: 2 });
  expect(changedRange('    "owner": {', '    "type": 1234567890,')).toBe(null);
});

test("long runs of equal lines are folded, with context, until somebody opens them", () => {
  const row = (kind: DiffRow["kind"], at: number): DiffRow => ({ kind, left: at, right: at });
  const rows = Array.from({ length: 20 }, (_, at) => row(at === 10 ? "changed" : "same", at));
  const sizes = (unfolded: Set<number>) => foldSame(rows, 3, unfolded).map((one) => ("fold" in one ? one.fold.count : one.row.left));
  expect(sizes(new Set())).toEqual([7, 7, 8, 9, 10, 11, 12, 13, 6]);
  expect(sizes(new Set([0]))).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 6]);
  expect(sizes(new Set([0, 14]))).toHaveLength(20);
});
