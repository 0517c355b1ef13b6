/** Reproducible random numbers: number n of a seed is a hash of both, so that anyone can compute it again. */

/** A hash of 32 bits (the finalizer of MurmurHash3). */
function hash(bits: number): number {
  let h = bits >>> 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** Number n of the uniform distribution between 0 and 1. */
export const uniform = (seed: number, n: number): number =>
  (hash(hash(n) ^ Math.imul(seed, 0x9e3779b9)) + 0.5) / 2 ** 32;

/** Number n of the standard normal distribution (Box and Muller). */
export const normal = (seed: number, n: number): number =>
  Math.sqrt(-2 * Math.log(uniform(seed, 2 * n))) * Math.cos(2 * Math.PI * uniform(seed, 2 * n + 1));

/** A matrix of normal numbers with this standard deviation. */
export const normalMatrix = (seed: number, rows: number, columns: number, deviation = 1): number[][] =>
  Array.from({ length: rows }, (_, i) =>
    Array.from({ length: columns }, (_, j) => deviation * normal(seed, i * columns + j)),
  );
