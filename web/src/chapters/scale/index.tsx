/** Why scores are divided by the square root of d. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Bars } from "../parts/bars";
import { Block, Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Slider, Switch } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptIndex, keptSwitch } from "../parts/kept";
import { softmax } from "../parts/math";
import { ModelScale } from "../parts/model_scale";
import { Predict } from "../parts/predict";
import { type Drawn, draw, histogram, largestWeight } from "./numbers";

export const STEPS = 4;
const { seed, samples, dims, keys } = constants.scale;
const LIMIT = 48;
const BINS = 64;

let drawn: Drawn | undefined;

/** A million products take a moment: they are drawn once. */
function products(): Drawn {
  drawn ??= draw(seed, samples, dims);
  return drawn;
}

export function ScaleChapter(props: ChapterProps) {
  const [index, setIndex] = keptIndex(props.state, "d", 4, dims.length);
  const [scaled, setScaled] = keptSwitch(props.state, "scaled", false);
  const data = products();
  const d = dims[index];
  const variance = data.variances[index];
  return (
    <Frame
      id="scale"
      steps={STEPS}
      props={props}
      formulas={[
        "\\op{Var}(\\q{\\b{q}}\\cdot\\k{\\b{k}})=\\sum_{i=1}^{d}\\op{Var}(\\q{q_i})\\op{Var}(\\k{k_i})=d",
        `\\op{Var}(\\q{\\b{q}}\\cdot\\k{\\b{k}})\\approx ${formatNumber(variance, 2)}\\quad \\frac{${formatNumber(variance, 2)}}{\\sqrt{${d}}^2}=${formatNumber(variance / d, 3)}`,
      ]}
      checks={[{ name: "unit", error: Math.abs(variance / d - 1), tolerance: 3 * Math.sqrt(2 / samples) }]}
      controls={<Controls {...{ index, setIndex, d, scaled, setScaled }} />}
      predict={<Predict options={3} answer={1} />}
      model={<ModelScale />}
    >
      <Histogram values={data.products[index]} divisor={scaled ? Math.sqrt(d) : 1} d={d} />
      <div class="halves">
        <Reveal at={2}>
          <Variances data={data} scaled={scaled} />
        </Reveal>
        <Reveal at={3}>
          <Saturation values={data.products[index]} divisor={scaled ? Math.sqrt(d) : 1} />
        </Reveal>
      </div>
    </Frame>
  );
}

/** Counts as columns, with the normal curve of the same variance. */
function Histogram({ values, divisor, d }: { values: number[]; divisor: number; d: number }) {
  const text = useText();
  const shares = histogram(
    values.map((value) => value / divisor),
    LIMIT,
    BINS,
  );
  const top = Math.max(...shares);
  const [width, height] = [640, 180];
  const column = width / BINS;
  const deviation = Math.sqrt(d) / divisor;
  const curve = Array.from({ length: 321 }, (_, i) => {
    const x = (i / 160 - 1) * LIMIT;
    const density = Math.exp(-0.5 * (x / deviation) ** 2) / (deviation * Math.sqrt(2 * Math.PI));
    return `${(i * width) / 320},${height - ((density * 2 * LIMIT) / BINS / top) * height * 0.9}`;
  });
  return (
    <Block name="histogram" class="histogram">
      <p class="caption ink-weight">{text(divisor === 1 ? "raw" : "divided")}</p>
      <svg viewBox={`0 -4 ${width} ${height + 26}`} role="img" aria-label={text("histogram")}>
        {shares.map((share, i) => {
          const tall = (share / top) * height * 0.9;
          return <rect key={i} x={i * column + 0.5} y={height - tall} width={column - 1} height={tall} class="count" />;
        })}
        <polyline class="curve" points={curve.join(" ")} />
        <path class="axis" d={`M0,${height}H${width}`} />
        {[-40, -20, 0, 20, 40].map((tick) => (
          <text key={tick} x={((tick / LIMIT + 1) * width) / 2} y={height + 18} text-anchor="middle">
            {formatNumber(tick, 0)}
          </text>
        ))}
      </svg>
    </Block>
  );
}

/** The variance of each width, as bars of the logarithm of two. */
function Variances({ data, scaled }: { data: Drawn; scaled: boolean }) {
  const text = useText();
  const values = data.variances.map((value, i) => (scaled ? value / dims[i] : value));
  return (
    <Bars
      name="variances"
      title={text(scaled ? "variance_scaled" : "variance")}
      labels={dims.map((d) => `d = ${d}`)}
      values={values}
      tone="query"
      limit={scaled ? 2 : 560}
      positive
    />
  );
}

/** The weights of the first keys, and the mean of the largest weight over all groups. */
function Saturation({ values, divisor }: { values: number[]; divisor: number }) {
  const text = useText();
  const weights = softmax(values.slice(0, keys), divisor);
  const mean = largestWeight(values, keys, divisor);
  return (
    <>
      <Bars
        name="weights"
        title={text("softmax")}
        labels={weights.map((_, i) => `k${i + 1}`)}
        values={weights}
        tone="weight"
        limit={1}
        digits={3}
        positive
      />
      <p class="remark" data-largest={mean}>
        {text("largest")} <b>{formatNumber(mean, 3)}</b>
      </p>
    </>
  );
}

interface ControlsProps {
  index: number;
  setIndex: (index: number) => void;
  d: number;
  scaled: boolean;
  setScaled: (value: boolean) => void;
}

function Controls({ index, setIndex, d, scaled, setScaled }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Slider
        label={text("width")}
        value={index}
        limits={[0, dims.length - 1]}
        step={1}
        shown={`d = ${d}`}
        onChange={setIndex}
      />
      <Switch label={text("divide")} value={scaled} onChange={setScaled} />
    </>
  );
}
