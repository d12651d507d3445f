import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import type { Body, LossRow } from "../api";
import { formatBytes, formatCount, formatCountOf, showInvisible } from "../core/format";
import { foldedPreview, unfoldTo, unfoldUpTo, visibleLines, type JsonLine } from "../core/json_lines";
import { findPointer, isContainer, parseJson, pointerOf, scalarText, searchNodes, walkNodes, type JsonNode } from "../core/json_text";
import { moveIndex } from "../core/row_window";
import { Choice, CopyButton } from "./small";
import { VirtualList, type ListControl } from "./virtual_list";

const ROW_HEIGHT = 20;
const FIRST_LINES = 300;

interface Props {
  title: string;
  body: Body;
  /** What happened at places of this text; the paths are JSON Pointers into it. */
  losses?: readonly LossRow[];
  /** A JSON Pointer to show. */
  at?: string | null;
}

/** A body: as a tree that folds and can be searched, or as it was sent. */
export function JsonView({ title, body, losses = [], at = null }: Props) {
  const json = useMemo(() => parseJson(body.text), [body.text]);
  const [shape, setShape] = useState<"tree" | "raw">("tree");
  const [query, setQuery] = useState("");
  const [match, setMatch] = useState(0);
  const isJson = json.root !== null && (json.brokenAt < 0 || isContainer(json.root));
  const found = useMemo(() => (query ? searchNodes(json, query) : []), [json, query]);
  const current = found.length ? found[match % found.length]! : null;
  const search = useId();
  const step = (by: number): void => setMatch((old) => (old + by + found.length) % Math.max(1, found.length));

  return (
    <section class="panel json-view" aria-label={title}>
      <header class="panel-head">
        <h2>{title}</h2>
        <span class="muted">{formatBytes(body.size)}</span>
        <span class="grow" />
        {isJson && shape === "tree" && (
          <search class="json-search">
            <label class="hidden" for={search}>
              Search in {title}
            </label>
            <input
              id={search}
              type="search"
              placeholder="Search"
              value={query}
              onInput={(event) => {
                setQuery(event.currentTarget.value);
                setMatch(0);
              }}
              onKeyDown={(event) => {
                if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
              }}
            />
            {query && (
              <span class="match-count" aria-live="polite">
                {found.length ? `${(match % found.length) + 1}/${formatCount(found.length)}` : "none"}
              </span>
            )}
          </search>
        )}
        {isJson && (
          <Choice
            label={`Show ${title} as`}
            options={[
              { value: "tree", title: "Tree" },
              { value: "raw", title: "Raw" },
            ]}
            value={shape}
            onChange={setShape}
          />
        )}
        {body.text && <CopyButton text={body.text} class="button quiet" />}
      </header>
      {body.is_cut && (
        <p class="note tone-warn">
          Only the first {formatBytes(body.text.length)} of {formatBytes(body.size)} were kept.
        </p>
      )}
      {!body.text ? (
        <p class="panel-empty">{body.size ? "This body was too long to be kept." : "Empty"}</p>
      ) : isJson && shape === "tree" ? (
        <JsonTree title={title} json={json} losses={losses} at={at} current={current} query={query} />
      ) : (
        <RawText title={title} text={body.text} />
      )}
    </section>
  );
}

function RawText({ title, text }: { title: string; text: string }) {
  const lines = useMemo(() => text.split("\n").flatMap((line) => line.match(/[^]{1,2000}/g) ?? [""]), [text]);
  return (
    <VirtualList
      class="raw-text mono"
      label={`${title}, as it was sent`}
      tabIndex={0}
      items={lines}
      rowHeight={ROW_HEIGHT}
      keyOf={(_, index) => index}
      renderRow={(line) => <span class="raw-line">{showInvisible(line)}</span>}
    />
  );
}

interface TreeProps {
  title: string;
  json: ReturnType<typeof parseJson>;
  losses: readonly LossRow[];
  at: string | null;
  current: JsonNode | null;
  query: string;
}

