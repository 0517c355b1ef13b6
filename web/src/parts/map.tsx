/** One attention map, of any length: up to 48 tokens squares with numbers, else tiles; with axes, lanes, cursor and lock. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { fill, strings } from "../i18n";
import type { Store } from "../state/store";
import { theme } from "../theme/theme";
import type { AttentionInfo, TraceInfo, Transport } from "../types";
import type { PoolChoice } from "../webgl/map-model";
import { type MapShape, showCell, type Viewport, wholeMap, zoomAt } from "../webgl/pyramid";
import { ColumnAxis, guttersOf, RowAxis } from "./map-axes";
import { MapCanvas, type MapState } from "./map-canvas";
import { MapControls } from "./map-controls";
import { connectGestures, moveCell } from "./map-gestures";
import { LANES_WIDTH, MapLanes } from "./map-lanes";
import { type Cell, type ExactPart, MapOverlay, type Strong } from "./map-overlay";
import { MapReadout } from "./map-readout";
import { SQUARES, scaleOf } from "./map-scale";
import { MapSquares } from "./map-squares";
import { labelsOf } from "./tokens-of";
import { useRequest } from "./use-request";
import "./map.css";

const NUMBERED = 28; // pixels of a cell that has room for its number
const LEAST_CELL = 12;
const LARGEST_CELL = 72;
const LEAST_HEIGHT = 260;
const ROOM_FOR_LANES = 480;

export interface MapPanelProps {
  trace: TraceInfo;
  transport: Transport;
  state: Store;
  attention: AttentionInfo;
  head: number | "mean";
  lanes?: boolean;
}

export function MapPanel({ trace, transport, state, attention, head, lanes = true }: MapPanelProps) {
  const s = strings();
  const { rows, columns } = attention;
  const shape = useMemo<MapShape>(
    () => ({ rows, columns, causal: attention.kind === "causal" }),
    [rows, columns, attention.kind],
  );
  const small = Math.max(rows, columns) <= SQUARES;
  const name = `${trace.id}/${attention.path}/${head}`;
  const one = head === "mean" ? null : head;
  const root = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLDivElement>(null);
  const view = useSignal<Viewport | null>(null);
  const pointed = useSignal<Cell | null>(null);
  const cursor = useSignal<Cell | null>(null);
  const drawn = useSignal<MapState>({ statistic: "exact", loading: true, failure: "" });
  const tokens = labelsOf(trace, attention);
  const locked = lockedCell(state, shape);
  const cell = locked ?? pointed.value ?? cursor.value;
  const scale = scaleOf(state, theme.value, columns);
  const strong = useRequest(!small && one !== null ? name : null, (signal) =>
    transport.get(path(trace, "strong"), { attention: attention.path, head }, signal),
  );
  const exact = useExact(transport, trace, attention, head, view.value, shape);

  const lock = (to: Cell) => {
    const same = locked?.row === to.row && locked.column === to.column;
    state.update(same ? { row: undefined, column: undefined } : { row: to.row, column: to.column });
  };
  const zoom = (factor: number) => {
    if (!view.value) return;
    const { width, height } = view.value;
    if (factor === 0) view.value = wholeMap(shape, width, height);
    else view.value = zoomAt(view.value, shape, factor, ...middle(view.value, cell));
  };
  const keys = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !view.value) return;
    const stride = Math.max(Math.round(1 / view.value.zoom), 1);
    const next = moveCell(event, cell, shape, stride);
    if (next) {
      cursor.value = next;
      pointed.value = null;
      if (locked) state.update({ row: next.row, column: next.column });
      if (!small) view.value = showCell(view.value, shape, next.row, next.column);
    } else if (event.key === "Enter" || event.key === " ") cell && lock(cell);
    else if (event.key === "Escape" && locked) state.update({ row: undefined, column: undefined });
    else if (!small && "+-0=".includes(event.key)) zoom({ "+": 2, "=": 2, "-": 0.5, "0": 0 }[event.key]!);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const rowGutter = guttersOf(tokens, small, 0).row;
  useSize(root, shape, small, rowGutter, lanes, view);
  const lockRef = useRef(lock);
  lockRef.current = lock;
  const ready = view.value !== null;
  useEffect(() => {
    if (!field.current) return;
    return connectGestures(field.current, {
      shape,
      view: () => view.peek(),
      setView: (next) => (view.value = next),
      point: (next) => (pointed.value = next),
      lock: (next) => lockRef.current(next),
      zoomable: !small,
    });
  }, [shape, small, ready]);

  const layer = attention.path;
  const label = fill(s.map_label, { layer, head, rows, columns });
  const seen = view.value;
  const gutters = guttersOf(tokens, small, seen?.zoom ?? 0);
  const hasLanes = lanes && one !== null && (root.current?.clientWidth ?? 0) >= ROOM_FOR_LANES;
  return (
    <div class="map-panel" ref={root} data-map={small ? "squares" : "tiles"}>
      <MapControls
        trace={trace}
        state={state}
        small={small}
        columns={columns}
        statistic={small ? "exact" : drawn.value.statistic}
        loading={!small && drawn.value.loading}
        onZoom={zoom}
      />
      {seen && (
        <div
          class="map"
          role="application"
          tabIndex={0}
          aria-label={label}
          onKeyDown={keys}
          style={{ gridTemplateColumns: `${gutters.row}px ${seen.width}px auto` }}
        >
          <span style={{ height: `${gutters.column}px` }} />
          <ColumnAxis gutters={gutters} view={seen} shape={shape} tokens={tokens} cell={cell} />
          <span />
          <RowAxis gutters={gutters} view={seen} shape={shape} tokens={tokens} cell={cell} />
          <div
            class="map-field"
            ref={field}
            style={{ width: `${seen.width}px`, height: `${seen.height}px` }}
            data-zoomed={!small && seen.zoom > wholeMap(shape, seen.width, seen.height).zoom * 1.01}
          >
            {small && exact && <MapSquares view={seen} exact={exact} scale={scale} />}
            {!small && (
              <MapCanvas
                key={name}
                trace={trace}
                transport={transport}
                attention={attention}
                head={head}
                shape={shape}
                view={seen}
                scale={scale}
                pool={(state.get("pool") ?? "auto") as PoolChoice}
                onState={(next) => {
                  const same = drawn.peek();
                  if (
                    next.statistic !== same.statistic ||
                    next.loading !== same.loading ||
                    next.failure !== same.failure
                  )
                    drawn.value = next;
                }}
              />
            )}
            <MapOverlay
              view={seen}
              shape={shape}
              cell={cell}
              locked={locked !== null}
              keys={tokens.columns}
              strong={strong.value as Strong | null}
              exact={seen.zoom >= NUMBERED ? exact : null}
              scale={scale}
            />
          </div>
          {hasLanes ? (
            <MapLanes trace={trace} transport={transport} attention={attention} head={one} view={seen} />
          ) : (
            <span />
          )}
        </div>
      )}
      {drawn.value.failure && <p class="failure">{fill(s.map_failed, { reason: drawn.value.failure })}</p>}
      <MapReadout
        trace={trace}
        transport={transport}
        attention={attention}
        head={head}
        tokens={tokens}
        cell={cell}
        locked={locked !== null}
        spoken={pointed.value === null}
      />
    </div>
  );
}

function path(trace: TraceInfo, name: string): string {
  return `traces/${encodeURIComponent(trace.id)}/${name}`;
}

function lockedCell(state: Store, { rows, columns }: MapShape): Cell | null {
  const row = state.number("row", -1);
  const column = state.number("column", -1);
  const inside = row >= 0 && row < rows && column >= 0 && column < columns;
  return inside && Number.isInteger(row) && Number.isInteger(column) ? { row, column } : null;
}

/** Where a zoom by key keeps the map: at the cell, or in the middle. */
function middle(view: Viewport, cell: Cell | null): [number, number] {
  if (!cell) return [view.width / 2, view.height / 2];
  return [(cell.column + 0.5 - view.column) * view.zoom, (cell.row + 0.5 - view.row) * view.zoom];
}

