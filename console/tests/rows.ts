import type { ExchangeRow } from "../src/api";

export function makeRow(members: Partial<ExchangeRow>): ExchangeRow {
  return {
    id: "0-0", request_id: "", state: "done", started_at: 0, first_byte_ms: null, duration_ms: null, operation: "chat", method: "POST", path: "",
    agent: "", team: "", asked: "", answered: "", key_name: "", client_protocol: "", provider_protocol: "", provider: "", requested_model: "", model: "", stream: false,
    passthrough: false, status: 200, failure: "", message: "", losses: [], loss_count: 0, called_tools: [], tool_runs: [], tokens: null,
    cost: null, attempts: 1, bytes_in: 0, bytes_out: 0, session: "", conversation: "", ...members,
  }; // prettier-ignore
}
