/** Masks of self-attention, and decoding one word at a time. */
import { attention, type Matrix, maxDifference } from "../parts/math";

export const KINDS = ["none", "causal", "padding", "window"] as const;
export type Kind = (typeof KINDS)[number];

/** Whether query i may look at key j. */
export function visible(kind: Kind, i: number, j: number, length: number, window: number): boolean {
  if (kind === "causal") return j <= i;
  if (kind === "padding") return j < length;
  return kind === "none" || (j <= i && i - j < window);
}

export function masked(input: Matrix, kind: Kind, { padding, window }: { padding: number; window: number }) {
  return attention(input, input, input, (i, j) => visible(kind, i, j, padding, window));
}

/** The input with a number added to the first feature of its last word. */
export const withChange = (input: Matrix, change: number): Matrix =>
  input.map((row, i) => (i === input.length - 1 ? [row[0] + change, ...row.slice(1)] : row));

/** How far each output moves when the input changes. */
export const changes = (before: Matrix, after: Matrix): number[] =>
  before.map((row, i) => maxDifference([row], [after[i]]));

/** Decoding: each word attends with its own query to the keys and values kept so far. */
export function decode(input: Matrix): Matrix {
  const cache: Matrix = [];
  return input.map((row) => {
    cache.push(row);
    return attention([row], cache, cache).output[0];
  });
}
