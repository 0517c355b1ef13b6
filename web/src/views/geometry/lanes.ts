/** Lanes: a statistic per query or per key, as bars beside the map. */

export interface Bar {
  index: number;
  value: number;
  /** Share of the lane's length, 0 to 1. */
  share: number;
  /** Values that the bar stands for: 1, or more when there are more values than bars. */
  count: number;
}

/** At most `bars` bars; a bar that stands for several values shows the largest, so that no peak vanishes. */
export function bars(values: ArrayLike<number>, bars: number, top?: number): Bar[] {
  const count = Math.max(1, Math.ceil(values.length / Math.max(1, bars)));
  const limit = top ?? largest(values);
  const result: Bar[] = [];
  for (let start = 0; start < values.length; start += count) {
    let index = start;
    for (let i = start; i < Math.min(start + count, values.length); i++) if (values[i] > values[index]) index = i;
    result.push({ index, value: values[index], share: limit > 0 ? Math.max(0, values[index]) / limit : 0, count });
  }
  return result;
}

export function largest(values: ArrayLike<number>): number {
  let result = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > result) result = values[i];
  return result;
}