function JsonTree({ title, json, losses, at, current, query }: TreeProps) {
  const [columns, setColumns] = useState(100);
  const [unfolded, setUnfolded] = useState<ReadonlySet<JsonNode>>(() => unfoldUpTo(json, FIRST_LINES, 100));
  const [active, setActive] = useState<JsonNode | null>(null);
  const [marked, setMarked] = useState<JsonNode | null>(null);
  const list = useRef<ListControl>(null);
  const id = useId();
  const lines = useMemo(() => visibleLines(json, unfolded, columns), [json, unfolded, columns]);
  const marks = useMemo(() => placeLosses(json.root, losses), [json, losses]);
  const shownJson = useRef(json);

  useEffect(() => {
    if (shownJson.current === json) return;
    shownJson.current = json;
    setUnfolded(unfoldUpTo(json, FIRST_LINES, columns));
    setActive(null);
  }, [json]);

  const target = useMemo(() => (at === null || !json.root ? null : findPointer(json.root, at).node), [json, at]);
  const shown = current ?? target;
  useEffect(() => {
    setMarked(target);
  }, [target]);
  const wanted = useRef<JsonNode | null>(null);
  useEffect(() => {
    if (!shown) return;
    wanted.current = shown;
    setActive(shown);
    setUnfolded((old) => unfoldTo(shown, old));
  }, [shown]);
  useEffect(() => {
    if (!wanted.current) return;
    const index = lines.findIndex((line) => line.node === wanted.current);
    if (index < 0) return;
    list.current?.showRow(index, true);
    wanted.current = null;
  }, [lines, shown]);

  const toggle = (node: JsonNode, all = false): void => {
    const next = new Set(unfolded);
    const isOpen = next.has(node);
    for (const inner of all ? walkNodes(node) : [node]) isOpen ? next.delete(inner) : next.add(inner);
    setUnfolded(next);
    setActive(node);
  };
  const items = useMemo(() => lines.map((line, index) => ({ line, index })).filter(({ line }) => isItem(line)), [lines]);
  const activeItem = items.findIndex(({ line }) => line.node === active);
  const activeLine = activeItem < 0 ? -1 : items[activeItem]!.index;
  const move = (to: number): void => {
    const item = items[to];
    if (!item) return;
    setActive(item.line.node);
    list.current?.showRow(item.index);
  };
  const press = (event: KeyboardEvent): void => {
    const item = items[activeItem];
    const isOpen = item && (item.line.kind === "open" || item.line.kind === "part");
    const actions: Record<string, () => void> = {
      ArrowDown: () => move(moveIndex(activeItem, 1, items.length)),
      ArrowUp: () => move(moveIndex(activeItem, -1, items.length)),
      Home: () => move(0),
      End: () => move(items.length - 1),
      PageDown: () => move(moveIndex(activeItem, 20, items.length)),
      PageUp: () => move(moveIndex(activeItem, -20, items.length)),
      ArrowRight: () => item && (item.line.kind === "folded" ? toggle(item.line.node) : move(activeItem + 1)),
      ArrowLeft: () => {
        if (!item) return;
        if (isOpen) toggle(item.line.node);
        else move(items.findIndex(({ line }) => line.node === item.line.node.parent));
      },
      Enter: () => item && (isOpen || item.line.kind === "folded") && toggle(item.line.node),
    };
    const run = actions[event.key];
    if (!run || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    run();
  };

  return (
    <>
      <VirtualList
        class="json-tree mono"
        role="tree"
        label={title}
        tabIndex={0}
        activeDescendant={activeLine >= 0 ? `${id}-${activeLine}` : undefined}
        activeIndex={activeLine}
        control={list}
        items={lines}
        rowHeight={ROW_HEIGHT}
        keyOf={(_, index) => index}
        onWidth={(width) => setColumns(Math.max(30, Math.floor((width - 44) / charWidth())))}
        onKeyDown={press}
        renderRow={(line, index) => (
          <TreeLine
            id={`${id}-${index}`}
            line={line}
            text={json.text}
            columns={columns}
            isActive={line.node === active && line.kind !== "close"}
            isMarked={(line.node === marked || line.node === current) && line.kind !== "close"}
            query={query}
            losses={isItem(line) ? marks.at.get(line.node) : undefined}
            hiddenLosses={line.kind === "folded" ? (marks.inside.get(line.node) ?? 0) : 0}
            onToggle={(all) => toggle(line.node, all)}
            onActivate={() => setActive(line.node)}
          />
        )}
      />
      <footer class="panel-foot">
        <code class="pointer" title="JSON Pointer">
          {active ? pointerOf(active) || "/" : ""}
        </code>
        {json.brokenAt >= 0 && <span class="tone-text-warn">not JSON from character {formatCount(json.brokenAt)}</span>}
        {active && <CopyButton text={() => pointerOf(active)} label="Copy path" class="button quiet" />}
        {active && <CopyButton text={() => copyOf(json.text, active)} label="Copy value" class="button quiet" />}
        <button type="button" class="button quiet" onClick={() => json.root && setUnfolded(new Set(walkNodes(json.root)))}>
          Unfold all
        </button>
        <button type="button" class="button quiet" onClick={() => json.root && setUnfolded(new Set([json.root]))}>
          Fold
        </button>
      </footer>
    </>
  );
}

/** The lines that a person moves between. */
function isItem(line: JsonLine): boolean {
  return line.kind !== "close" && (line.kind !== "part" || line.from === 0);
}

function copyOf(text: string, node: JsonNode): string {
  return isContainer(node) ? text.slice(node.start, node.end) : scalarText(text, node);
}

function placeLosses(root: JsonNode | null, losses: readonly LossRow[]) {
  const at = new Map<JsonNode, LossRow[]>();
  const inside = new Map<JsonNode, number>();
  if (!root) return { at, inside };
  for (const loss of losses) {
    const { node } = findPointer(root, loss.path);
    at.set(node, [...(at.get(node) ?? []), loss]);
    for (let outer = node.parent; outer; outer = outer.parent) inside.set(outer, (inside.get(outer) ?? 0) + 1);
  }
  return { at, inside };
}

interface LineProps {
  id: string;
  line: JsonLine;
  text: string;
  columns: number;
  isActive: boolean;
  isMarked: boolean;
  query: string;
  losses: readonly LossRow[] | undefined;
  hiddenLosses: number;
  onToggle: (all: boolean) => void;
  onActivate: () => void;
}

function TreeLine({ id, line, text, columns, isActive, isMarked, query, losses, hiddenLosses, onToggle, onActivate }: LineProps) {
  const { node, kind, depth } = line;
  const item = isItem(line);
  const folds = kind === "open" || kind === "folded" || (kind === "part" && line.from === 0);
  return (
    <div
      id={item ? id : undefined}
      role={item ? "treeitem" : "presentation"}
      aria-level={item ? depth + 1 : undefined}
      aria-expanded={folds && item ? kind !== "folded" : undefined}
      aria-selected={item ? isActive : undefined}
      class={`json-line${isActive ? " active" : ""}${isMarked ? " marked" : ""}`}
      style={{ paddingLeft: `${depth * 2 + 2.5}ch` }}
      onClick={(event) => (folds && !getSelection()?.toString() ? onToggle(event.altKey) : onActivate())}
    >
      {folds && (
        <span class={`fold-mark${kind === "folded" ? "" : " open"}`} aria-hidden="true" style={{ left: `${depth * 2 + 0.5}ch` }}>
          ›
        </span>
      )}
      {item && typeof node.key === "string" && (
        <>
          <span class="json-key">
            <Highlight text={showInvisible(node.key)} query={query} />
          </span>
          <span class="json-mark">: </span>
        </>
      )}
      <LineValue line={line} text={text} columns={columns} query={query} />
      {losses?.map((loss) => (
        <span class={`loss-mark severity-${loss.severity}`} key={loss.code} title={`${loss.what}: ${loss.why}`}>
          {loss.code}
        </span>
      ))}
      {hiddenLosses > 0 && <span class="loss-mark severity-changed">{formatCountOf(hiddenLosses, "loss", "losses")} inside</span>}
    </div>
  );
}

function LineValue({ line, text, columns, query }: { line: JsonLine; text: string; columns: number; query: string }) {
  const { node, kind } = line;
  const [open, close] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
  if (kind === "close") return <span class="json-mark">{close}</span>;
  if (kind === "open") return <span class="json-mark">{open}</span>;
  const room = Math.max(20, Math.min(240, columns - line.depth * 2 - 24));
  if (isContainer(node)) {
    if (!node.items.length) return <span class="json-mark">{open + close}</span>;
    const size = formatCountOf(node.items.length, node.kind === "object" ? "key" : "item");
    return (
      <>
        <span class="json-folded">{showInvisible(foldedPreview(text, node, room))}</span>
        <span class="json-size">{size}</span>
      </>
    );
  }
  if (node.kind !== "string") {
    return (
      <span class={`json-${node.kind}`}>
        <Highlight text={text.slice(node.start, node.end)} query={query} />
      </span>
    );
  }
  const value = scalarText(text, node);
  if (kind === "folded") {
    return (
      <>
        <span class="json-string">{showInvisible(JSON.stringify(value.slice(0, room)).slice(0, -1))}…</span>
        <span class="json-size">{formatCountOf(value.length, "character")}</span>
      </>
    );
  }
  if (kind === "value") {
    return (
      <span class="json-string">
        <Highlight text={showInvisible(JSON.stringify(value))} query={query} />
      </span>
    );
  }
  const piece = value.slice(line.from, line.to).replace(/\n$/, "");
  return (
    <span class="json-string">
      {line.from === 0 ? '"' : ""}
      <Highlight text={showInvisible(piece)} query={query} />
      {line.to === value.length ? '"' : ""}
    </span>
  );
}

function Highlight({ text, query }: { text: string; query: string }) {
  const at = query ? text.toLowerCase().indexOf(query.toLowerCase()) : -1;
  if (at < 0) return <>{text}</>;
  return (
    <>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + query.length)}</mark>
      {text.slice(at + query.length)}
    </>
  );
}

let measuredWidth = 0;

/** The width of a character of the monospace font in pixels. */
function charWidth(): number {
  if (measuredWidth) return measuredWidth;
  const probe = document.createElement("span");
  probe.className = "mono probe";
  probe.textContent = "0".repeat(100);
  document.body.append(probe);
  measuredWidth = probe.getBoundingClientRect().width / 100 || 7.2;
  probe.remove();
  return measuredWidth;
}