/** Exact weights of what is seen, where cells are large enough for numbers. */
function useExact(
  transport: Transport,
  trace: TraceInfo,
  attention: AttentionInfo,
  head: number | "mean",
  view: Viewport | null,
  shape: MapShape,
): ExactPart | null {
  const whole = Math.max(shape.rows, shape.columns) <= SQUARES;
  const part = whole ? { row: 0, column: 0, ...shape } : view && view.zoom >= NUMBERED ? seenPart(view, shape) : null;
  const rows = part && `${part.row}:${part.row + part.rows}`;
  const columns = part && `${part.column}:${part.column + part.columns}`;
  const { value } = useRequest(
    part && `${trace.id} ${attention.path} ${head} ${rows} ${columns}`,
    async (signal) => {
      const query = { attention: attention.path, head, rows: rows!, columns: columns! };
      const frame = await transport.frame(path(trace, "weights"), query, signal);
      return { ...part!, weights: frame.data as Float32Array };
    },
    whole ? 0 : 80,
  );
  return value;
}

function seenPart(view: Viewport, shape: MapShape) {
  const row = Math.floor(view.row);
  const column = Math.floor(view.column);
  return {
    row,
    column,
    rows: Math.min(Math.ceil(view.row + view.height / view.zoom), shape.rows) - row,
    columns: Math.min(Math.ceil(view.column + view.width / view.zoom), shape.columns) - column,
  };
}

/** Keeps the map as large as its place allows: the whole map is seen at first. */
function useSize(
  root: { current: HTMLDivElement | null },
  shape: MapShape,
  small: boolean,
  gutter: number,
  lanes: boolean,
  view: { value: Viewport | null },
): void {
  useEffect(() => {
    const element = root.current;
    if (!element) return;
    const measure = () => {
      const page = element.closest<HTMLElement>(".softlook");
      const highest = Math.max((page?.clientHeight ?? 700) - 330, LEAST_HEIGHT);
      const beside = lanes && element.clientWidth >= ROOM_FOR_LANES ? LANES_WIDTH + 14 : 8;
      const widest = element.clientWidth - gutter - beside;
      view.value = fitted(shape, small, Math.max(widest, 120), highest, view.value);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [shape, small, gutter, lanes]);
}

function fitted(shape: MapShape, small: boolean, widest: number, highest: number, before: Viewport | null): Viewport {
  if (small) {
    const room = Math.min(widest / shape.columns, Math.max(highest / shape.rows, NUMBERED));
    const zoom = Math.min(Math.max(Math.floor(room), LEAST_CELL), LARGEST_CELL);
    return { row: 0, column: 0, zoom, width: zoom * shape.columns, height: zoom * shape.rows };
  }
  const least = Math.min(widest / shape.columns, highest / shape.rows);
  const width = Math.round(Math.max(least * shape.columns, Math.min(widest, 120)));
  const height = Math.round(Math.max(least * shape.rows, 120));
  const whole = wholeMap(shape, width, height);
  const zoomed = before && before.zoom > whole.zoom && before.width !== width;
  if (zoomed) return { ...before, width, height };
  return before && before.width === width && before.height === height ? before : whole;
}
