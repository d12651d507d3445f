import { EmptyState } from "../parts/small";

export function Try() {
  return <EmptyState title="Try is not built yet" />;
}
