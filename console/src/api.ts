// Made from src/toolwire/gateway/surfaces/console/api.py by `make console`; do not edit.

export const API_PATH = "/console/api/v1/";
export const CONSOLE_HEADER = "x-toolwire-console";

/** Any answer with a status of 400 or more. */
export interface ApiError {
  message: string;
  hint: string;
}

/** A body as far as it was kept: its first page. */
export interface Body {
  text: string;
  size: number;
  is_cut: boolean;
  next: string;
}

/** More of a body. */
export interface BodyPage {
  text: string;
  next: string;
}

/** What the prompt cache did not give for one cause. */
export interface CacheCause {
  cause: string;
  turns: number;
  missed_tokens: number;
  extra_cost_usd: number | null;
  unpriced_turns: number;
}

/** What the provider's prompt cache gave for an exchange, against the prompt before in its session. */
export interface CacheUsage {
  expected_tokens: number;
  read_tokens: number;
  write_tokens: number;
  missed_tokens: number;
  cause: string;
  reason: string;
  place: string;
  extra_cost_usd: number | null;
}

/** What one call of a provider has used. Calls that were refused, or did not reach the provider, use nothing. */
export interface CallCost {
  provider: string;
  account: string;
  model: string;
  tokens: Tokens | null;
  cost: Cost | null;
}

/** A tool call on both sides; one of them is null where only the other has it. */
export interface CallPair {
  is_in_answer: boolean;
  client: CallSide | null;
  provider: CallSide | null;
}

/** A tool call as one side sees it. */
export interface CallSide {
  id: string;
  name: string;
  arguments: string;
  result: string;
  has_result: boolean;
  is_error: boolean;
}

/** A tool that the answer calls, by both names. */
export interface CalledTool {
  client: string;
  provider: string;
}

/** What the client sent and got. */
export interface ClientSide {
  protocol: string;
  method: string;
  path: string;
  request: Body;
  status: number;
  response: Body;
  events: readonly StreamEvent[];
  request_headers: readonly Header[];
  response_headers: readonly Header[];
}

/** What the page needs to know about the gateway. */
export interface ConsoleState {
  version: string;
  gateway_id: string;
  needs_client_key: boolean;
  can_log_out: boolean;
  workers: number;
  has_replicas: boolean;
  max_exchanges: number;
  max_bytes: number;
  protocols: readonly ProtocolInfo[];
}

/** An exchange as a conversation. A side is null if it cannot be read, or no provider was asked. */
export interface Conversation {
  client: ConversationSide | null;
  provider: ConversationSide | null;
}

/** A part of a turn, as it can be read. */
export interface ConversationPart {
  kind: "call" | "media" | "other" | "reasoning" | "refusal" | "result" | "text";
  text: string;
  is_cut: boolean;
  name: string;
  call_id: string;
  pictures: readonly string[];
  is_error: boolean;
  place: string;
  is_changed: boolean;
  losses: readonly LossRow[];
}

/** What one side has sent and got; instructions are the first turn, of the role `system`. */
export interface ConversationSide {
  protocol: string;
  turns: readonly ConversationTurn[];
  hidden_turns: number;
}

export interface ConversationTurn {
  role: string;
  is_answer: boolean;
  parts: readonly ConversationPart[];
  place: string;
}

export interface Cooldown {
  model: string;
  seconds: number;
}

/** What calls of providers cost, in USD. */
export interface Cost {
  cost_usd: number | null;
  unpriced_calls: number;
  reported_cost_usd: number | null;
}

export interface ExchangeDetail {
  row: ExchangeRow;
  output: Output;
  client: ClientSide;
  upstream_calls: readonly UpstreamCall[];
  call_costs: readonly CallCost[];
  cache: CacheUsage | null;
  tools: readonly ToolRow[];
  calls: readonly CallPair[];
  losses: readonly LossRow[];
  steps: readonly TimedStep[];
  curl: string;
}

export interface ExchangeList {
  exchanges: readonly ExchangeRow[];
  removed: number;
}

/** One exchange as a row of a list. */
export interface ExchangeRow {
  id: string;
  request_id: string;
  state: "disconnected" | "done" | "failed" | "running";
  started_at: number;
  first_byte_ms: number | null;
  duration_ms: number | null;
  asked: string;
  answered: string;
  operation: string;
  method: string;
  path: string;
  agent: string;
  key_name: string;
  team: string;
  client_protocol: string;
  provider_protocol: string;
  provider: string;
  requested_model: string;
  model: string;
  stream: boolean;
  passthrough: boolean;
  status: number;
  failure: string;
  message: string;
  losses: readonly string[];
  loss_count: number;
  called_tools: readonly CalledTool[];
  tool_runs: readonly string[];
  tokens: Tokens | null;
  cost: Cost | null;
  attempts: number;
  bytes_in: number;
  bytes_out: number;
  session: string;
  conversation: string;
}

/** A header; the value is hidden unless it is known to be harmless. */
export interface Header {
  name: string;
  value: string;
}

/** The first event of a connection to `events`. */
export interface Hello {
  gateway_id: string;
}

/** What is used of each limit, of all gateways that share the counters; the most used first. */
export interface LimitReport {
  limits: readonly LimitRow[];
}

/** One amount of a limit, for one of those that it is for. */
export interface LimitRow {
  limit: string;
  group: string;
  amount: string;
  maximum: number;
  used: number;
  reserved: number;
  opens_after: number | null;
  is_soft: boolean;
}

/** The console's own key, which is not a client key. */
export interface Login {
  key: string;
}

/** A loss, and where it happened. */
export interface LossRow {
  code: string;
  severity: "added" | "changed" | "lost" | "repaired";
  path: string;
  is_in_answer: boolean;
  what: string;
  why: string;
}

