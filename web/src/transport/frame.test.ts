import assert from "node:assert/strict";
import { test } from "node:test";
import type { StreamEvent } from "../types";
import { readEvents } from "./events";
import { readFrame, weightsOf } from "./frame";

function frameOf(dtype: number, statistic: number, shape: number[], numbers: ArrayBuffer): ArrayBuffer {
  const buffer = new Uint8Array(32 + numbers.byteLength);
  const view = new DataView(buffer.buffer);
  buffer.set(new TextEncoder().encode("SLFR"));
  buffer.set([1, dtype, statistic, shape.length], 4);
  for (let i = 0; i < 4; i++) view.setUint32(8 + 4 * i, shape[i] ?? 1, true);
  view.setFloat32(24, 6 / 254, true);
  view.setFloat32(28, -6, true);
  buffer.set(new Uint8Array(numbers), 32);
  return buffer.buffer;
}

test("numbers of a frame are read with their shape", () => {
  const frame = readFrame(frameOf(0, 2, [2, 3], Float32Array.of(1, 2, 3, 4, 5, 6).buffer));
  assert.deepEqual([frame.shape, frame.statistic, frame.dtype], [[2, 3], "mean", "f32"]);
  assert.deepEqual([...frame.data], [1, 2, 3, 4, 5, 6]);
});

test("bytes are weights on a logarithmic scale", () => {
  const weights = weightsOf(readFrame(frameOf(1, 1, [3], Uint8Array.of(0, 1, 255).buffer)));
  assert.equal(weights[0], 0);
  assert.ok(Math.abs(weights[1] - 1e-6) < 1e-9 && Math.abs(weights[2] - 1) < 1e-5);
});

test("what is no frame is an error that says so", () => {
  assert.throws(() => readFrame(new ArrayBuffer(3)), /expected a frame/);
  assert.throws(() => readFrame(new ArrayBuffer(64)), /expected a frame/);
  assert.throws(() => readFrame(frameOf(0, 0, [100], new ArrayBuffer(4))), /expected 100 numbers/);
});

test("server-sent events are read however they are cut", async () => {
  const text = 'event: token\ndata: {"id": 1, "token": "ü"}\n\nevent: done\r\ndata: {}\r\n\r\n';
  const bytes = new TextEncoder().encode(text);
  for (const size of [1, 7, 1000]) {
    const events: StreamEvent[] = [];
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
        controller.close();
      },
    });
    await readEvents(body, (event) => events.push(event));
    assert.deepEqual(events, [
      { event: "token", data: { id: 1, token: "ü" } },
      { event: "done", data: {} },
    ]);
  }
});
