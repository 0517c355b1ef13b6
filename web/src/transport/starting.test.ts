import assert from "node:assert/strict";
import { test } from "node:test";
import type { Transport } from "../types";
import type { Recording } from "./recording";
import { StartingTransport } from "./starting";

const RECORDING = { version: "0", info: { id: "date", task: "seq2seq", model: "dates" }, attentions: [] };

test("a recording answers until the server does, and what needs the model waits for the server", async () => {
  let start = (_info: unknown) => {};
  const info = new Promise((resolve) => {
    start = resolve;
  });
  const server = { get: () => info, post: async () => "posted" } as unknown as Transport;
  const transport = new StartingTransport(RECORDING as unknown as Recording, server);
  const first = (await transport.get("info")) as { loading: boolean; traces: { id: string }[] };
  assert.deepEqual([first.loading, first.traces[0].id], [true, "date"]);
  assert.equal(await transport.post("trace", {}), "posted");
  start({ title: "server" });
  await info;
  assert.deepEqual(await transport.get("info"), { title: "server" });
});
