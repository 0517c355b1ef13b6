/** Dot products of random vectors for several widths d, and their variance. */
import { normal } from "../parts/generator";
import { softmax, type Vector, variance } from "../parts/math";

export interface Drawn {
  dims: number[];
  /** Dot products for each width: the vectors of one width are the beginnings of those of the next. */
  products: Vector[];
  variances: number[];
}

/** Numbers n of query i and key i stand at 2 (i · d + n) and the place after it. */
export function draw(seed: number, samples: number, dims: number[]): Drawn {
  const widest = dims[dims.length - 1];
  const products: Vector[] = dims.map(() => []);
  for (let i = 0; i < samples; i++) {
    let total = 0;
    for (let n = 0, level = 0; n < widest; n++) {
      const place = 2 * (i * widest + n);
      total += normal(seed, place) * normal(seed, place + 1);
      if (n + 1 === dims[level]) products[level++].push(total);
    }
  }
  return { dims, products, variances: products.map(variance) };
}

/** Shares of the values in bins of equal width from −limit to limit. */
export function histogram(values: Vector, limit: number, bins: number): Vector {
  const counts = new Array<number>(bins).fill(0);
  for (const value of values) {
    const bin = Math.floor(((value + limit) / (2 * limit)) * bins);
    if (bin >= 0 && bin < bins) counts[bin] += 1;
  }
  return counts.map((count) => count / values.length);
}

/** The mean of the largest weight when the dot products, divided by `divisor`, are scores of groups of keys. */
export function largestWeight(products: Vector, keys: number, divisor: number): number {
  let [total, groups] = [0, 0];
  for (let start = 0; start + keys <= products.length; start += keys, groups++) {
    total += Math.max(...softmax(products.slice(start, start + keys), divisor));
  }
  return total / groups;
}
