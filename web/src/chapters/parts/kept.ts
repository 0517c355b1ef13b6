/** Numbers, choices and orders that a chapter keeps in the URL. */
import type { Store } from "../../types";
import type { Matrix, Vector } from "./math";

const rounded = (value: number): string => String(Math.round(value * 1000) / 1000);

/** A list of numbers, as "1,0.5". What does not fit is ignored. */
export function keptVector(store: Store, key: string, initial: Vector): [Vector, (value: Vector) => void] {
  const numbers = (store.get(key) ?? "").split(",").map(Number);
  const valid = store.get(key) !== undefined && numbers.length === initial.length && numbers.every(Number.isFinite);
  return [valid ? numbers : initial, (value) => store.set(key, value.map(rounded).join())];
}

/** A matrix of numbers, row by row. */
export function keptMatrix(store: Store, key: string, initial: Matrix): [Matrix, (value: Matrix) => void] {
  const width = initial[0].length;
  const [flat, set] = keptVector(store, key, initial.flat());
  return [initial.map((_, i) => flat.slice(i * width, (i + 1) * width)), (value) => set(value.flat())];
}

/** A number within limits. */
export function keptNumber(
  store: Store,
  key: string,
  initial: number,
  limits: [number, number],
): [number, (value: number) => void] {
  const value = Math.min(limits[1], Math.max(limits[0], store.number(key, initial)));
  return [value, (next) => store.set(key, rounded(next))];
}

/** An index below `count`. */
export function keptIndex(store: Store, key: string, initial: number, count: number): [number, (v: number) => void] {
  const [value, set] = keptNumber(store, key, initial, [0, count - 1]);
  return [Math.round(value), set];
}

export function keptSwitch(store: Store, key: string, initial: boolean): [boolean, (value: boolean) => void] {
  const text = store.get(key);
  return [text === undefined ? initial : text === "true", (value) => store.set(key, value)];
}

/** A permutation of 0 to n − 1. */
export function keptOrder(store: Store, key: string, size: number): [number[], (value: number[]) => void] {
  const initial = Array.from({ length: size }, (_, i) => i);
  const [order, set] = keptVector(store, key, initial);
  const valid = [...order].sort((a, b) => a - b).every((value, i) => value === i);
  return [valid ? order : initial, set];
}

/** A copy of the matrix with one entry changed. */
export const withEntry = (matrix: Matrix, row: number, column: number, value: number): Matrix =>
  matrix.map((numbers, i) => (i === row ? numbers.map((number, j) => (j === column ? value : number)) : numbers));
