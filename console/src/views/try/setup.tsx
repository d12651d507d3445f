import { useId } from "preact/hooks";
import type { ModelList } from "../../api";
import { EXAMPLE_TOOL, type ToolDraft } from "../../core/conversation";
import { formatCountOf } from "../../core/format";
import { parseJson } from "../../core/json_text";
import { gateway } from "../../gateway";
import { ModelField } from "../../parts/model_field";
import type { Resource } from "../../parts/resource";
import { ErrorNote, useMedia } from "../../parts/small";
import { clientKey } from "../../client_key";
import { isStream, model, protocol, protocolName, system, tools } from "./state";

export function Setup({ models }: { models: Resource<ModelList> }) {
  const isWide = useMedia("(min-width: 900px)");
  const ids = { protocol: useId(), system: useId(), key: useId() };
  return (
    <details class="try-setup" open={isWide}>
      <summary>
        <span>Settings</span>
        <span class="muted setup-summary">
          {protocol.value?.name}, {model.value || "no model"}, {formatCountOf(tools.value.length, "tool")}
        </span>
      </summary>
      <div class="setup-fields">
        <label class="field" for={ids.protocol}>
          Protocol
          <select id={ids.protocol} value={protocol.value?.name} onChange={(event) => (protocolName.value = event.currentTarget.value)}>
            {gateway.value?.protocols.map((one) => (
              <option key={one.name} value={one.name}>
                {one.name}
              </option>
            ))}
          </select>
        </label>
        <ModelField label="Model" value={model.value} models={models.data} onChange={(name) => (model.value = name)} />
        {models.error && <ErrorNote error={models.error} onRetry={models.reload} />}
        {models.data && models.data.problems.length > 0 && (
          <details class="setup-problems">
            <summary>{formatCountOf(models.data.problems.length, "provider")} could not be asked for models</summary>
            {models.data.problems.map((problem) => (
              <p key={problem} class="note tone-warn">
                {problem}
              </p>
            ))}
          </details>
        )}
        {gateway.value?.needs_client_key && (
          <label class="field" for={ids.key}>
            Client key
            <input id={ids.key} type="password" autocomplete="off" value={clientKey.value} onInput={(event) => (clientKey.value = event.currentTarget.value)} />
            <span class="field-note">Forgotten when the page is closed.</span>
          </label>
        )}
        <label class="check">
          <input type="checkbox" checked={isStream.value} onChange={(event) => (isStream.value = event.currentTarget.checked)} />
          Stream the answer
        </label>
        <label class="field" for={ids.system}>
          System prompt
          <textarea id={ids.system} rows={3} value={system.value} placeholder="None" onInput={(event) => (system.value = event.currentTarget.value)} />
        </label>
        <Tools />
      </div>
    </details>
  );
}

function Tools() {
  const change = (index: number, part: Partial<ToolDraft>): void => void (tools.value = tools.value.map((tool, at) => (at === index ? { ...tool, ...part } : tool)));
  const remove = (index: number): void => void (tools.value = tools.value.filter((_, at) => at !== index));
  const add = (tool: ToolDraft): void => void (tools.value = [...tools.value, tool]);
  const hasExample = tools.value.some((tool) => tool.name === EXAMPLE_TOOL.name);
  return (
    <fieldset class="tool-editor">
      <legend>Tools</legend>
      {tools.value.map((tool, index) => (
        <Tool key={index} tool={tool} number={index + 1} onChange={(part) => change(index, part)} onRemove={() => remove(index)} />
      ))}
      <div class="actions">
        <button type="button" class="button" onClick={() => add({ name: "", description: "", parameters: '{"type": "object", "properties": {}}' })}>
          Add a tool
        </button>
        {!hasExample && (
          <button type="button" class="button" onClick={() => add(EXAMPLE_TOOL)}>
            Add get_weather
          </button>
        )}
      </div>
    </fieldset>
  );
}

interface ToolProps {
  tool: ToolDraft;
  number: number;
  onChange: (part: Partial<ToolDraft>) => void;
  onRemove: () => void;
}

function Tool({ tool, number, onChange, onRemove }: ToolProps) {
  const ids = { name: useId(), description: useId(), parameters: useId(), problem: useId() };
  const name = tool.name || `tool ${number}`;
  const brokenAt = tool.parameters.trim() ? parseJson(tool.parameters).brokenAt : -1;
  return (
    <details class="tool-draft" open={!tool.name}>
      <summary>
        <code>{name}</code>
      </summary>
      <div class="tool-fields">
      <label class="field" for={ids.name}>
        Name
        <input id={ids.name} value={tool.name} autocomplete="off" spellcheck={false} onInput={(event) => onChange({ name: event.currentTarget.value })} />
      </label>
      <label class="field" for={ids.description}>
        Description
        <input id={ids.description} value={tool.description} autocomplete="off" placeholder="What it does, and when to call it" onInput={(event) => onChange({ description: event.currentTarget.value })} />
      </label>
      <label class="field" for={ids.parameters}>
        Parameters (JSON Schema)
        <textarea
          id={ids.parameters}
          class="mono"
          rows={8}
          wrap="off"
          spellcheck={false}
          aria-describedby={ids.problem}
          aria-invalid={brokenAt >= 0 ? true : undefined}
          value={tool.parameters}
          onInput={(event) => onChange({ parameters: event.currentTarget.value })}
        />
        <span id={ids.problem} class="field-note tone-text-bad">
          {brokenAt >= 0 ? `Not JSON from character ${brokenAt + 1} on.` : ""}
        </span>
      </label>
      <button type="button" class="button" aria-label={`Remove ${name}`} onClick={onRemove}>
        Remove
      </button>
      </div>
    </details>
  );
}
