import { problem } from "../gateway";
import { EmptyState } from "../parts/small";

/** Shown instead of the views while the gateway answers 401. After a login: `connectNow()`. */
export function Login() {
  return (
    <EmptyState title="This console needs a key">
      <p class="muted">{problem}</p>
    </EmptyState>
  );
}
