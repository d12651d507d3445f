import { GoogleGenAI } from "@google/genai";
import { CITY, KEY, TOOLS, conversations } from "./talk.mjs";

class Generate {
  constructor(job) {
    this.job = job;
    const functionDeclarations = Object.entries(TOOLS).map(([name, description]) => ({
      name,
      description,
      parametersJsonSchema: CITY,
    }));
    const sdk = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: job.base } });
    this.chat = sdk.chats.create({ model: job.model, config: { tools: [{ functionDeclarations }] } });
    this.message = [{ text: job.prompt }];
  }

  async turn() {
    const { message } = this;
    const chunks = [];
    if (this.job.stream) {
      for await (const chunk of await this.chat.sendMessageStream({ message })) chunks.push(chunk);
    } else {
      chunks.push(await this.chat.sendMessage({ message }));
    }
    const parts = chunks.flatMap((chunk) => chunk.candidates?.[0]?.content?.parts ?? []);
    const calls = parts
      .filter((part) => part.functionCall)
      .map(({ functionCall: call }) => ({ id: call.id, name: call.name, arguments: call.args }));
    const last = chunks.at(-1);
    return {
      text: parts.map((part) => (part.thought ? "" : (part.text ?? ""))).join(""),
      calls,
      usage: [last.usageMetadata.promptTokenCount, last.usageMetadata.candidatesTokenCount],
      end: last.candidates[0].finishReason,
    };
  }

  answer(given) {
    this.message = given.map(([call, result]) => ({
      functionResponse: { id: call.id, name: call.name, response: { output: result.text } },
    }));
  }
}

await conversations({ gemini: Generate });
