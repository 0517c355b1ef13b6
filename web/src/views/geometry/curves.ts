/** Paths of curves in a plot, and round numbers for its axes. */

export interface Point {
  x: number;
  y: number;
}

export interface Range {
  low: number;
  high: number;
}

/** The range of all finite values, and a range of 1 around a single value. */
export function range(values: Iterable<number>): Range {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return { low: 0, high: 1 };
  return low === high ? { low: low - 0.5, high: high + 0.5 } : { low, high };
}

export const place = (value: number, { low, high }: Range, length: number): number =>
  ((value - low) / (high - low)) * length;

/** An SVG path through the points; a value that is not finite leaves a gap. */
export function path(points: Point[], x: Range, y: Range, width: number, height: number): string {
  let pen = "M";
  const parts: string[] = [];
  for (const point of points) {
    if (!Number.isFinite(point.y) || !Number.isFinite(point.x)) {
      pen = "M";
      continue;
    }
    const [left, top] = [place(point.x, x, width), height - place(point.y, y, height)];
    parts.push(`${pen}${left.toFixed(1)},${top.toFixed(1)}`);
    pen = "L";
  }
  return parts.join("");
}

/** Round numbers inside a range, about `count` of them. */
export function ticks({ low, high }: Range, count = 4): number[] {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough;
  const result: number[] = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++)
    result.push(Number((i * step).toPrecision(12)));
  return result;
}
