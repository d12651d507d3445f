import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Lines } from "../core/usage";
import { theme } from "../theme";
import { useMedia } from "./small";

const COLOURS = ["--accent", "--json-key", "--json-number", "--json-literal", "--good", "--text-muted"];
const HEIGHT = 300;

interface PlotProps {
  lines: Lines;
  label: string;
  format: (value: number) => string;
}

/** Lines over time. The legend shows the values under the pointer, and hides a line that is clicked; a range that is
 * dragged over is zoomed to, and a double click shows all again. What it shows is in a table, too. */
export function Plot({ lines, label, format }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const isDark = useMedia("(prefers-color-scheme: dark)");
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
        axes: [axis, { ...axis, size: 70, values: (_, ticks) => ticks.map(format) }],
        series: [
          { label: "Time" },
          ...lines.names.map((name, index): uPlot.Series => ({
            label: name,
            stroke: colour(COLOURS[index % COLOURS.length]!),
            width: 2,
            points: { show: lines.times.length < 40 },
            value: (_, value) => (value == null ? "–" : format(value)),
          })),
        ],
      },
      [[...lines.times], ...lines.values.map((line) => [...line])],
      element,
    );
    probe.remove();
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [lines, isDark, theme.value]);
  return <div class="plot" role="group" aria-label={label} ref={box} />;
}
