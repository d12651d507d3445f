import { EmptyState } from "../parts/small";

export function Providers() {
  return <EmptyState title="Providers is not built yet" />;
}
