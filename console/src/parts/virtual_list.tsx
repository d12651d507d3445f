import type { ComponentChildren, Ref } from "preact";
import { useCallback, useImperativeHandle, useLayoutEffect, useRef, useState } from "preact/hooks";
import { keepPlace, scrollToRow, visibleRows } from "../core/row_window";

export interface ListControl {
  showRow: (index: number, center?: boolean) => void;
  element: () => HTMLElement | null;
}

interface Props<T> {
  items: readonly T[];
  rowHeight: number;
  keyOf: (item: T, index: number) => string | number;
  renderRow: (item: T, index: number) => ComponentChildren;
  /** Exists also where it is not visible, so that it keeps the focus. */
  activeIndex?: number;
  control?: Ref<ListControl>;
  /** Rows that come in above what is visible do not move it. */
  keepsPlace?: boolean;
  onWidth?: (width: number) => void;
  class?: string;
  role?: "list" | "tree" | "rowgroup";
  label?: string;
  tabIndex?: number;
  activeDescendant?: string | undefined;
  onKeyDown?: (event: KeyboardEvent) => void;
}

const EXTRA_ROWS = 6;

/** A list of any length: only the rows that are visible are in the document. */
export function VirtualList<T>(props: Props<T>) {
  const { items, rowHeight, keyOf, renderRow, activeIndex = -1, keepsPlace = false, onWidth } = props;
  const outer = useRef<HTMLDivElement>(null);
  const [scrollTop, setScrollTop] = useState(0);
  const [viewHeight, setViewHeight] = useState(600);
  const top = useRef<{ key: string | number; index: number } | null>(null);

  useLayoutEffect(() => {
    const element = outer.current;
    if (!element) return;
    const measure = (): void => {
      setViewHeight(element.clientHeight);
      onWidth?.(element.clientWidth);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = outer.current;
    if (!element) return;
    const before = top.current;
    if (keepsPlace && before && element.scrollTop > 0) {
      const index = items.findIndex((item, at) => keyOf(item, at) === before.key);
      const place = keepPlace(element.scrollTop, rowHeight, before.index, index);
      if (place !== element.scrollTop) element.scrollTop = place;
    }
    rememberTop(element.scrollTop);
    if (element.scrollTop !== scrollTop) setScrollTop(element.scrollTop);
  }, [items, rowHeight]);

  const rememberTop = (place: number): void => {
    const index = Math.floor(place / rowHeight);
    const item = items[index];
    top.current = item === undefined ? null : { key: keyOf(item, index), index };
  };

  const showRow = useCallback(
    (index: number, center = false) => {
      const element = outer.current;
      if (!element || index < 0) return;
      const place = scrollToRow(index, rowHeight, element.scrollTop, element.clientHeight);
      if (place === element.scrollTop) return;
      element.scrollTop = center ? index * rowHeight - element.clientHeight / 3 : place;
      setScrollTop(element.scrollTop);
    },
    [rowHeight],
  );
  useImperativeHandle(props.control ?? null, () => ({ showRow, element: () => outer.current }), [showRow]);

  const { first, end } = visibleRows(items.length, rowHeight, scrollTop, viewHeight, EXTRA_ROWS);
  const indexes = Array.from({ length: end - first }, (_, index) => first + index);
  if (activeIndex >= 0 && activeIndex < items.length && (activeIndex < first || activeIndex >= end)) indexes.push(activeIndex);

  // A browser draws no element that is higher than some 16 million pixels.
  const height = Math.min(items.length * rowHeight, 16_000_000);
  return (
    <div
      ref={outer}
      class={`virtual ${props.class ?? ""}`}
      role={props.role ?? "list"}
      aria-label={props.label}
      tabIndex={props.tabIndex ?? -1}
      aria-activedescendant={props.activeDescendant}
      onKeyDown={props.onKeyDown}
      onScroll={(event) => {
        rememberTop(event.currentTarget.scrollTop);
        setScrollTop(event.currentTarget.scrollTop);
      }}
    >
      <div class="virtual-space" role="presentation" style={{ height: `${height}px` }}>
        {indexes.map((index) => (
          <div
            key={keyOf(items[index]!, index)}
            class="virtual-row"
            role={(props.role ?? "list") === "list" ? "listitem" : "presentation"}
            aria-setsize={(props.role ?? "list") === "list" ? items.length : undefined}
            aria-posinset={(props.role ?? "list") === "list" ? index + 1 : undefined}
            style={{ height: `${rowHeight}px`, transform: `translateY(${index * rowHeight}px)` }}
          >
            {renderRow(items[index]!, index)}
          </div>
        ))}
      </div>
    </div>
  );
}
