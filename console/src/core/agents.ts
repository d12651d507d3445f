// The agents that `toolwire run` starts. A test compares this list with src/toolwire/agents/*.toml.

export interface Agent {
  name: string;
  title: string;
  about: string;
  /** The first is the one that it uses by itself. */
  protocols: readonly string[];
  /** Lines for a shell that point it at a gateway without `toolwire run`; absent where it needs a file. */
  byHand?: (place: Place) => string;
}

export interface Place {
  origin: string;
  /** As a shell reads it. */
  key: string;
  model: string;
}

const [CHAT, RESPONSES, ANTHROPIC, GEMINI] = ["openai-chat", "openai-responses", "anthropic", "gemini"] as const;

function exports(variables: Readonly<Record<string, string>>, command: string): string {
  return [...Object.entries(variables).map(([name, value]) => `export ${name}=${value}`), command].join("\n");
}

export const AGENTS: readonly Agent[] = [
  {
    name: "aider",
    title: "aider",
    about: "Edits files through the text of answers, and calls no tools.",
    protocols: [CHAT, ANTHROPIC],
    byHand: ({ origin, key, model }) => exports({ OPENAI_API_BASE: `${origin}/v1`, OPENAI_API_KEY: key }, `aider --model openai/${model}`),
  },
  {
    name: "claude",
    title: "Claude Code",
    about: "Asks every model for 128,000 tokens; the gateway keeps to a lower limit of the provider by itself.",
    protocols: [ANTHROPIC],
    byHand: ({ origin, key, model }) => exports({ ANTHROPIC_BASE_URL: origin, ANTHROPIC_AUTH_TOKEN: key, ANTHROPIC_MODEL: model }, "claude"),
  },
  { name: "cline", title: "Cline", about: "Runs without its background hub, which would keep the settings of an earlier run.", protocols: [CHAT, RESPONSES, ANTHROPIC, GEMINI] },
  {
    name: "codex",
    title: "Codex",
    about: "Has apply_patch only for names of OpenAI's models: add --as gpt-5.5 for others.",
    protocols: [RESPONSES],
    byHand: ({ origin, key, model }) =>
      exports(
        { TOOLWIRE_CLIENT_KEY: key },
        `codex -c model='"${model}"' -c model_provider='"toolwire"' -c model_providers.toolwire.name='"Toolwire"' \\\n  -c model_providers.toolwire.base_url='"${origin}/v1"' -c model_providers.toolwire.wire_api='"responses"' \\\n  -c model_providers.toolwire.env_key='"TOOLWIRE_CLIENT_KEY"'`,
      ),
  },
  { name: "continue", title: "Continue CLI", about: "Asks for Responses through its AI SDK adapter with --protocol openai-responses.", protocols: [CHAT, RESPONSES, ANTHROPIC] },
  {
    name: "copilot",
    title: "Copilot CLI",
    about: "Runs in its offline mode: no GitHub account is needed, and GitHub's own tools are off.",
    protocols: [CHAT, RESPONSES, ANTHROPIC],
    byHand: ({ origin, key, model }) =>
      exports({ COPILOT_PROVIDER_TYPE: "openai", COPILOT_PROVIDER_BASE_URL: `${origin}/v1`, COPILOT_PROVIDER_API_KEY: key, COPILOT_MODEL: model, COPILOT_OFFLINE: "true" }, "copilot"),
  },
  {
    name: "gemini",
    title: "Gemini CLI",
    about: "Also asks for small models of fixed names; with toolwire run they go to the same model.",
    protocols: [GEMINI],
    byHand: ({ origin, key, model }) => exports({ GOOGLE_GEMINI_BASE_URL: origin, GEMINI_API_KEY: key, GEMINI_MODEL: model }, "gemini"),
  },
  {
    name: "goose",
    title: "Goose",
    about: "Your keyring is not touched: the key comes from the environment.",
    protocols: [CHAT, ANTHROPIC],
    byHand: ({ origin, key, model }) =>
      exports({ GOOSE_PROVIDER: "openai", GOOSE_MODEL: model, GOOSE_DISABLE_KEYRING: "1", OPENAI_HOST: origin, OPENAI_API_KEY: key }, "goose session"),
  },
  { name: "kilo", title: "Kilo", about: "Has no memory tools here: they refuse folders that are links.", protocols: [CHAT, RESPONSES, ANTHROPIC, GEMINI] },
  {
    name: "kimi",
    title: "Kimi Code",
    about: "The program of the npm package @moonshot-ai/kimi-code, not the older kimi-cli of PyPI.",
    protocols: [CHAT, ANTHROPIC],
    byHand: ({ origin, key, model }) => exports({ KIMI_MODEL_PROVIDER_TYPE: "openai", KIMI_MODEL_BASE_URL: `${origin}/v1`, KIMI_MODEL_API_KEY: key, KIMI_MODEL_NAME: model }, "kimi"),
  },
  { name: "opencode", title: "opencode", about: "Summarises by itself when the context is full, and continues.", protocols: [CHAT, RESPONSES, ANTHROPIC, GEMINI] },
  { name: "pi", title: "Pi", about: "Knows servers only from a folder of its own, which toolwire run writes.", protocols: [CHAT, RESPONSES, ANTHROPIC, GEMINI] },
  {
    name: "qwen",
    title: "Qwen Code",
    about: "Sends images only to models whose names it knows.",
    protocols: [CHAT],
    byHand: ({ origin, key, model }) => exports({ OPENAI_BASE_URL: `${origin}/v1`, OPENAI_API_KEY: key, OPENAI_MODEL: model }, "qwen"),
  },
];
