/** An encoder that reads word by word, and a decoder state that attends to all of its states. */
import { add, dot, type Matrix, matmul, softmax, transpose, type Vector } from "../parts/math";

const apply = (weight: Matrix, x: Vector): Vector => matmul(weight, transpose([x])).map(([value]) => value);

/** h_t = tanh(W h_{t−1} + U x_t). */
export function encode(embeddings: Matrix, recurrent: Matrix, input: Matrix): Matrix {
  const states: Matrix = [];
  for (const x of embeddings) {
    const last = states[states.length - 1] ?? x.map(() => 0);
    states.push(add(apply(recurrent, last), apply(input, x)).map(Math.tanh));
  }
  return states;
}

export const SCORES = ["additive", "dot", "general"] as const;
export type ScoreName = (typeof SCORES)[number];

export interface ScoreWeights {
  general: Matrix;
  additive: { query: Matrix; key: Matrix; vector: Vector };
}

/** Bahdanau's score v · tanh(W s + U h), Luong's s · h and s · W h. */
export function score(name: ScoreName, state: Vector, key: Vector, { general, additive }: ScoreWeights): number {
  if (name === "dot") return dot(state, key);
  if (name === "general") return dot(state, apply(general, key));
  const hidden = add(apply(additive.query, state), apply(additive.key, key));
  return dot(additive.vector, hidden.map(Math.tanh));
}

export function attend(name: ScoreName, state: Vector, states: Matrix, weights: ScoreWeights) {
  const scores = states.map((key) => score(name, state, key, weights));
  const shares = softmax(scores);
  const [context] = matmul([shares], states);
  const outside = transpose(states).map((values, i) =>
    Math.max(0, Math.min(...values) - context[i], context[i] - Math.max(...values)),
  );
  return { scores, weights: shares, context, outside: Math.max(...outside) };
}
