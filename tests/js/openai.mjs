import OpenAI from "openai";
import { CITY, KEY, TOOLS, conversations } from "./talk.mjs";

const made = new Map();
function sdk(base) {
  if (!made.has(base)) made.set(base, new OpenAI({ apiKey: KEY, baseURL: `${base}/v1`, maxRetries: 0 }));
  return made.get(base);
}

class Chat {
  constructor(job) {
    this.job = job;
    this.messages = [{ role: "user", content: job.prompt }];
  }

  async turn() {
    const tools = Object.entries(TOOLS).map(([name, description]) => ({
      type: "function",
      function: { name, description, parameters: CITY },
    }));
    const asked = { model: this.job.model, messages: this.messages, tools };
    const { completions } = sdk(this.job.base).chat;
    const whole = this.job.stream
      ? await completions.stream({ ...asked, stream_options: { include_usage: true } }).finalChatCompletion()
      : await completions.create(asked);
    const { message } = whole.choices[0];
    this.messages.push(message);
    const calls = (message.tool_calls ?? []).map((call) => ({
      id: call.id,
      name: call.function.name,
      arguments: JSON.parse(call.function.arguments),
    }));
    return {
      text: message.content ?? "",
      calls,
      usage: [whole.usage.prompt_tokens, whole.usage.completion_tokens],
      end: whole.choices[0].finish_reason,
    };
  }

  answer(given) {
    for (const [call, result] of given) {
      this.messages.push({ role: "tool", tool_call_id: call.id, content: result.text });
    }
  }
}

class Responses {
  constructor(job) {
    this.job = job;
    this.input = [{ role: "user", content: job.prompt }];
  }

  async turn() {
    const tools = Object.entries(TOOLS).map(([name, description]) => ({
      type: "function",
      name,
      description,
      parameters: CITY,
      strict: false,
    }));
    const asked = { model: this.job.model, input: this.input, tools, store: false };
    const { responses } = sdk(this.job.base);
    const whole = this.job.stream ? await responses.stream(asked).finalResponse() : await responses.create(asked);
    if (whole.status !== "completed") throw new Error(`${whole.status}: ${whole.error?.message}`);
    this.input.push(...whole.output);
    const calls = whole.output
      .filter((item) => item.type === "function_call")
      .map((item) => ({ id: item.call_id, name: item.name, arguments: JSON.parse(item.arguments) }));
    const said = whole.output.filter((item) => item.type === "message").flatMap((item) => item.content);
    return {
      text: said.map((part) => part.text).join(""),
      calls,
      usage: [whole.usage.input_tokens, whole.usage.output_tokens],
      end: whole.status,
    };
  }

  answer(given) {
    for (const [call, result] of given) {
      this.input.push({ type: "function_call_output", call_id: call.id, output: result.text });
    }
  }
}

await conversations({ "openai-chat": Chat, "openai-responses": Responses });
