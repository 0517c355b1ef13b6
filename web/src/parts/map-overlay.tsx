/** What lies over a map: strong columns and diagonals, printed weights, the cell under the cursor, the lock. */
import { fill, formatPercent, strings } from "../i18n";
import { textOn, weightColor } from "../theme/colors";
import { theme } from "../theme/theme";
import type { MapShape, Viewport } from "../webgl/pyramid";
import type { ColorScale } from "../webgl/renderer";
import { shareOf } from "./map-scale";
import { tokenLabel } from "./token";

export interface Cell {
  row: number;
  column: number;
}

/** The answer to GET strong: columns by key, diagonals by how many positions the key lies before the query. */
export interface Strong {
  columns: [number, number][];
  diagonals: [number, number][];
}

/** Exact weights of a part of the map. */
export interface ExactPart {
  row: number;
  column: number;
  rows: number;
  columns: number;
  weights: Float32Array;
}

interface Props {
  view: Viewport;
  shape: MapShape;
  cell: Cell | null;
  locked: boolean;
  keys: string[];
  strong: Strong | null;
  exact: ExactPart | null;
  scale: ColorScale;
}

export function MapOverlay({ view, shape, cell, locked, keys, strong, exact, scale }: Props) {
  return (
    <svg class="map-overlay" width={view.width} height={view.height} aria-hidden="true">
      {strong && view.zoom < 6 && <StrongLines view={view} shape={shape} strong={strong} keys={keys} />}
      {exact && <Numbers view={view} exact={exact} scale={scale} />}
      {cell && locked && <Dimmed view={view} cell={cell} />}
      {cell && <Cursor view={view} cell={cell} locked={locked} />}
    </svg>
  );
}

/** One column in many is one cell in a map of thousands: lines keep it visible at any zoom. */
function StrongLines({ view, shape, strong, keys }: Pick<Props, "view" | "shape" | "keys"> & { strong: Strong }) {
  const s = strings();
  const { zoom, width, height } = view;
  const x = (column: number) => (column - view.column) * zoom;
  const y = (row: number) => (row - view.row) * zoom;
  return (
    <g class="strong">
      {strong.columns
        .filter(([column, mass]) => mass > 0.004 && x(column + 1) >= 0 && x(column) <= width)
        .map(([column, mass]) => (
          <path
            key={`c${column}`}
            d={`M${x(column + 0.5) - 3.5} -8h7l-3.5 7z`}
            opacity={0.35 + 0.65 * Math.min(mass * 3, 1)}
          >
            <title>
              {fill(s.column_mass, {
                index: column,
                token: tokenLabel(keys[column] ?? ""),
                mass: formatPercent(mass),
              })}
            </title>
          </path>
        ))}
      {strong.columns
        .filter(([column, mass]) => mass > 0.02 && x(column + 1) >= 0 && x(column) <= width && zoom < 1)
        .map(([column, mass]) => {
          const top = shape.causal ? Math.max(y(column), 0) : 0;
          const line = { x1: x(column + 0.5), x2: x(column + 0.5), y1: top, y2: height };
          return <line key={`l${column}`} {...line} opacity={0.25 + 0.75 * Math.min(mass * 3, 1)} />;
        })}
      {strong.diagonals
        .filter(([, mean]) => mean > 0.02 && zoom < 1)
        .map(([offset, mean]) => (
          <line
            key={`d${offset}`}
            x1={x(-offset + 0.5)}
            y1={y(0.5)}
            x2={x(shape.rows - offset + 0.5)}
            y2={y(shape.rows + 0.5)}
            opacity={0.25 + 0.75 * Math.min(mean * 2, 1)}
          >
            <title>{fill(s.diagonal_mean, { offset, weight: formatPercent(mean) })}</title>
          </line>
        ))}
    </g>
  );
}

function Numbers({ view, exact, scale }: Pick<Props, "view" | "scale"> & { exact: ExactPart }) {
  const { zoom } = view;
  const size = Math.min(zoom * 0.36, 13);
  const cells = Array.from(exact.weights, (weight, index) => ({
    weight,
    row: exact.row + Math.floor(index / exact.columns),
    column: exact.column + (index % exact.columns),
  }));
  return (
    <g class="cell-numbers" font-size={size} text-anchor="middle">
      {cells
        .filter(({ weight }) => weight >= 0.005)
        .map(({ weight, row, column }) => (
          <text
            key={`${row}/${column}`}
            x={(column + 0.5 - view.column) * zoom}
            y={(row + 0.5 - view.row) * zoom}
            dy="0.35em"
            style={{ fill: textOn(weightColor(shareOf(weight, scale), theme.value)) }}
          >
            {shortWeight(weight)}
          </text>
        ))}
    </g>
  );
}

/** Two digits after the point, as the library's figures: ".41", "1". */
function shortWeight(weight: number): string {
  return weight >= 0.995 ? "1" : weight.toFixed(2).slice(1);
}

function box(view: Viewport, cell: Cell) {
  const size = Math.max(view.zoom, 1);
  return { x: (cell.column - view.column) * view.zoom, y: (cell.row - view.row) * view.zoom, size };
}

/** The lock dims what is neither in its row nor in its column. */
function Dimmed({ view, cell }: { view: Viewport; cell: Cell }) {
  const { x, y, size } = box(view, cell);
  const { width, height } = view;
  const band = Math.max(size, 3);
  const parts = [
    [0, 0, x, y],
    [x + band, 0, width - x - band, y],
    [0, y + band, x, height - y - band],
    [x + band, y + band, width - x - band, height - y - band],
  ];
  return (
    <g class="dimmed">
      {parts.map(([left, top, wide, high], index) => (
        <rect key={index} x={left} y={top} width={Math.max(wide, 0)} height={Math.max(high, 0)} />
      ))}
    </g>
  );
}

function Cursor({ view, cell, locked }: { view: Viewport; cell: Cell; locked: boolean }) {
  const { x, y, size } = box(view, cell);
  const grown = Math.max(size, 7);
  const shift = (grown - size) / 2;
  return (
    <g class={locked ? "cursor locked" : "cursor"}>
      {!locked && size < 24 && (
        <path class="cross" d={`M0 ${y + size / 2}H${view.width}M${x + size / 2} 0V${view.height}`} />
      )}
      <rect class="halo" x={x - shift} y={y - shift} width={grown} height={grown} rx={2} />
      <rect x={x - shift} y={y - shift} width={grown} height={grown} rx={2} />
    </g>
  );
}
