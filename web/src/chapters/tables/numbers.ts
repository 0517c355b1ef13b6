/** One row of a table as tokens, one layer of attention between its columns, and a prediction from [CLS]. */
import { normalMatrix } from "../parts/generator";
import { add, attention, dot, type Matrix, matmul, times, type Vector } from "../parts/math";

export interface NumberColumn {
  mean: number;
  deviation: number;
}

export interface Weights {
  seed: number;
  dim: number;
}

/** Tokens in this order: each number, then each category. Column c draws its vectors from seed · 100 + c. */
export function tokensOf(
  numbers: Vector,
  categories: Vector,
  columns: NumberColumn[],
  counts: Vector,
  { seed, dim }: Weights,
): Matrix {
  const ofNumbers = numbers.map((value, c) => {
    const [direction, bias] = normalMatrix(seed * 100 + c, 2, dim);
    return add(times(direction, (value - columns[c].mean) / columns[c].deviation), bias);
  });
  const ofCategories = categories.map(
    (value, c) => normalMatrix(seed * 100 + columns.length + c, counts[c], dim)[value],
  );
  return [...ofNumbers, ...ofCategories];
}

/** The prediction for tokens in any order; [CLS] stands first. */
export function predict(tokens: Matrix, { seed, dim }: Weights) {
  const draw = (index: number, rows: number) => normalMatrix(seed * 100 + 50 + index, rows, dim, 1 / Math.sqrt(dim));
  const [cls] = draw(0, 1);
  const x = [cls, ...tokens];
  const [Q, K, V] = [1, 2, 3].map((index) => matmul(x, draw(index, dim)));
  const { weights, output } = attention(Q, K, V);
  const [readout] = normalMatrix(seed * 100 + 60, 1, dim);
  const logit = dot(add(cls, output[0]), readout);
  return { x, weights, output, logit, probability: 1 / (1 + Math.exp(-logit)) };
}
