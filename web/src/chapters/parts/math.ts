/** Vectors and matrices of a few numbers, in float64. */

export type Vector = number[];
export type Matrix = number[][];

export const sum = (x: Vector): number => x.reduce((total, value) => total + value, 0);

export const dot = (x: Vector, y: Vector): number => sum(x.map((value, i) => value * y[i]));

export const norm = (x: Vector): number => Math.sqrt(dot(x, x));

export const add = (x: Vector, y: Vector): Vector => x.map((value, i) => value + y[i]);

export const times = (x: Vector, factor: number): Vector => x.map((value) => value * factor);

export const mean = (x: Vector): number => sum(x) / x.length;

/** The mean of squared distances from the mean, divided by n. */
export const variance = (x: Vector): number => {
  const center = mean(x);
  return mean(x.map((value) => (value - center) ** 2));
};

export const transpose = (a: Matrix): Matrix => a[0].map((_, column) => a.map((row) => row[column]));

export const matmul = (a: Matrix, b: Matrix): Matrix => {
  const columns = transpose(b);
  return a.map((row) => columns.map((column) => dot(row, column)));
};

export const addMatrix = (a: Matrix, b: Matrix): Matrix => a.map((row, i) => add(row, b[i]));

export const timesMatrix = (a: Matrix, factor: number): Matrix => a.map((row) => times(row, factor));

/** The columns from `start` up to `end`. */
export const columns = (a: Matrix, start: number, end: number): Matrix => a.map((row) => row.slice(start, end));

export const identity = (size: number): Matrix =>
  Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => (i === j ? 1 : 0)));

/** Element order[0] first, then order[1], and so on. */
export const permute = <T>(x: T[], order: number[]): T[] => order.map((i) => x[i]);

/** The largest absolute value of a matrix. */
export const largest = (a: Matrix): number => Math.max(...a.flat().filter(Number.isFinite).map(Math.abs), 0);

/** The largest absolute difference of two matrices. */
export const maxDifference = (a: Matrix, b: Matrix): number =>
  Math.max(0, ...a.flatMap((row, i) => row.map((value, j) => Math.abs(value - b[i][j]))));

/** The softmax of scores; −∞ gets weight 0, and a row of nothing but −∞ gets zeros. */
export const softmax = (scores: Vector, temperature = 1): Vector => {
  const top = Math.max(...scores);
  if (top === Number.NEGATIVE_INFINITY) return scores.map(() => 0);
  const powers = scores.map((score) => Math.exp((score - top) / temperature));
  const total = sum(powers);
  return powers.map((power) => power / total);
};

/** The index of the largest value. */
export const argmax = (x: Vector): number => x.indexOf(Math.max(...x));

/** Every step of attention; `visible(i, j)`: query i may look at key j. */
export function attention(
  query: Matrix,
  key: Matrix,
  value: Matrix,
  visible: (i: number, j: number) => boolean = () => true,
  scale = 1 / Math.sqrt(query[0].length),
) {
  const products = matmul(query, transpose(key));
  const scores = timesMatrix(products, scale).map((row, i) =>
    row.map((score, j) => (visible(i, j) ? score : Number.NEGATIVE_INFINITY)),
  );
  const weights = scores.map((row) => softmax(row));
  return { products, scores, weights, output: matmul(weights, value) };
}

/** Layer norm over the features of each row, without parameters. */
export const layerNorm = (a: Matrix): Matrix =>
  a.map((row) => {
    const [center, spread] = [mean(row), Math.sqrt(variance(row) + 1e-5)];
    return row.map((value) => (value - center) / spread);
  });

/** Sinusoidal positions: sine and cosine in turn, wavelengths from 2π towards 2π · theta. */
export const sinusoidal = (position: number, dim: number, theta = 10_000): Vector =>
  Array.from({ length: dim }, (_, i) => {
    const angle = position * theta ** (-(i - (i % 2)) / dim);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
