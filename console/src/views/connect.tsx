import { EmptyState } from "../parts/small";

export function Connect() {
  return <EmptyState title="Connect is not built yet" />;
}
