/** Positions: added to the input, or turned into the queries and keys. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Slider } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptIndex } from "../parts/kept";
import { ModelOffsets } from "../parts/model_map";
import { Plane } from "../parts/plane";
import { Predict } from "../parts/predict";
import { products, term } from "../parts/show";
import { MatrixBlock } from "../parts/squares";
import { rotary, sinusoidError, sinusoids } from "./numbers";

export const STEPS = 4;
const { length, dim, query, key, radians } = constants.positions;
const SINUSOIDS = sinusoids(length, dim);
const LONGEST_SHIFT = 100;

export function PositionsChapter(props: ChapterProps) {
  const [m, setM] = keptIndex(props.state, "m", 3, length);
  const [n, setN] = keptIndex(props.state, "n", 1, length);
  const [shift, setShift] = keptIndex(props.state, "shift", 0, LONGEST_SHIFT + 1);
  const here = rotary(query, key, [m, n], radians);
  const there = rotary(query, key, [m + shift, n + shift], radians);
  return (
    <Frame
      id="positions"
      steps={STEPS}
      props={props}
      formulas={[
        "\\op{score}=(R_m\\q{\\b{q}})\\cdot(R_n\\k{\\b{k}})=\\q{\\b{q}}\\cdot R_{n\\minus m}\\k{\\b{k}}",
        `${products(there.q, there.k, ["q", "k"], 3)}=${term(there.score, 4)}`,
      ]}
      checks={[
        { name: "rotary", error: Math.abs(there.score - here.score), tolerance: 1e-12 },
        { name: "sinusoidal", error: sinusoidError([m, n], shift, dim), tolerance: 1e-12 },
      ]}
      controls={<Controls {...{ m, setM, n, setN, shift, setShift }} />}
      predict={<Predict options={3} answer={2} />}
      model={<ModelOffsets />}
    >
      <Table m={m} n={n} />
      <Rotation {...{ there, m: m + shift, n: n + shift }} />
    </Frame>
  );
}

/** Sines and cosines by position, and their dot products. */
function Table({ m, n }: { m: number; n: number }) {
  const text = useText();
  const rows = Array.from({ length }, (_, i) => String(i));
  return (
    <div class="flow bottom">
      <Reveal at={1}>
        <MatrixBlock
          letter="P"
          name={text("table")}
          values={SINUSOIDS.table}
          tone="input"
          rows={rows}
          limit={1}
          small
          mark="dots"
          bright={(i) => i === m || i === n}
        />
      </Reveal>
      <Reveal at={2}>
        <MatrixBlock
          letter="PPᵀ"
          name={text("products")}
          values={SINUSOIDS.products}
          tone="weight"
          rows={rows}
          limit={4}
          small
          mark="dots"
          bright={(i, j) => i - j === m - n}
        />
      </Reveal>
    </div>
  );
}

interface RotationProps {
  there: ReturnType<typeof rotary>;
  m: number;
  n: number;
}

/** The query and the key, turned by their positions. */
function Rotation({ there, m, n }: RotationProps) {
  const text = useText();
  return (
    <Reveal at={3} class="pair">
      <Plane
        name="plane"
        limit={2}
        arrows={[
          { letter: "k", tone: "key", at: there.k, label: `k ${n}` },
          { letter: "q", tone: "query", at: there.q, label: `q ${m}` },
        ]}
      />
      <dl class="facts">
        <dt>{text("turned_query")}</dt>
        <dd>{formatNumber(m * radians, 1)} rad</dd>
        <dt>{text("turned_key")}</dt>
        <dd>{formatNumber(n * radians, 1)} rad</dd>
        <dt>{text("difference")}</dt>
        <dd>{formatNumber((m - n) * radians, 1)} rad</dd>
        <dt>{text("score")}</dt>
        <dd data-name="score" data-value={there.score}>
          <b>{formatNumber(there.score, 4)}</b>
        </dd>
      </dl>
    </Reveal>
  );
}

interface ControlsProps {
  m: number;
  setM: (m: number) => void;
  n: number;
  setN: (n: number) => void;
  shift: number;
  setShift: (shift: number) => void;
}

function Controls({ m, setM, n, setN, shift, setShift }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Slider label={text("query_at")} value={m} limits={[0, length - 1]} step={1} shown={`m = ${m}`} onChange={setM} />
      <Slider label={text("key_at")} value={n} limits={[0, length - 1]} step={1} shown={`n = ${n}`} onChange={setN} />
      <Slider
        label={text("shift")}
        value={shift}
        limits={[0, LONGEST_SHIFT]}
        step={1}
        shown={`+ ${shift}`}
        onChange={setShift}
      />
    </>
  );
}
