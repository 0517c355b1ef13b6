/** The map of one attention layer as a function of Q, K and the log-sum-exp of each row: any weight is exact on its own. */

/** What the map is computed from; arrays are row-major with the shapes in the comments. */
export interface MapInputs {
  heads: number;
  /** Heads of keys: each serves heads / groups heads of queries. */
  groups: number;
  rows: number;
  columns: number;
  /** Numbers of a query. */
  dim: number;
  query: Float32Array; // heads, rows, dim
  key: Float32Array; // groups, columns, dim
  lse?: Float32Array; // heads, rows; computed if it is not given
  valueNorm?: Float32Array; // groups, columns
  scale: number;
  softcap?: number;
  /** Query i sees keys up to i + columns - rows: the last query sees all. */
  causal: boolean;
  /** A causal query sees at most this many keys. */
  window?: number;
  /** 1 where a query may look; of all heads, or one for each. */
  dense?: Uint8Array; // heads or 1, rows, columns
  bias?: Float32Array; // heads or 1, rows, columns
}

/** Evenly spaced indices: first, first + step, ... */
export interface Indices {
  first: number;
  count: number;
  step: number;
}

export const indices = (first: number, stop: number, step = 1): Indices => ({
  first,
  count: Math.max(Math.ceil((stop - first) / step), 0),
  step,
});

export class AttentionMap {
  private readonly known = new Map<number, Float64Array>();

  constructor(readonly inputs: MapInputs) {}

  /** The score of a query and a key after scale, soft cap, bias and mask: -Infinity where it may not look. */
  score(head: number, row: number, column: number): number {
    const { rows, columns, scale, softcap, bias } = this.inputs;
    if (!this.maySee(head, row, column)) return Number.NEGATIVE_INFINITY;
    let score = this.dot(head, row, column) * scale;
    if (softcap) score = softcap * Math.tanh(score / softcap);
    if (bias) score += bias[place(head, bias.length, rows, columns) + row * columns + column];
    return score;
  }

  /** The product of a query and a key, before scale. */
  dot(head: number, row: number, column: number): number {
    const { heads, groups, rows, columns, dim, query, key } = this.inputs;
    const group = Math.floor((head * groups) / heads);
    const from = (head * rows + row) * dim;
    const to = (group * columns + column) * dim;
    let sum = 0;
    for (let i = 0; i < dim; i++) sum += query[from + i] * key[to + i];
    return sum;
  }

  maySee(head: number, row: number, column: number): boolean {
    const { rows, columns, causal, window, dense } = this.inputs;
    const last = row + columns - rows;
    if (causal && column > last) return false;
    if (window !== undefined && column <= last - window) return false;
    return dense?.[place(head, dense.length, rows, columns) + row * columns + column] !== 0;
  }

  /** The log-sum-exp of the scores of a row; -Infinity for a query that may look nowhere. */
  lse(head: number, row: number): number {
    const { rows, columns, lse } = this.inputs;
    if (lse) return lse[head * rows + row];
    const known = this.known.get(head) ?? new Float64Array(rows).fill(Number.NaN);
    this.known.set(head, known);
    if (Number.isNaN(known[row])) {
      known[row] = logSumExp(Array.from({ length: columns }, (_, column) => this.score(head, row, column)));
    }
    return known[row];
  }

  weight(head: number, row: number, column: number): number {
    const score = this.score(head, row, column);
    return score === Number.NEGATIVE_INFINITY ? 0 : Math.exp(score - this.lse(head, row));
  }

  /** Weights of a part of the map, row-major; of one head, or the mean of all. */
  block(head: number | "mean", rows: Indices, columns: Indices): Float32Array {
    const block = new Float32Array(rows.count * columns.count);
    const heads = head === "mean" ? Array.from({ length: this.inputs.heads }, (_, index) => index) : [head];
    for (const one of heads) {
      for (let i = 0; i < rows.count; i++) {
        const row = rows.first + i * rows.step;
        for (let j = 0; j < columns.count; j++) {
          block[i * columns.count + j] += this.weight(one, row, columns.first + j * columns.step) / heads.length;
        }
      }
    }
    return block;
  }

  /** All weights of one row. */
  row(head: number | "mean", row: number): Float32Array {
    return this.block(head, indices(row, row + 1), indices(0, this.inputs.columns));
  }
}

/** Where the matrix of a head begins in an array that has one for each head, or one for all. */
function place(head: number, length: number, rows: number, columns: number): number {
  return length === rows * columns ? 0 : head * rows * columns;
}

export function logSumExp(scores: ArrayLike<number>): number {
  let largest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < scores.length; i++) largest = Math.max(largest, scores[i]);
  if (largest === Number.NEGATIVE_INFINITY) return largest;
  let sum = 0;
  for (let i = 0; i < scores.length; i++) sum += Math.exp(scores[i] - largest);
  return largest + Math.log(sum);
}
