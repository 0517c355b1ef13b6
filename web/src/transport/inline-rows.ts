/** Statistics and single numbers of maps of a single file, as the server answers them. */
import { type AttentionMap, indices } from "../math/attention-map";
import type { Frame, Query, Statistic } from "../types";
import { floats, rangeOf } from "./inline-maps";

const SAMPLED_ROWS = 512;
const TOP_KEYS = 8;
const STRONG_COLUMNS = 64;
const STRONG_DIAGONALS = 16;

export interface Lanes {
  entropy: number[];
  max: number[];
  mean_distance: number[];
  received_mass: number[];
  top: [number, number][][];
}

export function lanes(map: AttentionMap, head: number): Lanes {
  const { rows, columns } = map.inputs;
  const found: Lanes = { entropy: [], max: [], mean_distance: [], received_mass: Array(columns).fill(0), top: [] };
  for (let row = 0; row < rows; row++) {
    const weights = map.row(head, row);
    let entropy = 0;
    let distance = 0;
    weights.forEach((weight, column) => {
      if (weight > 0) entropy -= weight * Math.log(weight);
      distance += weight * Math.abs(row - column);
      found.received_mass[column] += weight;
    });
    const top = strongest(weights, TOP_KEYS);
    found.entropy.push(entropy);
    found.max.push(top[0]?.[1] ?? 0);
    found.mean_distance.push(distance);
    found.top.push(top);
  }
  return found;
}

/** The indices with the largest numbers above 0. */
export function strongest(numbers: ArrayLike<number>, count: number): [number, number][] {
  return Array.from(numbers, (value, index) => [index, value] as [number, number])
    .filter(([, value]) => value > 0)
    .sort((a, b) => b[1] - a[1])
    .slice(0, count);
}

export function lane(map: AttentionMap, head: number, name: string): Frame {
  const values = lanes(map, head)[name as Exclude<keyof Lanes, "top">];
  if (!values) throw new Error(`expected a lane, got ${name}`);
  return floats(Float32Array.from(values), [values.length]);
}

/** The columns and diagonals with the largest mean weight, of evenly spaced rows of a long map. */
export function strong(map: AttentionMap, head: number) {
  const { rows, columns } = map.inputs;
  const step = Math.max(Math.floor(rows / SAMPLED_ROWS), 1);
  const chosen = Array.from({ length: Math.ceil(rows / step) }, (_, i) => rows - 1 - i * step);
  const mass = new Float64Array(columns);
  const sums = new Map<number, { total: number; count: number }>();
  for (const row of chosen) {
    map.row(head, row).forEach((weight, column) => {
      mass[column] += weight / chosen.length;
      const diagonal = sums.get(row - column) ?? { total: 0, count: 0 };
      sums.set(row - column, { total: diagonal.total + weight, count: diagonal.count + 1 });
    });
  }
  const long = Math.max(2, Math.floor(chosen.length / 8)); // the mean of a corner is that of few weights
  const diagonals = [...sums]
    .filter(([, { total, count }]) => count >= long && total > 0)
    .map(([offset, { total, count }]) => [offset, total / count] as [number, number])
    .sort((a, b) => b[1] - a[1])
    .slice(0, STRONG_DIAGONALS);
  const statistic: Statistic = step === 1 ? "exact" : "sampled";
  return { columns: strongest(mass, STRONG_COLUMNS), diagonals, statistic };
}

/** Scores of one query; the offset of the frame is its log-sum-exp. */
export function scores(map: AttentionMap, head: number, row: number): Frame {
  const { columns } = map.inputs;
  const found = Float32Array.from({ length: columns }, (_, column) => map.score(head, row, column));
  return floats(found, [columns], "exact", map.lse(head, row));
}

/** Queries, keys and norms of values of one head. */
export function vectors(map: AttentionMap, head: number, query: Query) {
  const { inputs } = map;
  const { dim, heads, groups, rows, columns } = inputs;
  const group = Math.floor((head * groups) / heads);
  const list = (part: { first: number; count: number }) => Array.from({ length: part.count }, (_, i) => part.first + i);
  const own = list(rangeOf(query.rows, rows)).slice(0, 64);
  const keys = list(rangeOf(query.columns, columns)).slice(0, 64);
  const vector = (data: Float32Array, index: number) => Array.from(data.subarray(index * dim, (index + 1) * dim));
  return {
    query: own.map((row) => vector(inputs.query, head * rows + row)),
    key: keys.map((column) => vector(inputs.key, group * columns + column)),
    value_norm: keys.map((column) => inputs.valueNorm?.[group * columns + column] ?? null),
    scale: inputs.scale,
    lse: own.map((row) => map.lse(head, row)),
  };
}

/** How a weight is computed, with its numbers, and the lines of Python that reproduce it. */
export function explain(map: AttentionMap, path: string, head: number, row: number, column: number) {
  const product = map.dot(head, row, column);
  const score = map.score(head, row, column);
  const weight = map.weight(head, row, column);
  const { scale } = map.inputs;
  const rest = score - product * scale;
  const terms = [
    { name: "q·k", value: product },
    { name: "scale", value: scale },
  ];
  if (Math.abs(rest) > 1e-4 * Math.max(1, Math.abs(score))) {
    terms.push({ name: "mask, bias and softcap", value: rest });
  }
  terms.push({ name: "score", value: score });
  terms.push({ name: "log-sum-exp", value: map.lse(head, row) });
  terms.push({ name: "weight", value: weight });
  const python = [
    "from softlook.lens import load_trace",
    "",
    'trace = load_trace("trace.safetensors")  # written by trace.save("trace.safetensors")',
    `layer = trace["${path}"]`,
    `layer.weights(heads=slice(${head}, ${head + 1}), rows=slice(${row}, ${row + 1}), ` +
      `columns=slice(${column}, ${column + 1}))  # ${Number(weight.toPrecision(6))}`,
  ].join("\n");
  const formula = terms.map(({ name, value }) => ({ name, value: Number.isFinite(value) ? value : null }));
  return { formula, python };
}

/** The mean over heads of a map of self-attention. */
export function meanMap(map: AttentionMap): Float32Array {
  return map.block("mean", indices(0, map.inputs.rows), indices(0, map.inputs.columns));
}
