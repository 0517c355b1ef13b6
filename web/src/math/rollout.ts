/** Attention rollout: which inputs a position draws from, over all layers, with the residual stream counted as half. */

/** Multiplies maps of layers, each of rows x rows: R = (A + I) / 2 R; returns rows x rows. */
export function rollout(maps: Float32Array[], rows: number): Float32Array {
  let flow = new Float32Array(rows * rows);
  for (let i = 0; i < rows; i++) flow[i * rows + i] = 1;
  for (const map of maps) flow = mixed(map, flow, rows);
  return flow;
}

function mixed(map: Float32Array, flow: Float32Array, rows: number): Float32Array<ArrayBuffer> {
  const next = new Float32Array(rows * rows);
  for (let i = 0; i < rows; i++) {
    for (let k = 0; k < rows; k++) {
      const share = 0.5 * map[i * rows + k] + (i === k ? 0.5 : 0);
      if (share === 0) continue;
      for (let j = 0; j < rows; j++) next[i * rows + j] += share * flow[k * rows + j];
    }
  }
  return next;
}
