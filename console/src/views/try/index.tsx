import { useEffect } from "preact/hooks";
import type { ModelList } from "../../api";
import { useResource } from "../../parts/resource";
import { Chat } from "./chat";
import { Code } from "./code";
import { Setup } from "./setup";
import { model } from "./state";

/** A small client: chat with a model in any protocol, answer its tool calls by hand, and take the code away. */
export function Try() {
  const models = useResource<ModelList>("models");
  useEffect(() => {
    if (!model.value) model.value = models.data?.models[0]?.name ?? "";
  }, [models.data]);
  return (
    <div class="try">
      <h1 class="hidden">Try</h1>
      <Setup models={models} />
      <Chat />
      <Code />
    </div>
  );
}
