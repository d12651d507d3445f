// A client's request, for another model. Only the model's name changes; all other bytes are those that the client sent.

import type { ClientSide, ExchangeRow, ProtocolInfo } from "../api";
import { findPointer, parseJson } from "./json_text";

export interface NewRequest {
  path: string;
  body: string;
}

/** The request, or why it cannot be made. */
export function changeModel(row: ExchangeRow, client: ClientSide, protocol: ProtocolInfo | undefined, model: string): NewRequest | string {
  if (!protocol) return "This request is of no protocol that can be sent again.";
  if (client.request.is_cut || (!client.request.text && client.request.size)) return "The request was too long to be kept.";
  const json = parseJson(client.request.text);
  if (json.root?.kind !== "object" || json.brokenAt >= 0) return "The request is not a JSON object.";
  const path = (row.stream ? protocol.stream_path : protocol.path).replace("{model}", encodeURIComponent(model));
  if (!protocol.has_model_in_body) return { path, body: json.text };
  const { node, isExact } = findPointer(json.root, "/model");
  if (!isExact) return "The request has no model.";
  return { path, body: json.text.slice(0, node.start) + JSON.stringify(model) + json.text.slice(node.end) };
}
