/** Permutation: to attention, a sentence is a set. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Block, Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Button, Switch } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptOrder, keptSwitch } from "../parts/kept";
import type { Matrix } from "../parts/math";
import { ModelMap } from "../parts/model_map";
import { Predict } from "../parts/predict";
import { list } from "../parts/show";
import { TokenOrder } from "../parts/tokens";
import { permuted } from "./numbers";

export const STEPS = 4;
const { tokens, input, swap } = constants.permutation;
const CELL = 48;
const LABEL = 58;
const GAVE = 1;

export function PermutationChapter(props: ChapterProps) {
  const [order, setOrder] = keptOrder(props.state, "order", tokens.length);
  const [positions, setPositions] = keptSwitch(props.state, "positions", false);
  const numbers = permuted(input, order, positions);
  const now = numbers.after.output[order.indexOf(GAVE)];
  return (
    <Frame
      id="permutation"
      steps={STEPS}
      props={props}
      formulas={[
        "f(P\\x{X})=P f(\\x{X})\\quad \\op{mean}f(P\\x{X})=\\op{mean}f(\\x{X})",
        `\\z{y}_{\\op{gave}}=${list(now, 3)}`,
      ]}
      checks={[
        { name: "equivariant", error: numbers.equivariance, tolerance: 1e-12, broken: true },
        { name: "invariant", error: numbers.invariance, tolerance: 1e-12, broken: true },
      ]}
      controls={<Controls {...{ setOrder, positions, setPositions }} />}
      predict={<Predict options={3} answer={2} />}
      model={<ModelMap />}
    >
      <TokenOrder tokens={tokens} order={order} onChange={setOrder} />
      <div class="flow bottom">
        <Reveal at={1}>
          <MovingMatrix
            name="X"
            tone="input"
            caption="X"
            rows={order}
            columns={[0, 1, 2, 3]}
            value={(a, b) => input[a][b]}
            limit={1.6}
          />
        </Reveal>
        <Reveal at={2}>
          <WeightMap weights={numbers.after.weights} order={order} />
        </Reveal>
        <Reveal at={3}>
          <Outputs output={numbers.after.output} order={order} />
        </Reveal>
      </div>
    </Frame>
  );
}

function WeightMap({ weights, order }: { weights: Matrix; order: number[] }) {
  const text = useText();
  const at = (token: number) => order.indexOf(token);
  return (
    <MovingMatrix
      name="A"
      tone="weight"
      caption={text("map")}
      rows={order}
      columns={order}
      labels
      value={(a, b) => weights[at(a)][at(b)]}
      limit={1}
    />
  );
}

function Outputs({ output, order }: { output: Matrix; order: number[] }) {
  const text = useText();
  return (
    <MovingMatrix
      name="Y"
      tone="output"
      caption={text("outputs")}
      rows={order}
      columns={[0, 1, 2, 3]}
      value={(a, b) => output[order.indexOf(a)][b]}
      limit={1.6}
    />
  );
}

interface MovingMatrixProps {
  name: string;
  tone: string;
  caption: string;
  rows: number[];
  columns: number[];
  /** Columns are words, too. */
  labels?: boolean;
  value: (row: number, column: number) => number;
  limit: number;
}

/** A matrix whose rows (and columns) belong to words: its cells move with the words. */
function MovingMatrix({ name, tone, caption, rows, columns, labels = false, value, limit }: MovingMatrixProps) {
  const top = labels ? 24 : 4;
  const [width, height] = [LABEL + columns.length * CELL, top + rows.length * CELL];
  const place = (x: number, y: number) => ({ transform: `translate(${x}px, ${y}px)` });
  const ids = [...rows].sort((a, b) => a - b);
  const columnIds = [...columns].sort((a, b) => a - b);
  const strength = (number: number) => `${Math.round(Math.min(1, Math.abs(number) / limit) * 100)}%`;
  return (
    <Block name={name} class="moving">
      <p class={`caption ink-${tone}`}>{caption}</p>
      <svg
        viewBox={`0 0 ${width} ${height}`}
        role="img"
        aria-label={caption}
        data-name={name}
        style={{ maxWidth: `${width}px` }}
      >
        {ids.map((token) => (
          <text
            key={token}
            class="mono label"
            text-anchor="end"
            style={place(LABEL - 8, top + rows.indexOf(token) * CELL + 29)}
          >
            {tokens[token]}
          </text>
        ))}
        {labels &&
          columnIds.map((token) => (
            <text
              key={`c${token}`}
              class="mono label"
              text-anchor="middle"
              style={place(LABEL + (columns.indexOf(token) + 0.5) * CELL, 16)}
            >
              {tokens[token]}
            </text>
          ))}
        {ids.flatMap((a) =>
          columnIds.map((b) => {
            const number = value(a, b);
            const at = place(LABEL + columns.indexOf(b) * CELL + 1.5, top + rows.indexOf(a) * CELL + 1.5);
            const look = { ...at, "--c": `var(--${tone})`, "--p": strength(number) };
            return (
              <g
                key={`${a},${b}`}
                class={number < 0 ? "cell negative" : "cell"}
                style={look}
                data-value={number}
                data-at={`${a},${b}`}
              >
                <rect width={CELL - 3} height={CELL - 3} rx={5} />
                <text x={(CELL - 3) / 2} y={28} text-anchor="middle">
                  {formatNumber(number, 2)}
                </text>
              </g>
            );
          }),
        )}
      </svg>
    </Block>
  );
}

interface ControlsProps {
  setOrder: (order: number[]) => void;
  positions: boolean;
  setPositions: (value: boolean) => void;
}

function Controls({ setOrder, positions, setPositions }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Button onClick={() => setOrder(swap)}>{text("swap")}</Button>
      <Button onClick={() => setOrder(tokens.map((_, i) => i))}>{text("back")}</Button>
      <Switch label={text("positions")} value={positions} onChange={setPositions} />
    </>
  );
}
