/** Attention as matrices, and the same as loops over single numbers. */
import { attention, type Matrix, maxDifference } from "../parts/math";

/** Attention written as loops, without any matrix product. */
export function loops(query: Matrix, key: Matrix, value: Matrix, visible: (i: number, j: number) => boolean): Matrix {
  const output: Matrix = [];
  for (let i = 0; i < query.length; i++) {
    const powers: number[] = [];
    let total = 0;
    for (let j = 0; j < key.length; j++) {
      let score = 0;
      for (let d = 0; d < query[i].length; d++) score += query[i][d] * key[j][d];
      powers.push(visible(i, j) ? Math.exp(score / Math.sqrt(query[i].length)) : 0);
      total += powers[j];
    }
    output.push(value[0].map(() => 0));
    for (let j = 0; j < key.length; j++)
      for (let d = 0; d < value[j].length; d++) output[i][d] += (powers[j] / total) * value[j][d];
  }
  return output;
}

export function matrixForm(query: Matrix, key: Matrix, value: Matrix, causal: boolean) {
  const visible = (i: number, j: number) => !causal || j <= i;
  const steps = attention(query, key, value, visible);
  return { ...steps, error: maxDifference(steps.output, loops(query, key, value, visible)) };
}
