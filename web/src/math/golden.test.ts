/** The page computes what the library computes: golden.json is written by tests/browser/golden.py. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type RecordedArray, type RecordedAttention, readArray, readMap } from "../transport/recording";
import { indices } from "./attention-map";
import golden from "./golden.json";
import { rollout } from "./rollout";

const TOLERANCE = 2e-6;

function assertClose(found: ArrayLike<number>, expected: ArrayLike<number>): void {
  assert.equal(found.length, expected.length);
  for (let i = 0; i < found.length; i++) {
    assert.ok(Math.abs(found[i] - expected[i]) <= TOLERANCE, `number ${i}: expected ${expected[i]}, got ${found[i]}`);
  }
}

for (const [name, { attention, weights }] of Object.entries(golden.cases)) {
  test(`a map from its file has the weights of the library: ${name}`, () => {
    const map = readMap(attention as RecordedAttention);
    const { heads, rows, columns } = map.inputs;
    const found = Array.from({ length: heads }, (_, head) => [
      ...map.block(head, indices(0, rows), indices(0, columns)),
    ]).flat();
    assertClose(found, weights);
  });

  test(`a map computes the log-sum-exp that its file has: ${name}`, () => {
    const recorded = readMap(attention as RecordedAttention);
    const computed = readMap(attention as RecordedAttention);
    computed.inputs.lse = undefined;
    const { heads, rows } = recorded.inputs;
    for (let head = 0; head < heads; head++) {
      for (let row = 0; row < rows; row++) {
        const [expected, found] = [recorded.lse(head, row), computed.lse(head, row)];
        assert.ok(expected === found || Math.abs(expected - found) < 1e-5, `head ${head}, row ${row}`);
      }
    }
  });
}

test("rollout is the library's", () => {
  const { rows, maps, flow } = golden.rollout;
  assertClose(
    rollout(
      maps.map((map) => Float32Array.from(map)),
      rows,
    ),
    flow,
  );
});

test("half precision is read exactly", () => {
  const found = readArray(golden.halves.array as RecordedArray);
  assert.deepEqual([...found.slice(0, -1)], golden.halves.values);
  assert.equal(found.at(-1), Number.POSITIVE_INFINITY);
});
