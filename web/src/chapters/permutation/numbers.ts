/** Self-attention without projections, and what a new order of its input does. */
import { addMatrix, attention, type Matrix, maxDifference, mean, permute, sinusoidal, transpose } from "../parts/math";

const withPositions = (input: Matrix): Matrix =>
  addMatrix(
    input,
    input.map((row, position) => sinusoidal(position, row.length)),
  );

/** Y = softmax(XXᵀ / √d) X; with positions, X + P takes the place of X. */
export function selfAttention(input: Matrix, positions: boolean): { weights: Matrix; output: Matrix } {
  const x = positions ? withPositions(input) : input;
  return attention(x, x, x);
}

const means = (matrix: Matrix): Matrix => [transpose(matrix).map(mean)];

export function permuted(input: Matrix, order: number[], positions: boolean) {
  const before = selfAttention(input, positions);
  const after = selfAttention(permute(input, order), positions);
  return {
    before,
    after,
    equivariance: maxDifference(after.output, permute(before.output, order)),
    invariance: maxDifference(means(after.output), means(before.output)),
  };
}
