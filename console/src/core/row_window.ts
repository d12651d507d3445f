// The arithmetic of a list in which only the visible rows exist. All rows have the same height.

export interface RowWindow {
  first: number;
  /** After the last row. */
  end: number;
}

export function visibleRows(count: number, rowHeight: number, scrollTop: number, viewHeight: number, extra: number): RowWindow {
  const first = Math.floor(Math.max(0, scrollTop) / rowHeight) - extra;
  const end = Math.ceil((Math.max(0, scrollTop) + viewHeight) / rowHeight) + extra;
  return { first: Math.min(Math.max(0, first), count), end: Math.max(0, Math.min(count, end)) };
}

/** Where to scroll so that a row is visible; the same place if it is visible already. */
export function scrollToRow(index: number, rowHeight: number, scrollTop: number, viewHeight: number): number {
  const top = index * rowHeight;
  if (top < scrollTop) return top;
  if (top + rowHeight > scrollTop + viewHeight) return top + rowHeight - viewHeight;
  return scrollTop;
}

/** Where to scroll so that what a person reads stays in its place when rows come in above it. At the top of the list
 * the newest rows are what a person wants to see. */
export function keepPlace(scrollTop: number, rowHeight: number, oldIndex: number, newIndex: number): number {
  return scrollTop <= 0 || newIndex < 0 ? scrollTop : scrollTop + (newIndex - oldIndex) * rowHeight;
}

export function moveIndex(index: number, step: number, count: number): number {
  if (count === 0) return -1;
  return index < 0 ? (step > 0 ? 0 : count - 1) : Math.max(0, Math.min(count - 1, index + step));
}
