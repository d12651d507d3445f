// The Vercel AI SDK: it runs the tools itself, step after step.
import { createAmazonBedrock } from "@ai-sdk/amazon-bedrock";
import { createBedrockAnthropic } from "@ai-sdk/amazon-bedrock/anthropic";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createAzure } from "@ai-sdk/azure";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createVertex } from "@ai-sdk/google-vertex";
import { createVertexAnthropic } from "@ai-sdk/google-vertex/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { CITY, KEY, TOOLS, main } from "./talk.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false; // they would stand between the results

const MODELS = {
  "openai-chat": ({ base, model }) => createOpenAI({ apiKey: KEY, baseURL: `${base}/v1` }).chat(model),
  "openai-responses": ({ base, model }) => createOpenAI({ apiKey: KEY, baseURL: `${base}/v1` }).responses(model),
  "openai-responses-kept": ({ base, model }) => createOpenAI({ apiKey: KEY, baseURL: `${base}/v1` }).responses(model),
  "openai-compatible": ({ base, model }) =>
    createOpenAICompatible({ name: "toolwire", apiKey: KEY, baseURL: `${base}/v1`, includeUsage: true })(model),
  anthropic: ({ base, model }) => createAnthropic({ apiKey: KEY, baseURL: `${base}/v1` })(model),
  gemini: ({ base, model }) => createGoogleGenerativeAI({ apiKey: KEY, baseURL: `${base}/v1beta` })(model),
  azure: ({ base, model }) => createAzure({ apiKey: KEY, baseURL: `${base}/openai` }).responses(model),
  "azure-deployments": ({ base, model }) =>
    createAzure({ apiKey: KEY, baseURL: `${base}/openai`, useDeploymentBasedUrls: true }).chat(model),
  bedrock: ({ base, model }) =>
    createAmazonBedrock({ region: "eu-west-1", accessKeyId: KEY, secretAccessKey: KEY, baseURL: base })(model),
  "bedrock-anthropic": ({ base, model }) =>
    createBedrockAnthropic({ region: "eu-west-1", accessKeyId: KEY, secretAccessKey: KEY, baseURL: base })(model),
  "vertex-anthropic": ({ base, model }) =>
    createVertexAnthropic({
      project: "any",
      location: "global",
      baseURL: `${base}/v1/projects/any/locations/global/publishers/anthropic/models`,
      googleAuthOptions: { authClient: { getAccessToken: async () => ({ token: KEY }) } },
    })(model),
  vertex: ({ base, model }) => createVertex({ apiKey: KEY, baseURL: `${base}/v1/publishers/google` })(model),
};

function toolsOf(job) {
  const execute = async ({ city }) => job.results[city].text;
  const made = Object.entries(TOOLS).map(([name, description]) => [
    name,
    tool({ description, inputSchema: jsonSchema(CITY), execute }),
  ]);
  return Object.fromEntries(made);
}

function turn(step) {
  return {
    text: step.text,
    calls: step.toolCalls.map((call) => ({ id: call.toolCallId, name: call.toolName, arguments: call.input })),
    usage: [step.usage.inputTokens, step.usage.outputTokens],
    end: step.finishReason,
  };
}

await main(async (job) => {
  const asked = {
    model: MODELS[job.client](job),
    prompt: job.prompt,
    tools: toolsOf(job),
    stopWhen: stepCountIs(5),
    maxRetries: 0,
    // What is not kept has to be sent whole; the default sends references to it.
    providerOptions: { openai: { store: job.client === "openai-responses-kept" } },
  };
  if (!job.stream) return (await generateText(asked)).steps.map(turn);
  const result = streamText({ ...asked, onError: () => {} });
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
  }
  return (await result.steps).map(turn);
});
