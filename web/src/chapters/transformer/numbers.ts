/** A small encoder with random weights: its residual stream with the norm before or after each sub-layer. */
import { normalMatrix } from "../parts/generator";
import { addMatrix, attention, layerNorm, type Matrix, matmul, maxDifference, mean, variance } from "../parts/math";

export interface Size {
  seed: number;
  tokens: number;
  dim: number;
  hidden: number;
}

type SubLayer = (x: Matrix) => Matrix;

/** Attention and the feed-forward network of one layer; six matrices from six seeds. */
function subLayers({ seed, dim, hidden }: Size, layer: number): SubLayer[] {
  const draw = (index: number, rows: number, columns: number) =>
    normalMatrix(seed * 1000 + layer * 10 + index, rows, columns, 1 / Math.sqrt(rows));
  const [q, k, v, o] = [0, 1, 2, 3].map((index) => draw(index, dim, dim));
  const [up, down] = [draw(4, dim, hidden), draw(5, hidden, dim)];
  return [
    (x) => matmul(attention(matmul(x, q), matmul(x, k), matmul(x, v)).output, o),
    (x) =>
      matmul(
        matmul(x, up).map((row) => row.map((value) => Math.max(0, value))),
        down,
      ),
  ];
}

export const input = ({ seed, tokens, dim }: Size): Matrix => normalMatrix(seed, tokens, dim);

const size = (x: Matrix): number => Math.sqrt(mean(x.flat().map((value) => value * value)));

/** Root mean square of the stream before the first layer and after each, and what the invariant of the norm says. */
export function stream(shape: Size, layers: number, preNorm: boolean) {
  const first = input(shape);
  let x = first;
  let total: Matrix = first.map((row) => row.map(() => 0));
  const sizes = [size(x)];
  for (let layer = 0; layer < layers; layer++) {
    for (const subLayer of subLayers(shape, layer)) {
      const change = subLayer(preNorm ? layerNorm(x) : x);
      total = addMatrix(total, change);
      x = preNorm ? addMatrix(x, change) : layerNorm(addMatrix(x, change));
    }
    sizes.push(size(x));
  }
  const error = preNorm
    ? maxDifference(x, addMatrix(first, total))
    : Math.max(...x.map((row) => Math.max(Math.abs(mean(row)), Math.abs(variance(row) - 1))));
  return { output: x, sizes, error };
}
