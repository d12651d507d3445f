// AWS's own SDK, with Converse. It speaks HTTP/2 unless it is given the other handler.
import { BedrockRuntimeClient, ConverseCommand, ConverseStreamCommand } from "@aws-sdk/client-bedrock-runtime";
import { NodeHttpHandler } from "@smithy/node-http-handler";
import { CITY, KEY, TOOLS, conversations } from "./talk.mjs";

const made = new Map();
function sdk(base) {
  const credentials = { accessKeyId: KEY, secretAccessKey: KEY };
  const given = { endpoint: base, region: "eu-west-1", credentials, maxAttempts: 1 };
  if (!made.has(base)) made.set(base, new BedrockRuntimeClient({ ...given, requestHandler: new NodeHttpHandler() }));
  return made.get(base);
}

// The message of a stream, as that of a whole answer.
async function collect({ stream }) {
  const blocks = [];
  const whole = {};
  for await (const event of stream) {
    const { contentBlockStart: start, contentBlockDelta: delta } = event;
    if (start) blocks[start.contentBlockIndex] = { toolUse: { ...start.start.toolUse, input: "" } };
    if (delta?.delta.text !== undefined) {
      blocks[delta.contentBlockIndex] ??= { text: "" };
      blocks[delta.contentBlockIndex].text += delta.delta.text;
    }
    if (delta?.delta.reasoningContent) {
      blocks[delta.contentBlockIndex] ??= { reasoningContent: { reasoningText: { text: "" } } };
      const thought = blocks[delta.contentBlockIndex].reasoningContent.reasoningText;
      thought.text += delta.delta.reasoningContent.text ?? "";
      thought.signature ??= delta.delta.reasoningContent.signature;
    }
    if (delta?.delta.toolUse) blocks[delta.contentBlockIndex].toolUse.input += delta.delta.toolUse.input;
    Object.assign(whole, event.messageStop, event.metadata);
  }
  if (whole.stopReason === undefined) throw new Error("the stream ended without messageStop");
  for (const { toolUse } of blocks) if (toolUse) toolUse.input = JSON.parse(toolUse.input || "{}");
  return { ...whole, output: { message: { role: "assistant", content: blocks } } };
}

// The SDK keeps the status and the headers of an error elsewhere than others do.
function restate(error) {
  error.status = error.$metadata?.httpStatusCode;
  error.headers = error.$response?.headers;
  return error;
}

class Converse {
  constructor(job) {
    this.job = job;
    this.messages = [{ role: "user", content: [{ text: job.prompt }] }];
  }

  async turn() {
    const tools = Object.entries(TOOLS).map(([name, description]) => ({
      toolSpec: { name, description, inputSchema: { json: CITY } },
    }));
    const asked = { modelId: this.job.model, messages: this.messages, toolConfig: { tools } };
    const Command = this.job.stream ? ConverseStreamCommand : ConverseCommand;
    const answer = await sdk(this.job.base)
      .send(new Command(asked))
      .then((got) => (this.job.stream ? collect(got) : got))
      .catch((error) => {
        throw restate(error);
      });
    const { message } = answer.output;
    this.messages.push(message);
    const calls = message.content.filter((block) => block.toolUse).map(({ toolUse }) => toolUse);
    return {
      text: message.content.map((block) => block.text ?? "").join(""),
      calls: calls.map(({ toolUseId, name, input }) => ({ id: toolUseId, name, arguments: input })),
      usage: [answer.usage.inputTokens, answer.usage.outputTokens],
      end: answer.stopReason,
    };
  }

  answer(given) {
    const content = given.map(([call, result]) => ({
      toolResult: { toolUseId: call.id, content: [{ text: result.text }] },
    }));
    this.messages.push({ role: "user", content });
  }
}

await conversations({ bedrock: Converse });
