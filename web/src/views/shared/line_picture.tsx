/** Queries at the left, keys at the right, and a line for each weight: at most 32 tokens. */
import { useRef } from "preact/hooks";
import { formatNumber, formatPercent, strings } from "../../i18n";
import { TokenText } from "../../parts/token";
import type { TraceInfo, Transport } from "../../types";
import { type Bar, bars } from "../geometry/lanes";
import { layoutOf, lines } from "../geometry/lines";
import type { Kind } from "./kinds";
import type { Lanes } from "./lanes";
import { Notice, Ready } from "./notice";
import { queriesOf, type Selection, tokensOf } from "./selection";
import { useWeights } from "./weights";

interface LinePictureProps {
  trace: TraceInfo;
  transport: Transport;
  selection: Selection;
  kind: Kind;
  lanes?: Lanes;
  locked: number;
  pointed: number;
  onLock: (row: number) => void;
  onPoint: (row: number) => void;
}

const WIDTH = 260;
const LAYOUT = layoutOf(WIDTH);

export function LinePicture(props: LinePictureProps) {
  const { trace, transport, selection, kind, lanes, locked, pointed, onLock, onPoint } = props;
  const s = strings();
  const rows = queriesOf(trace, selection.attention);
  const { columns } = tokensOf(trace, selection.attention);
  const single = kind === "contribution"; // belongs to the prediction of one row
  const answer = useWeights(transport, trace, selection, single ? { kind, row: locked } : { kind });
  const focus = locked >= 0 ? locked : pointed;
  const data = answer.value?.data;
  const start = single ? 0 : focus * columns.length;
  const weights = data && focus >= 0 ? Array.from(data.slice(start, start + columns.length)) : null;
  const lines =
    single && locked < 0 ? null : (
      <Ready answer={answer}>
        {(frame) => <Lines data={frame.data} {...{ rows, columns, focus, kind }} first={single ? locked : 0} />}
      </Ready>
    );
  return (
    <div>
      {single && locked < 0 && <Notice>{s["v.contribution.choose"]}</Notice>}
      <div class="v-lines" onMouseLeave={() => onPoint(-1)}>
        <p class="v-axis">{s["v.looks_from"]}</p>
        <p />
        <p class="v-axis">{s["v.looks_at"]}</p>
        <Queries {...{ rows, locked, focus, onLock, onPoint }} bars={lanes && bars(lanes.entropy, rows.length)} />
        <div>{lines}</div>
        <Keys {...{ columns, weights, kind }} bars={lanes && bars(lanes.received_mass, columns.length)} />
      </div>
    </div>
  );
}

interface LinesProps {
  data: ArrayLike<number>;
  rows: string[];
  columns: string[];
  focus: number;
  kind: Kind;
  /** The first row that `data` has. */
  first: number;
}

function Lines({ data, rows, columns, focus, kind, first }: LinesProps) {
  const sizes = Array.from(data, Math.abs);
  const most = kind === "weights" ? 1 : Math.max(...sizes, 1e-9);
  const drawn = lines(
    sizes.map((size) => size / most),
    columns.length,
    LAYOUT,
    first,
  );
  const height = Math.max(rows.length, columns.length) * LAYOUT.rowHeight;
  const looks = (row: number, value: number) =>
    `v-line ${focus < 0 || focus === row ? "" : "dim"} ${value < 0 ? "negative" : ""}`;
  return (
    <svg
      viewBox={`0 0 ${WIDTH} ${height}`}
      preserveAspectRatio="none"
      style={{ height: `${height}px` }}
      aria-hidden="true"
    >
      {drawn.map(({ row, column, path, width }) => {
        const value = data[(row - first) * columns.length + column];
        return (
          <path
            key={`${row} ${column}`}
            class={looks(row, value)}
            data-row={row}
            data-column={column}
            data-weight={value}
            d={path}
            stroke-width={width}
            vector-effect="non-scaling-stroke"
          />
        );
      })}
    </svg>
  );
}

interface KeysProps {
  columns: string[];
  /** The weights of the query in focus. */
  weights: number[] | null;
  kind: Kind;
  bars?: Bar[];
}

function Keys({ columns, weights, kind, bars }: KeysProps) {
  const most = Math.max(...(weights ?? []).map(Math.abs), 1e-9);
  const text = kind === "weights" ? formatPercent : formatNumber;
  return (
    <ul class="v-side v-keys-side" aria-label={strings()["v.keys"]}>
      {columns.map((token, column) => {
        const value = weights?.[column] ?? 0;
        const shade = String(Math.round((100 * Math.max(0, value)) / most));
        return (
          <li key={column} style={{ "--shade": shade }}>
            <TokenText token={token} />
            {Math.abs(value) >= 0.005 && <small>{text(value)}</small>}
            {!weights && bars && <LaneBar bar={bars[column]} />}
          </li>
        );
      })}
    </ul>
  );
}

const LaneBar = ({ bar }: { bar?: Bar }) =>
  bar ? (
    <span class="v-lane" aria-hidden="true" title={formatNumber(bar.value)}>
      <span style={{ width: `${100 * bar.share}%` }} />
    </span>
  ) : null;

interface QueriesProps {
  rows: string[];
  bars?: Bar[];
  locked: number;
  focus: number;
  onLock: (row: number) => void;
  onPoint: (row: number) => void;
}

/** The queries: one tab stop, arrows move and point, Enter or a click locks. */
function Queries({ rows, bars, locked, focus, onLock, onPoint }: QueriesProps) {
  const group = useRef<HTMLDivElement>(null);
  const move = (row: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, row));
    (group.current?.children[next] as HTMLElement | undefined)?.focus();
    onPoint(next);
  };
  return (
    <div class="v-side" role="group" aria-label={strings()["v.queries"]} ref={group}>
      {rows.map((token, row) => (
        <button
          key={row}
          type="button"
          class={row === focus ? "on" : ""}
          tabIndex={row === Math.max(0, locked) ? 0 : -1}
          aria-pressed={row === locked}
          onClick={() => onLock(row)}
          onMouseEnter={() => onPoint(row)}
          onKeyDown={(event) => {
            if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
            event.preventDefault();
            event.stopPropagation();
            move(row + (event.key === "ArrowDown" ? 1 : -1));
          }}
        >
          {bars && <LaneBar bar={bars[row]} />}
          <TokenText token={token} />
        </button>
      ))}
    </div>
  );
}
