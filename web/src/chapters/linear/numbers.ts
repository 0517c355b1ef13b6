/** A fully connected layer, attention over the same numbers, and the layer as attention. */
import { dot, identity, type Matrix, matmul, maxDifference, softmax, transpose, type Vector } from "../parts/math";

const column = (x: Vector): Matrix => x.map((value) => [value]);

/** Attention weights of numbers that are their own queries and keys, or of constant scores. */
export function mixing(input: Vector, constant: Matrix | null): Matrix {
  const scores = constant ?? input.map((query) => input.map((key) => query * key));
  return scores.map((row) => softmax(row));
}

/** One head for each input: its mask leaves that input alone, and W^O holds the weights of the layer. */
export function layerAsAttention(input: Vector, weight: Matrix): Vector {
  const heads = identity(input.length).map((visible) => {
    const scores = visible.map((seen) => (seen ? 0 : Number.NEGATIVE_INFINITY));
    return dot(softmax(scores), input);
  });
  return transpose(matmul(weight, column(heads)))[0];
}

export function compare(input: Vector, first: Vector, weight: Matrix, constant: Matrix) {
  const layer = weight.map((row) => dot(row, input));
  const weights = mixing(input, null);
  return {
    layer,
    weights,
    mixed: weights.map((row) => dot(row, input)),
    fixed: mixing(input, constant),
    /** How far the computed weights have moved since the first input. */
    moved: maxDifference(weights, mixing(first, null)),
    constantMoved: maxDifference(mixing(input, constant), mixing(first, constant)),
    error: maxDifference([layer], [layerAsAttention(input, weight)]),
  };
}
