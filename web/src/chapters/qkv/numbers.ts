/** Queries, keys and values of a sentence: all at once, and word by word. */
import { dot, type Matrix, matmul, maxDifference, transpose } from "../parts/math";

/** The projection of every row, and the largest difference to a projection of each row alone. */
export function project(input: Matrix, weight: Matrix): { values: Matrix; error: number } {
  const values = matmul(input, weight);
  const byWord = input.map((row) => transpose(weight).map((column) => dot(row, column)));
  const reversed = input.map((row) =>
    weight[0].map((_, j) => row.reduceRight((total, value, i) => total + value * weight[i][j], 0)),
  );
  return { values, error: Math.max(maxDifference(values, byWord), maxDifference(values, reversed)) };
}
