/** Sinusoidal positions, and rotary positions in one plane. */
import { dot, type Matrix, matmul, sinusoidal, transpose, type Vector } from "../parts/math";

export function sinusoids(length: number, dim: number): { table: Matrix; products: Matrix } {
  const table = Array.from({ length }, (_, position) => sinusoidal(position, dim));
  return { table, products: matmul(table, transpose(table)) };
}

export const rotate = ([x, y]: Vector, angle: number): Vector => [
  x * Math.cos(angle) - y * Math.sin(angle),
  x * Math.sin(angle) + y * Math.cos(angle),
];

/** The score of a query at position m and a key at position n, both rotated by their positions. */
export function rotary(query: Vector, key: Vector, [m, n]: Vector, radians: number) {
  const [q, k] = [rotate(query, m * radians), rotate(key, n * radians)];
  return { q, k, score: dot(q, k) };
}

/** How much the product of two sinusoidal positions changes when both move by `shift`. */
export function sinusoidError([m, n]: Vector, shift: number, dim: number): number {
  const product = (a: number, b: number) => dot(sinusoidal(a, dim), sinusoidal(b, dim));
  return Math.abs(product(m + shift, n + shift) - product(m, n));
}
