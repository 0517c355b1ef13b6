/** Multi-head attention: cut, run, glue, mix. */
import { addMatrix, attention, columns, type Matrix, matmul, maxDifference, timesMatrix } from "../parts/math";

export interface Weights {
  query: Matrix;
  key: Matrix;
  value: Matrix;
  output: Matrix;
}

/** `gates`: a factor of each head's output, before the output projection. */
export function multiHead(input: Matrix, weights: Weights, gates: number[]) {
  const [Q, K, V] = [weights.query, weights.key, weights.value].map((weight) => matmul(input, weight));
  const width = Q[0].length / gates.length;
  const heads = gates.map((gate, h) => {
    const cut = (matrix: Matrix) => columns(matrix, h * width, (h + 1) * width);
    const { weights: map, output } = attention(cut(Q), cut(K), cut(V));
    return { map, output: timesMatrix(output, gate) };
  });
  const concatenated = input.map((_, i) => heads.flatMap((head) => head.output[i]));
  const output = matmul(concatenated, weights.output);
  const rows = (h: number) => weights.output.slice(h * width, (h + 1) * width);
  const summed = heads.map((head, h) => matmul(head.output, rows(h))).reduce(addMatrix);
  return { Q, K, V, heads, concatenated, output, error: maxDifference(output, summed) };
}
