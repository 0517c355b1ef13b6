/** Two columns of numbers with lines between them, as wide as their weights. */
import { formatNumber } from "../../i18n";
import { Block } from "./block";
import { largest, type Matrix, type Vector } from "./math";
import type { Tone } from "./squares";

const [WIDTH, STEP, RADIUS] = [320, 58, 20];

interface LinksProps {
  name: string;
  title: string;
  /** Row i, column j: the weight from input j to output i. */
  weights: Matrix;
  inputs: Vector;
  outputs: Vector;
  tone: Tone;
  /** The weight of the widest line. */
  limit: number;
}

export function Links({ name, title, weights, inputs, outputs, tone, limit }: LinksProps) {
  const height = Math.max(inputs.length, outputs.length) * STEP;
  const y = (index: number, count: number) => (height / count) * (index + 0.5);
  const lines = weights.flatMap((row, i) => row.map((weight, j) => ({ i, j, weight })));
  return (
    <Block name={name} class="links">
      <p class={`caption ink-${tone}`}>{title}</p>
      <svg viewBox={`0 0 ${WIDTH} ${height}`} role="img" aria-label={title} data-name={name}>
        {lines.map(({ i, j, weight }) => (
          <line
            key={`${i},${j}`}
            class={weight < 0 ? "negative" : ""}
            style={{ "--c": `var(--${tone})` }}
            x1={RADIUS + 2}
            y1={y(j, inputs.length)}
            x2={WIDTH - RADIUS - 2}
            y2={y(i, outputs.length)}
            stroke-width={(Math.abs(weight) / limit) * 11}
            data-value={weight}
          />
        ))}
        <Nodes values={inputs} x={RADIUS + 2} y={(j) => y(j, inputs.length)} tone="input" />
        <Nodes values={outputs} x={WIDTH - RADIUS - 2} y={(i) => y(i, outputs.length)} tone="output" />
      </svg>
    </Block>
  );
}

function Nodes({ values, x, y, tone }: { values: Vector; x: number; y: (index: number) => number; tone: Tone }) {
  const limit = Math.max(1, largest([values]));
  return (
    <>
      {values.map((value, i) => (
        <g key={i} style={{ "--c": `var(--${tone})`, "--p": `${(Math.abs(value) / limit) * 100}%` }}>
          <circle class={value < 0 ? "negative" : ""} cx={x} cy={y(i)} r={RADIUS} />
          <text x={x} y={y(i) + 4.5}>
            {formatNumber(value, 2)}
          </text>
        </g>
      ))}
    </>
  );
}
