/** Reads the binary answers of the server: a header of 32 bytes, then the numbers, little endian. */
import type { Frame, Statistic } from "../types";

const HEADER = 32;
const MAGIC = 0x52464c53; // "SLFR" as a little-endian integer
const DTYPES = ["f32", "u8", "i32"] as const;
const STATISTICS: Statistic[] = ["exact", "max", "mean", "sampled"];

export function readFrame(buffer: ArrayBuffer): Frame {
  if (buffer.byteLength < HEADER) throw new Error(`expected a frame, got ${buffer.byteLength} bytes`);
  const view = new DataView(buffer);
  if (view.getUint32(0, true) !== MAGIC || view.getUint8(4) !== 1) throw new Error("expected a frame of version 1");
  const dtype = DTYPES[view.getUint8(5)];
  const statistic = STATISTICS[view.getUint8(6)];
  const shape = Array.from({ length: view.getUint8(7) }, (_, i) => view.getUint32(8 + 4 * i, true));
  const count = shape.reduce((product, size) => product * size, 1);
  const bytes = dtype === "u8" ? 1 : 4;
  if (buffer.byteLength < HEADER + count * bytes) {
    throw new Error(`expected ${count} numbers of shape ${shape}, got ${buffer.byteLength - HEADER} bytes`);
  }
  return {
    shape,
    statistic,
    dtype,
    scale: view.getFloat32(24, true),
    offset: view.getFloat32(28, true),
    data: numbers(buffer, dtype, count),
  };
}

function numbers(buffer: ArrayBuffer, dtype: Frame["dtype"], count: number): Frame["data"] {
  if (dtype === "u8") return new Uint8Array(buffer, HEADER, count);
  return dtype === "i32" ? new Int32Array(buffer, HEADER, count) : new Float32Array(buffer, HEADER, count);
}

/** The weight of a byte: 0 is exactly 0 or masked; from 1, steps of a logarithm. */
export function weightOfByte(frame: Frame, byte: number): number {
  return byte === 0 ? 0 : 10 ** (frame.offset + frame.scale * (byte - 1));
}

/** The numbers of a frame, with bytes turned into weights. */
export function weightsOf(frame: Frame): Float32Array {
  if (frame.dtype !== "u8") return Float32Array.from(frame.data);
  const table = Float32Array.from({ length: 256 }, (_, byte) => weightOfByte(frame, byte));
  return Float32Array.from(frame.data, (byte) => table[byte]);
}
