import { useId } from "preact/hooks";
import type { ModelList } from "../api";

interface Props {
  label: string;
  value: string;
  placeholder?: string;
  models: ModelList | null;
  onChange: (name: string) => void;
}

/** A model of the gateway's list, or any other name: what it does not list it may still serve. */
export function ModelField({ label, value, placeholder, models, onChange }: Props) {
  const ids = { model: useId(), models: useId() };
  return (
    <div class="field">
      <label for={ids.model}>{label}</label>
      <input
        id={ids.model}
        list={ids.models}
        value={value}
        placeholder={placeholder}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
      <datalist id={ids.models}>
        {models?.models.map((one) => (
          <option key={one.name} value={one.name}>
            {one.provider}
          </option>
        ))}
      </datalist>
    </div>
  );
}
