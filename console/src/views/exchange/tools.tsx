import { useState } from "preact/hooks";
import type { ToolRow } from "../../api";
import { Arrow } from "../../parts/exchange_parts";
import { DiffView } from "../../parts/diff_view";
import { Badge, Choice, EmptyState, type Tone } from "../../parts/small";
import type { TabProps } from "./index";

type ToolState = ToolRow["state"];

const TONES: Record<ToolState, Tone> = { kept: "neutral", renamed: "accent", changed: "warn", dropped: "bad", added: "good" };
const ORDER: readonly ToolState[] = ["dropped", "added", "renamed", "changed", "kept"];

export function Tools({ detail: { tools } }: TabProps) {
  const [shown, setShown] = useState<"all" | ToolState>("all");
  if (!tools.length) return <EmptyState title="The request declares no tools" />;
  const counts = ORDER.map((state) => ({ state, count: tools.filter((tool) => tool.state === state).length })).filter(({ count }) => count > 0);
  const rows = ORDER.flatMap((state) => tools.filter((tool) => tool.state === state && (shown === "all" || shown === state)));
  return (
    <>
      <Choice
        label="Show tools"
        options={[{ value: "all", title: `All ${tools.length}` }, ...counts.map(({ state, count }) => ({ value: state, title: `${count} ${state}` }))]}
        value={shown}
        onChange={setShown}
      />
      <ul class="tool-list">
        {rows.map((tool) => (
          <Tool key={`${tool.client_name}\n${tool.provider_name}`} tool={tool} />
        ))}
      </ul>
    </>
  );
}

function Tool({ tool }: { tool: ToolRow }) {
  const [isOpen, setOpen] = useState(false);
  const { client_name: client, provider_name: provider } = tool;
  return (
    <li class={`tool state-${tool.state}`}>
      <button type="button" class="tool-line" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span class={`fold-mark${isOpen ? " open" : ""}`} aria-hidden="true">
          ›
        </span>
        <Badge tone={TONES[tool.state]}>{tool.state}</Badge>
        <span class="mono tool-names">
          {client && <span class={provider ? "" : "struck"}>{client}</span>}
          {client && provider && client !== provider && (
            <>
              {" "}
              <Arrow />{" "}
            </>
          )}
          {provider && provider !== client && <span>{provider}</span>}
        </span>
        <span class="muted">{tool.kind}</span>
        <span class="tool-reasons">{tool.reasons.join("; ")}</span>
      </button>
      {isOpen && (
        <DiffView
          title="Declaration"
          left={tool.client_declaration}
          right={tool.provider_declaration}
          leftTitle="client"
          rightTitle="provider"
          isCompact
        />
      )}
    </li>
  );
}
