// Texts to start from in the view Translate.

export interface Example {
  title: string;
  text: string;
}

const pretty = (value: unknown): string => JSON.stringify(value, null, 2);

const REQUEST = {
  model: "claude-opus-5-5",
  max_tokens: 1024,
  system: [{ type: "text", text: "You are a weather service.", cache_control: { type: "ephemeral" } }],
  messages: [{ role: "user", content: "How warm is it in Paris, and what is new there?" }],
  tools: [
    {
      name: "get_weather",
      description: "The weather at a place, now.",
      input_schema: {
        type: "object",
        properties: { location: { type: "string", description: "A city, such as Paris" }, unit: { type: "string", enum: ["C", "F"], description: "The unit" } },
        required: ["location"],
      },
    },
    { type: "web_search_20250305", name: "web_search", max_uses: 3 },
  ],
  tool_choice: { type: "auto", disable_parallel_tool_use: true },
  top_k: 40,
};

const ANSWER = {
  id: "chatcmpl-A1",
  object: "chat.completion",
  created: 1767225600,
  model: "gpt-5.5",
  choices: [
    {
      index: 0,
      message: {
        role: "assistant",
        content: "I will look at both.",
        tool_calls: [
          { id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"location": "Paris"}' } },
          { id: "call_2", type: "function", function: { name: "get_weather", arguments: '{"location": "London"}' } },
        ],
      },
      finish_reason: "tool_calls",
    },
  ],
  usage: { prompt_tokens: 182, completion_tokens: 41, total_tokens: 223 },
};

const EVENTS: readonly (readonly [string, unknown])[] = [
  ["message_start", { type: "message_start", message: { id: "msg_01", type: "message", role: "assistant", model: "claude-opus-5-5", content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 380, output_tokens: 1 } } }],
  ["content_block_start", { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }],
  ["content_block_delta", { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Let me look." } }],
  ["content_block_stop", { type: "content_block_stop", index: 0 }],
  ["content_block_start", { type: "content_block_start", index: 1, content_block: { type: "tool_use", id: "toolu_01", name: "get_weather", input: {} } }],
  ["content_block_delta", { type: "content_block_delta", index: 1, delta: { type: "input_json_delta", partial_json: '{"location":' } }],
  ["content_block_delta", { type: "content_block_delta", index: 1, delta: { type: "input_json_delta", partial_json: ' "Paris"}' } }],
  ["content_block_stop", { type: "content_block_stop", index: 1 }],
  ["message_delta", { type: "message_delta", delta: { stop_reason: "tool_use", stop_sequence: null }, usage: { output_tokens: 54 } }],
  ["message_stop", { type: "message_stop" }],
];

export const EXAMPLES: readonly Example[] = [
  { title: "A request with tools", text: pretty(REQUEST) },
  { title: "An answer with two calls", text: pretty(ANSWER) },
  { title: "A stream", text: EVENTS.map(([event, data]) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`).join("") },
  { title: "An error", text: pretty({ error: { message: "Rate limit reached for gpt-5.5", type: "requests", param: null, code: "rate_limit_exceeded" } }) },
];
