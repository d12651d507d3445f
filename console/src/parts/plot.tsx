import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Lines } from "../core/usage";
import { theme } from "../theme";
import { useMedia } from "./small";

const COLOURS = ["--accent", "--json-key", "--json-number", "--json-literal", "--good", "--text-muted"];
const HEIGHT = 300;
/** Up to so many values each has its point; a value alone is always one. */
const MAX_POINTS = 40;

/** How times are written, by the seconds between two of them; the day below, where a new one begins. */
const CLOCK: uPlot.Axis.Values = [
  [31_536_000, "{YYYY}", null, null, null, null, null, null, 1],
  [2_419_200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86_400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, ":{ss}", "\n{D} {MMM} {HH}:{mm}", null, "\n{D} {MMM} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

interface PlotProps {
  lines: Lines;
  label: string;
  format: (value: number) => string;
}

/** Lines over time. The legend shows the values under the pointer, and hides a line that is clicked; a range that is
 * dragged over is zoomed to, and a double click shows all again. What it shows is in a table, too. */
export function Plot({ lines, label, format }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const drawn = useRef<uPlot | null>(null);
  const isZoomed = useRef(false);
  const formatValue = useRef(format);
  formatValue.current = format;
  const isDark = useMedia("(prefers-color-scheme: dark)");
  const names = lines.names.join("\n");
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(element);
    // The colours are `light-dark(…)`: a canvas takes only what the browser has made of them.
    const probe = document.createElement("span");
    element.append(probe);
    const colour = (name: string): string => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    const axis: uPlot.Axis = { stroke: colour("--text-muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: `11px ${style.fontFamily}` };
    const plot = new uPlot(
      {
        width: element.clientWidth || 600,
        height: HEIGHT,
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] } },
        axes: [{ ...axis, values: CLOCK }, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => formatValue.current(tick)) }],
        series: [
          { label: "Time", value: "{D} {MMM} {HH}:{mm}" },
          ...lines.names.map((name, index): uPlot.Series => ({
            label: name,
            stroke: colour(COLOURS[index % COLOURS.length]!),
            width: 2,
            points: { show: (self, series) => hasPoints(self.data[series] ?? []) },
            value: (_, value) => (value == null ? "–" : formatValue.current(value)),
          })),
        ],
        hooks: { setSelect: [() => (isZoomed.current = true)] },
      },
      readData(lines),
      element,
    );
    probe.remove();
    isZoomed.current = false;
    drawn.current = plot;
    const showAll = (): boolean => (isZoomed.current = false);
    plot.over.addEventListener("dblclick", showAll);
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      drawn.current = null;
      plot.destroy();
    };
  }, [names, isDark, theme.value]);
  // What is new must not end the zoom of somebody who looks.
  useEffect(() => drawn.current?.setData(readData(lines), !isZoomed.current), [lines]);
  return <div class="plot" role="group" aria-label={label} ref={box} />;
}

function readData({ times, values }: Lines): uPlot.AlignedData {
  return [[...times], ...values.map((line) => [...line])];
}

function hasPoints(values: ArrayLike<number | null | undefined>): boolean {
  return values.length <= MAX_POINTS || Array.from(values).some((value, index) => value != null && values[index - 1] == null && values[index + 1] == null);
}
