import { useMemo, useState } from "preact/hooks";
import { changedRange, diffLines, foldSame, type DiffRow, type ShownRow } from "../core/diff";
import { formatCountOf, showInvisible } from "../core/format";
import { prettyLines } from "../core/json_lines";
import { parseJson } from "../core/json_text";
import { useMedia } from "./small";
import { VirtualList } from "./virtual_list";

const ROW_HEIGHT = 20;
const CONTEXT = 3;

interface Props {
  title: string;
  left: string;
  right: string;
  leftTitle: string;
  rightTitle: string;
  /** As high as its lines, up to a limit: inside other content. */
  isCompact?: boolean;
}

/** The differences between two JSON texts, line by line; side by side where there is room. */
export function DiffView({ title, left, right, leftTitle, rightTitle, isCompact = false }: Props) {
  const a = useMemo(() => prettyLines(parseJson(left)), [left]);
  const b = useMemo(() => prettyLines(parseJson(right)), [right]);
  const diff = useMemo(() => diffLines(a.map(lineContent), b.map(lineContent)), [a, b]);
  const [unfolded, setUnfolded] = useState<ReadonlySet<number>>(new Set());
  const isWide = useMedia("(min-width: 900px)");
  const shown = useMemo(() => {
    const rows = foldSame(diff.rows, CONTEXT, unfolded);
    return isWide ? rows : rows.flatMap(splitChanged);
  }, [diff, unfolded, isWide]);
  const changes = diff.rows.filter((row) => row.kind !== "same").length;

  return (
    <section class={`panel diff-view${isCompact ? " compact" : ""}`} aria-label={title}>
      <header class="panel-head">
        <h2>{title}</h2>
        <span class={changes ? "tone-text-warn" : "muted"}>{changes ? formatCountOf(changes, "line differs", "lines differ") : "the same"}</span>
        {diff.isCoarse && <span class="muted">too different to be compared line by line</span>}
      </header>
      <div class="diff-names">
        <span>− {leftTitle}</span>
        <span>+ {rightTitle}</span>
      </div>
      <div class="diff-body" style={isCompact ? { height: `${Math.min(24, Math.max(1, shown.length)) * ROW_HEIGHT}px` } : {}}>
        <VirtualList
          class={`diff-lines mono ${isWide ? "wide" : ""}`}
          label={title}
          tabIndex={0}
          items={shown}
          rowHeight={ROW_HEIGHT}
          keyOf={(_, index) => index}
          renderRow={(item) =>
            "fold" in item ? (
              <button type="button" class="diff-fold" onClick={() => setUnfolded(new Set([...unfolded, item.fold.first]))}>
                {formatCountOf(item.fold.count, "equal line")}
              </button>
            ) : (
              <Row row={item.row} left={a} right={b} isWide={isWide} />
            )
          }
        />
      </div>
    </section>
  );
}

/** Protocols nest the same members at other depths, and put them in another order: that alone is not a difference. */
function lineContent(line: string): string {
  return line.trim().replace(/,$/, "");
}

/** In one column a changed line is two. */
function splitChanged(shown: ShownRow): ShownRow[] {
  if (!("row" in shown) || shown.row.kind !== "changed") return [shown];
  const { left, right } = shown.row;
  return [{ row: { kind: "removed", left, right: -1 } }, { row: { kind: "added", left: -1, right } }];
}

function Row({ row, left, right, isWide }: { row: DiffRow; left: readonly string[]; right: readonly string[]; isWide: boolean }) {
  const a = row.left < 0 ? null : left[row.left]!;
  const b = row.right < 0 ? null : right[row.right]!;
  const range = row.kind === "changed" && a !== null && b !== null ? changedRange(a, b) : null;
  if (!isWide) {
    const text = a ?? b ?? "";
    const sign = row.kind === "removed" ? "−" : row.kind === "added" ? "+" : " ";
    return (
      <div class={`diff-line ${row.kind}`}>
        <span class="diff-sign">{sign}</span>
        <span class="diff-text">{showInvisible(text)}</span>
      </div>
    );
  }
  return (
    <div class="diff-pair">
      <Side text={a} number={row.left} kind={row.kind === "changed" ? "removed" : row.kind} range={range && [range.start, range.leftEnd]} />
      <Side text={b} number={row.right} kind={row.kind === "changed" ? "added" : row.kind} range={range && [range.start, range.rightEnd]} />
    </div>
  );
}

const LINES_BEFORE_CUT = 60;

function Side({ text, number, kind, range }: { text: string | null; number: number; kind: DiffRow["kind"]; range: [number, number] | null }) {
  if (text === null) return <div class="diff-line none" />;
  // What differs must be visible also in a long line.
  const cut = range && range[0] > LINES_BEFORE_CUT * 2 ? range[0] - LINES_BEFORE_CUT : 0;
  return (
    <div class={`diff-line ${kind}`}>
      <span class="diff-number">{number + 1}</span>
      <span class="diff-text" title={text.length > 100 ? text.slice(0, 2000) : undefined}>
        {range ? (
          <>
            {cut > 0 && "…"}
            {showInvisible(text.slice(cut, range[0]))}
            <mark>{showInvisible(text.slice(...range))}</mark>
            {showInvisible(text.slice(range[1]))}
          </>
        ) : (
          showInvisible(text)
        )}
      </span>
    </div>
  );
}
