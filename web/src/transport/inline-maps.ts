/** Parts of maps of a single file, as the server answers them: tiles, weights, overview. */
import { type AttentionMap, type Indices, indices } from "../math/attention-map";
import type { Frame, Query, Statistic } from "../types";

const TILE = 256;
const MOST_CELLS = 1 << 22; // weights that one answer computes; of larger parts, a sample of the rows
const DECADES = 6;
export const BYTE_SCALE = DECADES / 254;

export function floats(data: Float32Array, shape: number[], statistic: Statistic = "exact", offset = 0): Frame {
  return { shape, data, statistic, dtype: "f32", scale: 1, offset };
}

/** Weights as bytes of a logarithmic scale: 0 is 0, one step is 5.6 %. */
export function bytes(weights: Float32Array, shape: number[], statistic: Statistic): Frame {
  const data = Uint8Array.from(weights, (weight) => {
    if (!(weight > 0)) return 0;
    return Math.min(Math.max(Math.round((Math.log10(weight) + DECADES) / BYTE_SCALE) + 1, 1), 255);
  });
  return { shape, data, statistic, dtype: "u8", scale: BYTE_SCALE, offset: -DECADES };
}

export function headOf(query: Query): number | "mean" {
  return query.head === "mean" ? "mean" : Number(query.head ?? 0);
}

/** Consecutive indices, as "first:stop"; all of them as "" or not given. */
export function rangeOf(text: string | number | undefined, count: number): Indices {
  const [first, stop] = String(text ?? "").split(":");
  const from = first ? Number(first) : 0;
  const to = stop ? Number(stop) : stop === undefined && first ? from + 1 : count;
  if (!(from >= 0 && to > from && from < count)) throw new Error(`expected first:stop within 0:${count}, got ${text}`);
  return indices(from, Math.min(to, count));
}

export function tile(map: AttentionMap, query: Query): Frame {
  const size = 2 ** Number(query.level ?? 0);
  const pool = String(query.pool ?? "max");
  const part = (index: number, count: number) =>
    indices(index * TILE * size, Math.min((index + 1) * TILE * size, count));
  const rows = part(Number(query.row ?? 0), map.inputs.rows);
  const columns = part(Number(query.column ?? 0), map.inputs.columns);
  if (!rows.count || !columns.count) throw new Error("the map has no such tile");
  const cells = pooled(map, headOf(query), rows, columns, size, size, pool);
  return bytes(cells.data, cells.shape, cells.statistic);
}

interface Cells {
  data: Float32Array;
  shape: [number, number];
  statistic: Statistic;
}

/** Cells of `high` x `wide` weights: their maximum or mean, or one of them. */
function pooled(
  map: AttentionMap,
  head: number | "mean",
  rows: Indices,
  columns: Indices,
  high: number,
  wide: number,
  pool: string,
): Cells {
  const shape: [number, number] = [Math.ceil(rows.count / high), Math.ceil(columns.count / wide)];
  const strided = (part: Indices, size: number) => indices(part.first, part.first + part.count, size);
  if (high === 1 && wide === 1) return { data: map.block(head, rows, columns), shape, statistic: "exact" };
  if (pool === "sample") {
    return { data: map.block(head, strided(rows, high), strided(columns, wide)), shape, statistic: "sampled" };
  }
  const many = rows.count * columns.count > MOST_CELLS;
  const data = new Float32Array(shape[0] * shape[1]);
  for (let i = 0; i < shape[0]; i++) {
    const first = rows.first + i * high;
    const stop = many ? first + 1 : Math.min(first + high, rows.first + rows.count);
    const strip = map.block(head, indices(first, stop), columns);
    const row = poolStrip(strip, stop - first, columns.count, wide, pool === "mean");
    data.set(row, i * shape[1]);
  }
  return { data, shape, statistic: many ? "sampled" : (pool as Statistic) };
}

function poolStrip(strip: Float32Array, rows: number, columns: number, wide: number, mean: boolean): Float32Array {
  const cells = new Float32Array(Math.ceil(columns / wide));
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const cell = Math.floor(column / wide);
      const weight = strip[row * columns + column];
      if (!mean) cells[cell] = Math.max(cells[cell], weight);
      else cells[cell] += weight / (rows * Math.min(wide, columns - cell * wide));
    }
  }
  return cells;
}

/** Exact weights: of one head or the mean (rows, columns), of all heads (-1) with heads first. */
export function weights(map: AttentionMap, query: Query): Frame {
  if (query.kind && query.kind !== "weights") throw new Error(`${query.kind} needs the model: this file is recorded`);
  const rows = rangeOf(query.rows, map.inputs.rows);
  const columns = rangeOf(query.columns, map.inputs.columns);
  const head = headOf({ head: query.head ?? -1 });
  if (head !== -1) return floats(map.block(head, rows, columns), [rows.count, columns.count]);
  const size = rows.count * columns.count;
  const data = new Float32Array(map.inputs.heads * size);
  for (let one = 0; one < map.inputs.heads; one++) data.set(map.block(one, rows, columns), one * size);
  return floats(data, [map.inputs.heads, rows.count, columns.count]);
}

/** All heads of all maps in at most size x size cells, each the maximum of its weights. */
export function overview(maps: AttentionMap[], size: number): Frame {
  const parts = maps.flatMap((map) =>
    Array.from({ length: map.inputs.heads }, (_, head) => {
      const { rows, columns } = map.inputs;
      const [high, wide] = [rows, columns].map((count) => Math.ceil(count / size));
      return pooled(map, head, indices(0, rows), indices(0, columns), high, wide, "max");
    }),
  );
  const height = Math.max(...parts.map(({ shape }) => shape[0]));
  const width = Math.max(...parts.map(({ shape }) => shape[1]));
  const data = new Float32Array(parts.length * height * width);
  parts.forEach((part, index) => {
    for (let row = 0; row < part.shape[0]; row++) {
      const from = part.data.subarray(row * part.shape[1], (row + 1) * part.shape[1]);
      data.set(from, (index * height + row) * width);
    }
  });
  const sampled = parts.some(({ statistic }) => statistic === "sampled");
  return bytes(data, [parts.length, height, width], sampled ? "sampled" : "max");
}
