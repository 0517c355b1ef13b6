/** A convolution of three taps, the same as attention, and attention with scores of the distance alone. */
import { dot, type Matrix, maxDifference, softmax, type Vector } from "../parts/math";

export const OFFSETS = [-1, 0, 1];

/** y_t = Σ kernel_δ x_{t+δ}, with zeros outside. */
export const convolve = (input: Vector, kernel: Vector): Vector =>
  input.map((_, t) => OFFSETS.reduce((total, offset, i) => total + kernel[i] * (input[t + offset] ?? 0), 0));

/** The map of one head: query t sees position t + offset alone. */
export const offsetMap = (length: number, offset: number): Matrix =>
  Array.from({ length }, (_, t) =>
    softmax(Array.from({ length }, (_, s) => (s === t + offset ? 0 : Number.NEGATIVE_INFINITY))),
  );

/** Weights from scores β · kernel_δ of the three distances: what is further away is masked. */
export const relativeMap = (length: number, kernel: Vector, sharpness: number): Matrix =>
  Array.from({ length }, (_, t) =>
    softmax(
      Array.from({ length }, (_, s) => {
        const tap = OFFSETS.indexOf(s - t);
        return tap < 0 ? Number.NEGATIVE_INFINITY : sharpness * kernel[tap];
      }),
    ),
  );

/** The largest difference of weights at the same distance, away from both ends. */
export function toeplitzError(weights: Matrix): number {
  const inner = weights.slice(1, -1).map((row, i) => OFFSETS.map((offset) => row[i + 1 + offset]));
  return maxDifference(
    inner,
    inner.map(() => inner[0]),
  );
}

export function asAttention(input: Vector, kernel: Vector) {
  const maps = OFFSETS.map((offset) => offsetMap(input.length, offset));
  const heads = maps.map((map) => map.map((row) => dot(row, input)));
  const output = input.map((_, t) =>
    dot(
      kernel,
      heads.map((head) => head[t]),
    ),
  );
  return { maps, heads, output, error: maxDifference([output], [convolve(input, kernel)]) };
}
