import { expect, test } from "vitest";
import { clientKey, requestHeaders } from "../src/client_key";

test("a client key is sent in the gateway's own header, and only if there is one", () => {
  expect(requestHeaders()).toEqual({ "content-type": "application/json" });
  clientKey.value = "tw-key";
  expect(requestHeaders()).toEqual({ "content-type": "application/json", "x-toolwire-key": "tw-key" });
  clientKey.value = "";
});
