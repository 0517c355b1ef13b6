/** The soft dictionary: every value, as far as its key matches. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Bars } from "../parts/bars";
import { Block, Reveal } from "../parts/block";
import { useProgress, useText } from "../parts/context";
import { Button, Slider } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptNumber, keptVector } from "../parts/kept";
import { sum, type Vector } from "../parts/math";
import { ModelRow } from "../parts/model_row";
import { Plane } from "../parts/plane";
import { Predict } from "../parts/predict";
import { products } from "../parts/show";
import { coldError, lookUp } from "./numbers";

export const STEPS = 4;
const { names, keys, values, cold } = constants.dictionary;

export function DictionaryChapter(props: ChapterProps) {
  const [query, setQuery] = keptVector(props.state, "q", constants.dictionary.query);
  const [power, setPower] = keptNumber(props.state, "tau", 0, [-2, 2]);
  const temperature = 10 ** power;
  const found = lookUp(query, keys, values, temperature);
  return (
    <Frame
      id="dictionary"
      steps={STEPS}
      props={props}
      formulas={[
        "\\z{y}=\\sum_i \\w{w_i}\\v{v_i}",
        "\\w{w}=\\op{softmax}(\\minus\\frac{\\norm\\q{\\b{q}}\\minus\\k{\\b{k}_i}\\norm^2}{2\\tau})",
        `\\z{y}=${products(found.weights, values, ["w", "v"], 2)}=\\z{${formatNumber(found.answer, 3)}}`,
      ]}
      checks={[
        { name: "cold", error: coldError(keys, values, cold), tolerance: 1e-12 },
        { name: "sum", error: Math.abs(sum(found.weights) - 1), tolerance: 1e-12 },
      ]}
      controls={<Controls {...{ power, setPower, temperature, setQuery }} />}
      predict={<Predict options={3} answer={0} />}
      model={<ModelRow />}
    >
      <div class="pair">
        <TasteMap query={query} setQuery={setQuery} weights={found.weights} nearest={found.nearest} />
        <div class="column">
          <Reveal at={1}>
            <Hard equal={found.equal} />
          </Reveal>
          <Reveal at={2}>
            <Nearest index={found.nearest} />
          </Reveal>
          <Reveal at={3}>
            <Weights weights={found.weights} />
          </Reveal>
          <Reveal at={4}>
            <Answer value={found.answer} />
          </Reveal>
        </div>
      </div>
    </Frame>
  );
}

interface TasteMapProps {
  query: Vector;
  setQuery: (at: Vector) => void;
  weights: Vector;
  nearest: number;
}

/** Keys as points, the query as a point that can be moved, and lines as wide as the weights. */
function TasteMap({ query, setQuery, weights, nearest }: TasteMapProps) {
  const text = useText();
  const progress = useProgress();
  const label = (i: number) => `${text(names[i])} ${formatNumber(values[i], 2)}`;
  const points = keys.map((at, i) => ({ letter: names[i], tone: "key" as const, at, point: true, label: label(i) }));
  const asks = { letter: "q", tone: "query" as const, at: query, point: true, onMove: setQuery, label: text("query") };
  return (
    <Plane name="plane" limit={3} arrows={[...points, asks]}>
      {(toScreen) => {
        const [x, y] = toScreen(query);
        return keys.map((key, i) => {
          const [kx, ky] = toScreen(key);
          const soft = progress(3);
          const width = soft * weights[i] * 12 + (1 - soft) * (i === nearest ? progress(2) * 4 : 0);
          return <line key={names[i]} class="tie" x1={x} y1={y} x2={kx} y2={ky} stroke-width={width} />;
        });
      }}
    </Plane>
  );
}

function Hard({ equal }: { equal: number }) {
  const text = useText();
  return (
    <Block name="hard" class="result">
      <code>prices[q]</code>
      <span class={equal < 0 ? "ink-alert" : "ink-value"}>
        {equal < 0 ? `KeyError: ${text("nothing")}` : `${formatNumber(values[equal], 2)} (${text(names[equal])})`}
      </span>
    </Block>
  );
}

function Nearest({ index }: { index: number }) {
  const text = useText();
  return (
    <Block name="nearest" class="result">
      <span>{text("nearest")}</span>
      <b class="ink-value">
        {formatNumber(values[index], 2)} ({text(names[index])})
      </b>
    </Block>
  );
}

function Weights({ weights }: { weights: Vector }) {
  const text = useText();
  const labels = names.map((name) => text(name));
  return (
    <Bars
      name="weights"
      title={text("weights")}
      labels={labels}
      values={weights}
      tone="weight"
      limit={1}
      digits={3}
      positive
    />
  );
}

function Answer({ value }: { value: number }) {
  const text = useText();
  return (
    <Block name="answer" class="result big">
      <span>{text("soft")}</span>
      <b class="ink-output" data-value={value} data-name="answer">
        {formatNumber(value, 3)}
      </b>
    </Block>
  );
}

interface ControlsProps {
  power: number;
  setPower: (value: number) => void;
  temperature: number;
  setQuery: (at: Vector) => void;
}

function Controls({ power, setPower, temperature, setQuery }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Slider
        label={text("temperature")}
        value={power}
        limits={[-2, 2]}
        step={0.05}
        shown={`τ = ${formatNumber(temperature, temperature < 0.1 ? 3 : 2)}`}
        onChange={setPower}
      />
      <Button onClick={() => setQuery(keys[3])}>{text("exactly")}</Button>
    </>
  );
}
