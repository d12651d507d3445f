// What every script here does: take jobs from stdin, hold the conversation of each, and print what came of them.
// A job: {id, base, client, model, stream, prompt, results}; results are by city, {text, failed}.

export const KEY = "key-of-the-client";
export const CITY = {
  type: "object",
  properties: { city: { type: "string", description: "A city" } },
  required: ["city"],
};
export const TOOLS = { get_weather: "The weather in a city, now.", get_time: "The time of day in a city." };

// An error as Python compares it: class, status, message, and the wait that was told.
export function told(error) {
  const headers = error.headers ?? error.responseHeaders ?? {};
  const wait = typeof headers.get === "function" ? headers.get("retry-after") : headers["retry-after"];
  return {
    name: error.constructor.name,
    status: error.status ?? error.statusCode ?? null,
    message: String(error.message),
    wait: wait == null ? null : Number(wait),
  };
}

// A conversation has turn(), which gives {text, calls: [{id, name, arguments}], usage}, and answer(given).
async function converse(conversation, results) {
  const turns = [await conversation.turn()];
  while (turns.at(-1).calls.length && Object.keys(results).length) {
    conversation.answer(turns.at(-1).calls.map((call) => [call, results[call.arguments.city]]));
    turns.push(await conversation.turn());
  }
  return turns;
}

export async function main(run) {
  let input = "";
  for await (const piece of process.stdin) input += piece;
  const outcomes = await Promise.all(
    JSON.parse(input).map(async (job) => {
      try {
        return { id: job.id, turns: await run(job) };
      } catch (error) {
        return { id: job.id, error: told(error) };
      }
    }),
  );
  process.stdout.write(JSON.stringify(outcomes));
}

export const conversations = (clients) => main((job) => converse(new clients[job.client](job), job.results));
