/** Reads the recording of a single file: arrays are base64, and a map is a function of Q and K. */
import { AttentionMap } from "../math/attention-map";
import type { TraceInfo } from "../types";

/** An array: base64 of its numbers, little endian, row-major. */
export interface RecordedArray {
  dtype: "f16" | "f32" | "u8";
  shape: number[];
  data: string;
}

export interface RecordedAttention {
  path: string;
  query: RecordedArray; // heads, rows, dim
  key: RecordedArray; // groups, columns, dim
  lse: RecordedArray; // heads, rows
  value_norm: RecordedArray; // groups, columns
  scale: number;
  softcap?: number | null;
  mask: { causal: boolean; window?: number | null; dense?: RecordedArray | null };
  bias?: RecordedArray | null;
}

export interface Recording {
  version: string;
  info: TraceInfo;
  attentions: RecordedAttention[];
  /** Per position: [[token, probability or logit, probability?], ...]. */
  next?: unknown[];
  logit_lens?: unknown[];
  head_table?: unknown;
  /** The lines that load this trace in Python. */
  python?: string;
}

export function readArray({ dtype, shape, data }: RecordedArray): Float32Array {
  const bytes = bytesOf(data);
  const count = shape.reduce((product, size) => product * size, 1);
  const size = { u8: 1, f16: 2, f32: 4 }[dtype];
  if (bytes.length !== count * size) throw new Error(`expected ${count} numbers, got ${bytes.length / size}`);
  if (dtype === "f32") return new Float32Array(bytes.buffer);
  if (dtype === "u8") return Float32Array.from(bytes);
  return Float32Array.from(new Uint16Array(bytes.buffer), halfToFloat);
}

export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** A number of 16 bits: 1 of sign, 5 of exponent, 10 of fraction. */
export function halfToFloat(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 31;
  const fraction = half & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function readMap(recorded: RecordedAttention): AttentionMap {
  const [heads, rows, dim] = recorded.query.shape;
  const [groups, columns] = recorded.key.shape;
  const { mask, bias, softcap } = recorded;
  return new AttentionMap({
    heads,
    groups,
    rows,
    columns,
    dim,
    query: readArray(recorded.query),
    key: readArray(recorded.key),
    lse: readArray(recorded.lse),
    valueNorm: readArray(recorded.value_norm),
    scale: recorded.scale,
    softcap: softcap ?? undefined,
    causal: mask.causal,
    window: mask.window ?? undefined,
    dense: mask.dense ? bytesOf(mask.dense.data) : undefined,
    bias: bias ? readArray(bias) : undefined,
  });
}
