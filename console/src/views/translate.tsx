import { EmptyState } from "../parts/small";

export function Translate() {
  return <EmptyState title="Translate is not built yet" />;
}
