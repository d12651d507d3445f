import { useId, useMemo, useState } from "preact/hooks";
import type { ModelList, ProtocolInfo } from "../api";
import { AGENTS, type Agent } from "../core/agents";
import { KEY_VARIABLE, writeCode } from "../core/code";
import { SDK_SNIPPETS, writeEnvironment } from "../core/snippets";
import { gateway } from "../gateway";
import { ModelField } from "../parts/model_field";
import { useResource } from "../parts/resource";
import { Choice, CodeBlock, Tabs } from "../parts/small";

type Shape = "python" | "typescript" | "environment" | "curl";
const SHAPES: readonly { value: Shape; title: string }[] = [
  { value: "python", title: "Python" },
  { value: "typescript", title: "TypeScript" },
  { value: "environment", title: "Environment" },
  { value: "curl", title: "curl" },
];

export function Connect() {
  const models = useResource<ModelList>("models");
  const [typed, setTyped] = useState("");
  const [sdk, setSdk] = useState(SDK_SNIPPETS[0]!.protocol);
  const [shape, setShape] = useState<Shape>("python");
  const model = typed || models.data?.models[0]?.name || "loopback";
  const needsKey = gateway.value?.needs_client_key ?? false;
  const origin = location.origin;
  const protocol = gateway.value?.protocols.find((one) => one.name === sdk);
  const isUsualAddress = location.port === "8642";
  return (
    <div class="page">
      <h1>Connect</h1>
      <div class="connect-facts">
        <div class="field">
          <span>Address</span>
          <CodeBlock text={origin} label="Address of the gateway" />
        </div>
        <ModelField label="Model" value={typed} placeholder={model} models={models.data} onChange={setTyped} />
        <p class="muted connect-key">
          {needsKey ? (
            <>
              This gateway needs a client key: put it into <code>{KEY_VARIABLE}</code>. <code>toolwire keys new NAME</code> makes one.
            </>
          ) : (
            <>
              This gateway needs no client key. SDKs insist on one, so it is <code>any</code>.
            </>
          )}
        </p>
      </div>
      <section class="connect-part" aria-label="SDKs">
        <h2>SDKs</h2>
        <Tabs label="SDKs" tabs={SDK_SNIPPETS.map((one) => ({ name: one.protocol, title: one.title }))} chosen={sdk} onChoose={setSdk} />
        <div id="panel" role="tabpanel" aria-labelledby={`tab-${sdk}`} class="connect-snippet">
          <Choice label="Language" options={SHAPES} value={shape} onChange={setShape} />
          {protocol && <Snippet protocol={protocol} shape={shape} model={model} needsKey={needsKey} />}
        </div>
      </section>
      <section class="connect-part" aria-label="Agents">
        <h2>Agents</h2>
        <p class="muted">
          <code>toolwire run</code> starts an agent{isUsualAddress ? " on this gateway" : ""}, in a folder of its own: your settings of the agent stay as they are.{" "}
          {isUsualAddress ? "" : "It looks for a gateway at the address in toolwire.toml (by default 127.0.0.1:8642), and starts a private one if none is there."}
        </p>
        <ul class="agents">
          {AGENTS.map((agent) => (
            <AgentItem key={agent.name} agent={agent} model={model} needsKey={needsKey} />
          ))}
        </ul>
      </section>
    </div>
  );
}

interface SnippetProps {
  protocol: ProtocolInfo;
  shape: Shape;
  model: string;
  needsKey: boolean;
}

function Snippet({ protocol, shape, model, needsKey }: SnippetProps) {
  const snippet = SDK_SNIPPETS.find((one) => one.protocol === protocol.name);
  const text = useMemo(() => {
    if (!snippet) return "";
    if (shape === "environment") return writeEnvironment(snippet, location.origin, needsKey);
    return writeCode(shape, { protocol, body: snippet.body(model), model, isStream: false, origin: location.origin, needsKey });
  }, [protocol, shape, model, needsKey]);
  return text ? <CodeBlock text={text} label={`${snippet?.title}: ${shape}`} /> : <p class="muted">It has no SDK that reads variables of the environment.</p>;
}

function AgentItem({ agent, model, needsKey }: { agent: Agent; model: string; needsKey: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const byHand = agent.byHand?.({ origin: location.origin, key: needsKey ? `"$${KEY_VARIABLE}"` : "any", model });
  return (
    <li class="agent">
      <div class="agent-about">
        <h3>{agent.title}</h3>
        <p class="muted">{agent.about}</p>
        <p class="muted agent-protocols">{agent.protocols.join(", ")}</p>
      </div>
      <div class="agent-command">
        <CodeBlock text={`toolwire run ${agent.name} --model ${model}`} label={`Start ${agent.title}`} />
        {byHand ? (
          <button type="button" class="button quiet" aria-expanded={isOpen} aria-controls={id} onClick={() => setOpen(!isOpen)}>
            Without toolwire run
          </button>
        ) : (
          <p class="muted by-hand-note">
            By hand it needs a file: <code>toolwire run {agent.name} --print</code> shows it.
          </p>
        )}
        <div id={id}>{isOpen && byHand && <CodeBlock text={byHand} label={`${agent.title} without toolwire run`} />}</div>
      </div>
    </li>
  );
}
