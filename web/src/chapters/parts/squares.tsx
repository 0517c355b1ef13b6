/** Numbers as squares: hue is the role, strength the size; negative numbers are hollow. */
import type { ComponentChildren } from "preact";
import { formatNumber } from "../../i18n";
import { Block } from "./block";
import { largest, type Matrix, type Vector } from "./math";
import { Words } from "./words";

export type Tone = "query" | "key" | "value" | "output" | "input" | "weight";

interface Look {
  tone: Tone;
  /** The absolute value of the strongest color. */
  limit: number;
  digits?: number;
}

function look({ tone, limit }: Look, value: number) {
  const strength = limit > 0 && Number.isFinite(value) ? Math.min(1, Math.abs(value) / limit) : 0;
  return { "--c": `var(--${tone})`, "--p": `${Math.round(strength * 100)}%` };
}

const kind = (value: number): string =>
  value === Number.NEGATIVE_INFINITY ? "square hatched" : value < 0 ? "square negative" : "square";

/** One number. */
export function Square({ value, marked = false, ...rest }: Look & { value: number; marked?: boolean }) {
  return (
    <span class={`${kind(value)} ${marked ? "marked" : ""}`} style={look(rest, value)} data-value={value}>
      {formatNumber(value, rest.digits ?? 1)}
    </span>
  );
}

interface EditProps extends Look {
  value: number;
  label: string;
  step?: number;
  onChange: (value: number) => void;
}

/** One number that can be typed, or changed with the arrow keys. */
export function EditSquare({ value, label, step = 0.1, onChange, ...rest }: EditProps) {
  return (
    <input
      class={`${kind(value)} edit`}
      style={look(rest, value)}
      type="number"
      step={step}
      min={-9}
      max={9}
      value={Math.round(value * 1000) / 1000}
      aria-label={label}
      data-value={value}
      onKeyDown={(event) => event.stopPropagation()}
      onInput={(event) => {
        const next = event.currentTarget.valueAsNumber;
        if (Number.isFinite(next)) onChange(Math.min(9, Math.max(-9, next)));
      }}
    />
  );
}

export interface Cursor {
  row: number;
  column: number;
}

interface MatrixProps {
  /** The letter of the matrix; it names the block. */
  letter: string;
  name?: ComponentChildren;
  values: Matrix;
  tone: Tone;
  rows?: string[];
  columns?: string[];
  limit?: number;
  digits?: number;
  /** Cells without printed numbers. */
  small?: boolean;
  edit?: (row: number, column: number, value: number) => void;
  cursor?: Cursor | null;
  onCursor?: (cursor: Cursor) => void;
  /** Rows, columns or cells that are emphasized; the others are dimmed. */
  bright?: (row: number, column: number) => boolean;
  mark?: string;
  /** Cells that a mask hides. */
  hidden?: (row: number, column: number) => boolean;
  /** A gap after this many columns, as wide as the CSS variable --cut. */
  cut?: number;
}

/** A matrix with its letter and size; cells can be edited, or chosen with the pointer and the arrow keys. */
export function MatrixBlock(props: MatrixProps) {
  const { letter, values, tone, rows, columns, name, mark, cut = 0 } = props;
  const classOf = (i: number, j: number) =>
    `${props.bright && !props.bright(i, j) ? "dim" : ""} ${cut && j && j % cut === 0 ? "cut" : ""} ${props.hidden?.(i, j) ? "hidden" : ""}`;
  const limit = props.limit ?? largest(values);
  return (
    <Block name={letter.replace("^", "")} class={`matrix ${props.small ? "small" : ""} ${mark ?? ""}`}>
      <table data-name={letter.replace("^", "")}>
        <caption class={`ink-${tone}`}>
          <b>
            <Words text={letter} />
          </b>{" "}
          {name}{" "}
          <small>
            {values.length} × {values[0].length}
          </small>
        </caption>
        {columns && (
          <thead>
            <tr>
              {rows && <td />}
              {columns.map((label, j) => (
                <th key={j} scope="col">
                  {label}
                </th>
              ))}
            </tr>
          </thead>
        )}
        <tbody>
          {values.map((numbers, i) => (
            <tr key={i}>
              {rows && <th scope="row">{rows[i]}</th>}
              {numbers.map((value, j) => (
                <td key={j} class={classOf(i, j)}>
                  <Cell {...props} limit={limit} i={i} j={j} value={value} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Block>
  );
}

type CellProps = MatrixProps & { limit: number; i: number; j: number; value: number };

function Cell({ values, tone, limit, digits, edit, cursor, onCursor, rows, columns, letter, i, j, value }: CellProps) {
  const label = `${letter} ${rows?.[i] ?? i + 1} ${columns?.[j] ?? j + 1}`;
  if (edit) return <EditSquare {...{ tone, limit, value, label }} onChange={(next) => edit(i, j, next)} />;
  if (!onCursor) return <Square {...{ tone, limit, digits, value }} />;
  const here = cursor?.row === i && cursor?.column === j;
  const reachable = here || (!cursor && i === 0 && j === 0);
  const move = (event: KeyboardEvent) => {
    const [down, right] = ARROWS[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    event.stopPropagation();
    const row = Math.min(values.length - 1, Math.max(0, i + down));
    const column = Math.min(values[0].length - 1, Math.max(0, j + right));
    onCursor({ row, column });
    const table = (event.currentTarget as HTMLElement).closest("table");
    table?.querySelector<HTMLElement>(`[data-cell="${row},${column}"]`)?.focus();
  };
  return (
    <button
      type="button"
      class={kind(value)}
      style={look({ tone, limit }, value)}
      tabIndex={reachable ? 0 : -1}
      aria-label={`${label}: ${formatNumber(value, digits ?? 1)}`}
      aria-pressed={here}
      data-value={value}
      data-cell={`${i},${j}`}
      onKeyDown={move}
      onPointerEnter={() => onCursor({ row: i, column: j })}
      onFocus={() => onCursor({ row: i, column: j })}
    >
      {formatNumber(value, digits ?? 1)}
    </button>
  );
}

const ARROWS: Record<string, [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

interface RowProps {
  letter: string;
  values: Vector;
  tone: Tone;
  limit?: number;
  digits?: number;
  edit?: (index: number, value: number) => void;
  /** The number that is emphasized. */
  mark?: number;
}

/** A vector: its letter and a row of squares. */
export function VectorBlock({ letter, values, tone, limit, digits, edit, mark }: RowProps) {
  const bound = limit ?? largest([values]);
  return (
    <Block name={letter} class="vector">
      <b class={`letter ink-${tone}`}>
        <Words text={letter} />
      </b>
      <span class="row" data-name={letter}>
        {values.map((value, i) =>
          edit ? (
            <EditSquare
              key={i}
              {...{ tone, value }}
              limit={bound}
              label={`${letter}${i + 1}`}
              onChange={(v) => edit(i, v)}
            />
          ) : (
            <Square key={i} {...{ tone, value, digits }} limit={bound} marked={i === mark} />
          ),
        )}
      </span>
    </Block>
  );
}
