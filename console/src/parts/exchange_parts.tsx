// How an exchange is shown in lists: the same in all views.

import type { CalledTool, ExchangeRow } from "../api";
import { failureOf } from "../core/filter";
import { formatMs } from "../core/format";
import { Badge, type Tone } from "./small";

export function statusTone(row: ExchangeRow): Tone {
  if (row.state === "running") return "accent";
  if (row.state === "disconnected") return "warn";
  return row.state === "failed" || row.failure ? "bad" : "plain";
}

export function StatusBadge({ row }: { row: ExchangeRow }) {
  const text = row.state === "running" ? "running" : row.state === "disconnected" ? "left" : String(row.status || "failed");
  return (
    <Badge tone={statusTone(row)} title={row.state === "disconnected" ? "The client disconnected" : row.message || failureOf(row)}>
      {row.state === "running" && <span class="pulse" aria-hidden="true" />}
      {text}
    </Badge>
  );
}

/** `requested → actual`, or one name if they are the same. */
export function ModelName({ row }: { row: ExchangeRow }) {
  const { requested_model: requested, model } = row;
  if (!model) return <span title={requested}>{requested || "–"}</span>;
  if (requested === model || requested === `${row.provider}/${model}`) return <span title={requested}>{model}</span>;
  return (
    <span title={`${requested} → ${model}`}>
      {requested && (
        <>
          <span class="muted">{requested}</span> <Arrow />{" "}
        </>
      )}
      {model}
    </span>
  );
}

export function Arrow() {
  return (
    <span class="arrow">
      <span aria-hidden="true">→</span>
      <span class="hidden">to</span>
    </span>
  );
}

export function ToolName({ tool }: { tool: CalledTool }) {
  if (tool.client === tool.provider || !tool.provider) return <span class="tool-name">{tool.client}</span>;
  return (
    <span class="tool-name" title={`${tool.client} → ${tool.provider}`}>
      {tool.client} <Arrow /> <span class="tone-text-accent">{tool.provider}</span>
    </span>
  );
}

export function durationText(row: ExchangeRow): string {
  return row.duration_ms === null ? "" : formatMs(row.duration_ms);
}
