/** The axes of a map: tokens where there is room, else positions. Rows are queries, columns are keys. */
import { strings } from "../i18n";
import type { MapShape, Viewport } from "../webgl/pyramid";
import { tokenLabel } from "./token";
import type { AxisTokens } from "./tokens-of";

const LONGEST = 12; // letters of a token
const LETTER = 7; // pixels
const TITLE = 28;
const READABLE = 12;
const TICKS = 7;

/** Room for the axes: as much as the longest token of a short map needs, the same for all long maps. */
export interface Gutters {
  row: number;
  column: number;
}

export function guttersOf(tokens: AxisTokens, small: boolean, zoom: number): Gutters {
  const letters = (texts: string[]) =>
    small ? Math.max(...texts.map((token) => Array.from(tokenLabel(token, LONGEST)).length), 1) : 9;
  return {
    row: TITLE + 10 + LETTER * letters(tokens.rows),
    column: zoom >= READABLE ? TITLE + 8 + 0.79 * LETTER * letters(tokens.columns) : 42,
  };
}

interface Props {
  view: Viewport;
  shape: MapShape;
  tokens: AxisTokens;
  cell: { row: number; column: number } | null;
  gutters: Gutters;
}

interface Tick {
  index: number;
  at: number;
  text: string;
}

function ticksOf(
  first: number,
  pixels: number,
  zoom: number,
  count: number,
  tokens: string[],
  chosen?: number,
): Tick[] {
  const last = Math.min(Math.ceil(first + pixels / zoom), count);
  const start = Math.max(Math.floor(first), 0);
  const tick = (index: number, text: string) => ({ index, at: (index + 0.5 - first) * zoom, text });
  if (zoom >= READABLE) {
    return Array.from({ length: last - start }, (_, i) => tick(start + i, tokenLabel(tokens[start + i] ?? "", 12)));
  }
  const step = niceStep(pixels / zoom / Math.min(TICKS, Math.max(pixels / 60, 1)));
  const ticks: Tick[] = [];
  for (let index = Math.ceil(start / step) * step; index < last; index += step) ticks.push(tick(index, String(index)));
  if (chosen === undefined || chosen < start || chosen >= last) return ticks;
  const label = tick(chosen, tokenLabel(tokens[chosen] ?? String(chosen), 12));
  return [...ticks.filter((other) => Math.abs(other.at - label.at) > 16), label];
}

function niceStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return ([1, 2, 5, 10].find((digit) => digit * power >= least) ?? 10) * power;
}

export function RowAxis({ view, shape, tokens, cell, gutters }: Props) {
  const s = strings();
  const ticks = ticksOf(view.row, view.height, view.zoom, shape.rows, tokens.rows, cell?.row);
  return (
    <svg class="axis" width={gutters.row} height={view.height} aria-hidden="true">
      <text class="axis-title query" transform={`translate(12 ${view.height / 2}) rotate(-90)`} text-anchor="middle">
        {s.map_rows}
      </text>
      {ticks
        .filter(({ at }) => at >= 0 && at <= view.height)
        .map(({ index, at, text }) => (
          <text
            key={index}
            class={index === cell?.row ? "tick chosen query" : "tick"}
            x={gutters.row - 7}
            y={at}
            dy="0.34em"
            text-anchor="end"
          >
            {text}
          </text>
        ))}
    </svg>
  );
}

export function ColumnAxis({ view, shape, tokens, cell, gutters }: Props) {
  const s = strings();
  const height = gutters.column;
  const words = view.zoom >= READABLE;
  const ticks = ticksOf(view.column, view.width, view.zoom, shape.columns, tokens.columns, cell?.column);
  return (
    <svg class="axis" width={view.width} height={height} aria-hidden="true">
      <text class="axis-title key" x={0} y={12}>
        {s.map_columns}
      </text>
      {ticks
        .filter(({ at }) => at >= 0 && at <= view.width)
        .map(({ index, at, text }) => (
          <text
            key={index}
            class={index === cell?.column ? "tick chosen key" : "tick"}
            transform={words ? `translate(${at + 3} ${height - 6}) rotate(-52)` : `translate(${at} ${height - 8})`}
            text-anchor={words ? "start" : "middle"}
          >
            {text}
          </text>
        ))}
    </svg>
  );
}
