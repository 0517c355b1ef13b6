/** A grid of numbers with a cell cursor: squares with printed numbers while they fit, an image beyond. */
import { useMemo } from "preact/hooks";
import { useAnnounce } from "../../app/session";
import { strings } from "../../i18n";
import { tokenLabel } from "../../parts/token";
import { channels, textOn } from "../../theme/colors";

export interface GridProps {
  label: string;
  rows: string[];
  columns: string[];
  /** Row-major, rows x columns. */
  data: ArrayLike<number>;
  color: (value: number) => string;
  format: (value: number) => string;
  /** The sentence about a cell. */
  say: (row: number, column: number, value: number) => string;
  cursor?: [number, number];
  onCursor?: (row: number, column: number) => void;
}

const SQUARES = 1600;
const LABEL = 86;
const HEADER = 70;
const LABEL_LETTERS = 12;
const SLANT = 46; // what the last slanted label needs

/** Side of a square from which on a number fits in it. */
const NUMBERED = 26;

/** Side of a square. */
export function cellSize(rows: number, columns: number): number {
  const most = Math.max(rows, columns);
  if (most <= 10) return 36;
  if (most <= 20) return 26;
  if (most <= 48) return 15;
  return Math.max(1, Math.floor(720 / most));
}

export function Grid(props: GridProps) {
  const { label, rows, columns, data, say, cursor, onCursor } = props;
  const announce = useAnnounce();
  const size = cellSize(rows.length, columns.length);
  const [row, column] = cursor ?? [-1, -1];
  const go = (r: number, c: number) => {
    const next: [number, number] = [bounded(r, rows.length), bounded(c, columns.length)];
    onCursor?.(...next);
    announce(say(...next, data[next[0] * columns.length + next[1]]));
  };
  const inside = row >= 0 && row < rows.length && column >= 0 && column < columns.length;
  const text = inside ? say(row, column, data[row * columns.length + column]) : "";
  return (
    <figure class="v-grid">
      <div
        role="application"
        aria-label={text ? `${label}. ${text}` : label}
        tabIndex={0}
        class="v-grid-stage"
        onKeyDown={(event) => {
          const [down, right] = MOVES[event.key] ?? [0, 0];
          if (!down && !right) return;
          event.preventDefault();
          event.stopPropagation();
          go(Math.max(row, 0) + down, Math.max(column, 0) + right);
        }}
      >
        <svg
          width={LABEL + columns.length * size + SLANT}
          height={HEADER + rows.length * size + 2}
          onClick={(event) => {
            const box = event.currentTarget.getBoundingClientRect();
            const at = [event.clientY - box.top - HEADER, event.clientX - box.left - LABEL];
            const [r, c] = at.map((pixels) => Math.floor(pixels / size));
            if (r >= 0 && c >= 0 && r < rows.length && c < columns.length) go(r, c);
          }}
        >
          <title>{label}</title>
          <Labels rows={rows} columns={columns} size={size} row={row} column={column} />
          <g transform={`translate(${LABEL},${HEADER})`}>
            <Cells {...props} size={size} />
            {inside && (
              <rect class="v-cursor" x={column * size} y={row * size} width={size} height={size} fill="none" />
            )}
          </g>
        </svg>
      </div>
      <figcaption>{text || strings()["v.grid.hint"]}</figcaption>
    </figure>
  );
}

const MOVES: Record<string, [number, number]> = {
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1],
};

const bounded = (index: number, count: number): number => Math.max(0, Math.min(count - 1, index));

type Sized = GridProps & { size: number };

function Cells(props: Sized) {
  const { rows, columns } = props;
  return rows.length * columns.length <= SQUARES ? <Squares {...props} /> : <Picture {...props} />;
}

function Squares({ rows, columns, data, color, format, size }: Sized) {
  return (
    <>
      {rows.flatMap((_, r) =>
        columns.map((_, c) => {
          const value = data[r * columns.length + c];
          const fill = color(value);
          return (
            <g key={`${r},${c}`} transform={`translate(${c * size},${r * size})`}>
              <rect class="v-cell" width={size - 1} height={size - 1} fill={fill} rx={size > 10 ? 2 : 0} />
              {size >= NUMBERED && (
                <text
                  x={(size - 1) / 2}
                  y={size / 2 + 3.5}
                  text-anchor="middle"
                  font-size={size >= 34 ? 11 : 10}
                  style={{ fill: textOn(fill) }}
                >
                  {format(value)}
                </text>
              )}
            </g>
          );
        }),
      )}
    </>
  );
}

function Picture({ rows, columns, data, color, size }: Sized) {
  const shade = color(0);
  const href = useMemo(() => picture(data, rows.length, columns.length, color), [data, shade]);
  return <image href={href} width={columns.length * size} height={rows.length * size} class="v-pixels" />;
}

function picture(data: ArrayLike<number>, rows: number, columns: number, color: (value: number) => string): string {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  if (!context) return "";
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    image.data.set([...channels(color(data[i])).map((part) => Math.round(255 * part)), 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

interface LabelsProps {
  rows: string[];
  columns: string[];
  size: number;
  row: number;
  column: number;
}

function Labels({ rows, columns, size, row, column }: LabelsProps) {
  const every = Math.max(1, Math.ceil(11 / size));
  return (
    <g class="v-labels">
      {rows.map((name, index) =>
        index % every ? null : (
          <text
            key={`r${index}`}
            class={index === row ? "on" : ""}
            x={LABEL - 6}
            y={HEADER + (index + 0.5) * size + 4}
            text-anchor="end"
          >
            {short(name)}
          </text>
        ),
      )}
      {columns.map((name, index) =>
        index % every ? null : (
          <text
            key={`c${index}`}
            class={index === column ? "on" : ""}
            transform={`translate(${LABEL + (index + 0.5) * size + 3},${HEADER - 6}) rotate(-50)`}
          >
            {short(name)}
          </text>
        ),
      )}
    </g>
  );
}

function short(name: string): string {
  return tokenLabel(name, LABEL_LETTERS);
}
