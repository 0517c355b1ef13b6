/** A dictionary of keys in the plane: exact, nearest and soft look-up. */
import { add, argmax, dot, type Matrix, softmax, times, type Vector } from "../parts/math";

/** −|q − k|² / 2: no key matches better than the query itself. */
const score = (query: Vector, key: Vector): number => {
  const difference = add(query, times(key, -1));
  return -dot(difference, difference) / 2;
};

export function lookUp(query: Vector, keys: Matrix, values: Vector, temperature: number) {
  const scores = keys.map((key) => score(query, key));
  const weights = softmax(scores, temperature);
  const equal = keys.findIndex((key) => key.every((value, i) => value === query[i]));
  const nearest = argmax(scores);
  return { scores, weights, equal, nearest, answer: dot(weights, values) };
}

/** The largest difference between a cold look-up of each key and the value that the dictionary holds. */
export const coldError = (keys: Matrix, values: Vector, temperature: number): number =>
  Math.max(...keys.map((key, i) => Math.abs(lookUp(key, keys, values, temperature).answer - values[i])));
