/** Lanes beside a map: entropy and largest weight of each row, aligned with its rows. */
import { useEffect, useRef } from "preact/hooks";
import { strings } from "../i18n";
import { color } from "../theme/colors";
import { theme } from "../theme/theme";
import type { AttentionInfo, Frame, TraceInfo, Transport } from "../types";
import type { Viewport } from "../webgl/pyramid";
import { useRequest } from "./use-request";

export const LANES_WIDTH = 98;
const LANE = 46;
const LISTED = 2048;

interface LaneValues {
  entropy: ArrayLike<number>;
  max: ArrayLike<number>;
}

/** Lanes of maps of up to 2048 tokens come as JSON, longer ones as frames. */
export async function loadLanes(
  transport: Transport,
  trace: TraceInfo,
  attention: AttentionInfo,
  head: number,
  signal?: AbortSignal,
): Promise<LaneValues> {
  const path = `traces/${encodeURIComponent(trace.id)}/lanes`;
  const query = { attention: attention.path, head };
  if (Math.max(attention.rows, attention.columns) <= LISTED) {
    return (await transport.get(path, query, signal)) as LaneValues;
  }
  const [entropy, max] = await Promise.all(
    ["entropy", "max"].map((name) => transport.frame(path, { ...query, name }, signal)),
  );
  return { entropy: (entropy as Frame).data, max: (max as Frame).data };
}

interface Props {
  trace: TraceInfo;
  transport: Transport;
  attention: AttentionInfo;
  head: number;
  view: Viewport;
}

export function MapLanes({ trace, transport, attention, head, view }: Props) {
  const s = strings();
  const canvas = useRef<HTMLCanvasElement>(null);
  const { value: lanes } = useRequest(`${trace.id} ${attention.path} ${head}`, (signal) =>
    loadLanes(transport, trace, attention, head, signal),
  );
  const scheme = theme.value;
  useEffect(() => {
    if (canvas.current && lanes) draw(canvas.current, lanes, view, attention);
  }, [lanes, view, scheme]);
  return (
    <div class="map-lanes" style={{ width: `${LANES_WIDTH}px` }}>
      <span class="lane-name">{s.map_entropy}</span>
      <span class="lane-name">{s.map_max}</span>
      <canvas ref={canvas} role="img" aria-label={`${s.map_entropy}, ${s.map_max}`} />
    </div>
  );
}

function draw(canvas: HTMLCanvasElement, lanes: LaneValues, view: Viewport, attention: AttentionInfo): void {
  const ratio = devicePixelRatio;
  canvas.width = LANES_WIDTH * ratio;
  canvas.height = view.height * ratio;
  canvas.style.width = `${LANES_WIDTH}px`;
  canvas.style.height = `${view.height}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(ratio, ratio);
  const step = lanes.entropy.length / attention.rows; // a long lane has evenly spaced rows
  const scales: [ArrayLike<number>, number, "output" | "weight"][] = [
    [lanes.entropy, Math.log(Math.max(attention.columns, 2)), "output"],
    [lanes.max, 1, "weight"],
  ];
  scales.forEach(([values, full, role], lane) => {
    const left = lane * (LANE + 6);
    context.fillStyle = color("surface");
    context.fillRect(left, 0, LANE, view.height);
    context.fillStyle = color(role);
    const high = Math.max(view.zoom, 1);
    const gap = view.zoom > 6 ? 1 : 0;
    for (let y = 0; y < view.height; y += high) {
      const row = view.row + y / view.zoom;
      const value = largest(values, Math.floor(row * step), Math.ceil((row + 1 / Math.min(view.zoom, 1)) * step));
      context.fillRect(left, y, (LANE * Math.min(value, full)) / full, high - gap);
    }
  });
}

function largest(values: ArrayLike<number>, from: number, to: number): number {
  let found = 0;
  for (let index = from; index < Math.max(to, from + 1) && index < values.length; index++) {
    if (values[index] > found) found = values[index];
  }
  return found;
}
