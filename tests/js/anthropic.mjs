import Anthropic from "@anthropic-ai/sdk";
import { CITY, KEY, TOOLS, conversations } from "./talk.mjs";

const made = new Map();
function sdk(base) {
  if (!made.has(base)) made.set(base, new Anthropic({ apiKey: KEY, baseURL: base, maxRetries: 0 }));
  return made.get(base);
}

class Messages {
  constructor(job) {
    this.job = job;
    this.messages = [{ role: "user", content: job.prompt }];
  }

  async turn() {
    const tools = Object.entries(TOOLS).map(([name, description]) => ({ name, description, input_schema: CITY }));
    const asked = { model: this.job.model, messages: this.messages, tools, max_tokens: 4000 };
    const { messages } = sdk(this.job.base);
    const whole = this.job.stream ? await messages.stream(asked).finalMessage() : await messages.create(asked);
    this.messages.push({ role: "assistant", content: whole.content });
    const calls = whole.content
      .filter((block) => block.type === "tool_use")
      .map((block) => ({ id: block.id, name: block.name, arguments: block.input }));
    const said = whole.content.filter((block) => block.type === "text");
    return {
      text: said.map((block) => block.text).join(""),
      calls,
      usage: [whole.usage.input_tokens, whole.usage.output_tokens],
      end: whole.stop_reason,
    };
  }

  answer(given) {
    const content = given.map(([call, result]) => ({
      type: "tool_result",
      tool_use_id: call.id,
      content: result.text,
    }));
    this.messages.push({ role: "user", content });
  }
}

await conversations({ anthropic: Messages });
