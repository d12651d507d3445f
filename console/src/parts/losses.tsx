import type { LossRow } from "../api";

interface Props {
  label: string;
  losses: readonly LossRow[];
  onShow?: (loss: LossRow) => void;
}

/** Losses as a list: what happened, why and where. With `onShow` each is a button that shows its place. */
export function LossList({ label, losses, onShow }: Props) {
  return (
    <ul class="losses" aria-label={label}>
      {losses.map((loss, index) => (
        <li key={index}>
          {onShow ? (
            <button type="button" class="loss-row loss-button" title="Show this place in the input" onClick={() => onShow(loss)}>
              <LossText loss={loss} />
            </button>
          ) : (
            <div class="loss-row">
              <LossText loss={loss} />
            </div>
          )}
        </li>
      ))}
    </ul>
  );
}

function LossText({ loss }: { loss: LossRow }) {
  return (
    <>
      <span class={`loss-mark severity-${loss.severity}`}>{loss.severity}</span>
      <span>
        <span class="loss-name">
          <strong>{loss.code}</strong> {loss.what}
        </span>
        <span class="loss-why muted">{loss.why}</span>
      </span>
      <code class="loss-path">{loss.path || "/"}</code>
    </>
  );
}
