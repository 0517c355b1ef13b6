/** The indices of the `count` largest values, largest first; equal values in order of their index. */
export function topK(values: ArrayLike<number>, count: number): number[] {
  return Array.from(values, (_, index) => index)
    .sort((a, b) => values[b] - values[a] || a - b)
    .slice(0, count);
}
