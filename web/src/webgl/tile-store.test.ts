import assert from "node:assert/strict";
import { test } from "node:test";
import type { Frame } from "../types";
import type { TileAddress } from "./pyramid";
import { TileStore } from "./tile-store";

const frame: Frame = { shape: [1, 1], data: new Uint8Array(1), statistic: "max", dtype: "u8", scale: 1, offset: 0 };
const at = (column: number): TileAddress => ({ pool: "max", level: 0, row: 0, column });
const nextTick = () => new Promise((resolve) => setTimeout(resolve));

test("a tile that leaves the view is cancelled, and asked for again when it comes back", async () => {
  const signals = new Map<number, AbortSignal[]>();
  const load = (tile: TileAddress, signal: AbortSignal) => {
    signals.set(tile.column, [...(signals.get(tile.column) ?? []), signal]);
    return new Promise<Frame>((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
  };
  const store = new TileStore(load, () => {});
  store.request([at(1), at(2)]);
  store.request([at(2)]);
  assert.deepEqual(
    [1, 2].map((column) => signals.get(column)?.[0].aborted),
    [true, false],
  );
  await nextTick();
  store.request([at(1), at(2)]);
  assert.equal(signals.get(1)?.length, 2);
  assert.equal(signals.get(2)?.length, 1);
  assert.equal(store.failure, "");
});

test("at most six tiles are asked for at a time, in the order that was requested", async () => {
  const asked: number[] = [];
  let release: () => void = () => {};
  const gate = new Promise<void>((resolve) => (release = resolve));
  const store = new TileStore(
    async ({ column }) => {
      asked.push(column);
      await gate;
      return frame;
    },
    () => {},
  );
  store.request(Array.from({ length: 10 }, (_, column) => at(column)));
  assert.deepEqual(asked, [0, 1, 2, 3, 4, 5]);
  release();
  await nextTick();
  assert.equal(asked.length, 10);
  assert.equal(store.loading, false);
});

test("512 tiles are kept, and the least recently used one leaves first", async () => {
  const evicted: string[] = [];
  const store = new TileStore(
    async () => frame,
    () => {},
    (key) => evicted.push(key),
  );
  store.request(Array.from({ length: 512 }, (_, column) => at(column)));
  await nextTick();
  assert.ok(store.get(at(0)));
  store.request([at(1000)]);
  await nextTick();
  assert.equal(store.size, 512);
  assert.deepEqual(evicted, ["/0/0/1"]);
  assert.ok(store.get(at(0)));
});
