/** Colors of differences: diverging around 0, one hue for each sign, the same limit on both sides. */

export interface DifferenceScale {
  limit: number;
  /** Share of the positive or negative color: -1 to 1. */
  share(value: number): number;
  ticks: number[];
}

/** A scale that reaches the largest absolute value; `limit` overrides it. */
export function differenceScale(values: ArrayLike<number>, limit?: number): DifferenceScale {
  let most = 0;
  for (let i = 0; i < values.length; i++) most = Math.max(most, Math.abs(values[i]));
  const reach = limit ?? most;
  return {
    limit: reach,
    share: (value) => (reach > 0 ? Math.max(-1, Math.min(1, value / reach)) : 0),
    ticks: [-reach, 0, reach],
  };
}