export interface ModelList {
  models: readonly ModelRow[];
  problems: readonly string[];
}

export interface ModelRow {
  name: string;
  provider: string;
}

/** More of the answer of a running stream, as the client gets it. */
export interface Output {
  id: string;
  text: string;
  reasoning: string;
  calls: readonly string[];
  bytes_out: number;
}

/** Where a request stops being the same as the request before it, for the provider's prompt cache. */
export interface PrefixBreak {
  place: string;
  same_bytes: number;
  before: string;
  after: string;
  difference: number;
  cause: string;
}

/** A protocol, and where its clients send requests. `{model}` in a path stands for the model's name. */
export interface ProtocolInfo {
  name: string;
  path: string;
  stream_path: string;
  has_model_in_body: boolean;
}

export interface ProviderList {
  providers: readonly ProviderRow[];
}

export interface ProviderRow {
  name: string;
  kind: string;
  protocols: readonly string[];
  address: string;
  key: "from_client" | "missing" | "not_needed" | "set";
  key_variable: string;
  is_embedded: boolean;
  cooldowns: readonly Cooldown[];
  rate_limits: readonly RateLimit[];
  last_outcome: string;
  last_at: number | null;
  models: readonly string[] | null;
  problem: string;
}

/** What the provider's last answer said about a limit. */
export interface RateLimit {
  name: string;
  limit: number | null;
  remaining: number | null;
  resets_at: number | null;
}

/** The requests of this gateway with all of its workers, since they run. */
export interface RequestReport {
  by: string;
  step_seconds: number;
  since: number;
  until: number;
  kept_since: number;
  rows: readonly RequestRow[];
  sums: readonly RequestRow[];
  total: RequestRow;
  causes: readonly CacheCause[];
}

/** How many requests there were in a group, and how they ended. Durations are of those that did not fail; they are wrong by less than five percent. */
export interface RequestRow {
  time: number | null;
  name: string;
  requests: number;
  failed: number;
  left: number;
  retries: number;
  duration_p50_ms: number | null;
  duration_p95_ms: number | null;
  first_byte_p50_ms: number | null;
  first_byte_p95_ms: number | null;
  cache_expected_tokens: number;
  cache_missed_turns: number;
  cache_missed_tokens: number;
  cache_missed_cost_usd: number | null;
}

/** An exchange with all words of a search. */
export interface SearchHit {
  id: string;
  excerpt: string;
}

export interface SearchResult {
  hits: readonly SearchHit[];
  is_complete: boolean;
}

export interface SessionDetail {
  session: SessionRow;
  turns: readonly SessionTurn[];
}

export interface SessionList {
  sessions: readonly SessionRow[];
}

/** The turns of one conversation. */
export interface SessionRow {
  id: string;
  title: string;
  source: "conversation" | "header" | "prefix" | "previous_response_id";
  agent: string;
  models: readonly string[];
  turns: number;
  started_at: number;
  last_at: number;
  tokens: Tokens;
  cost: Cost | null;
  extra_cost_usd: number | null;
  broken_prefixes: number;
}

export interface SessionTurn {
  exchange: ExchangeRow;
  prefix_bytes: number;
  prefix_break: PrefixBreak | null;
  cache: CacheUsage | null;
}

/** One server-sent event. */
export interface StreamEvent {
  ms: number;
  event: string;
  data: string;
}

/** A step of an exchange: preparing, each call to a provider up to its first byte and to its end, tool runs. */
export interface TimedStep {
  name: string;
  detail: string;
  started_ms: number;
  duration_ms: number;
}

/** The provider's counts; absent where it has not sent them. */
export interface Tokens {
  input?: number | null;
  output?: number | null;
  cache_read?: number | null;
  cache_write?: number | null;
  reasoning?: number | null;
  cache_expected?: number | null;
  cache_missed?: number | null;
  is_estimated?: boolean;
}

/** A declared tool on both sides. */
export interface ToolRow {
  client_name: string;
  provider_name: string;
  kind: string;
  state: "added" | "changed" | "dropped" | "kept" | "renamed";
  reasons: readonly string[];
  client_declaration: string;
  provider_declaration: string;
}

export interface TranslateAnswer {
  kind: "error" | "request" | "response" | "stream";
  source: string;
  results: readonly TranslateResult[];
  error: string;
}

/** Something to translate to all protocols. An empty `kind` or `source` is guessed from the text. */
export interface TranslateQuestion {
  text: string;
  kind?: "" | "error" | "request" | "response" | "stream";
  source?: string;
}

export interface TranslateResult {
  protocol: string;
  text: string;
  losses: readonly LossRow[];
  error: string;
}

/** One request to a provider and its answer: an attempt, a retry, a fallback, or a round after tool calls. */
export interface UpstreamCall {
  provider: string;
  protocol: string;
  url: string;
  request: Body;
  status: number;
  error: string;
  started_ms: number;
  head_ms: number | null;
  ended_ms: number | null;
  response: Body;
  events: readonly StreamEvent[];
  request_headers: readonly Header[];
  response_headers: readonly Header[];
}

/** The figures of `toolwire costs --json`: of all gateways that share the store. */
export interface UsageReport {
  since: string;
  until: string;
  by: readonly string[];
  rows: readonly UsageRow[];
  total: UsageRow;
}

/** What calls of providers have used, in a group; it has the members that were asked for. */
export interface UsageRow {
  hour: string;
  day: string;
  month: string;
  key: string;
  team: string;
  agent: string;
  subagent: string;
  provider: string;
  account: string;
  model: string;
  session: string;
  operation: string;
  calls: number;
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  reasoning_tokens: number;
  cost_usd: number | null;
  unpriced_calls: number;
  reported_cost_usd: number | null;
  reported_calls: number;
  unknown_calls: number;
  estimated_calls: number;
}
