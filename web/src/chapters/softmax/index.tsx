/** Softmax and temperature: from scores to shares of one. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Bars, Ruler } from "../parts/bars";
import { Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Slider } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptNumber, keptVector } from "../parts/kept";
import { ModelRow } from "../parts/model_row";
import { Predict } from "../parts/predict";
import { compact, term } from "../parts/show";
import { EditSquare } from "../parts/squares";
import { softmaxSteps } from "./numbers";

export const STEPS = 4;
const { labels } = constants.softmax;

export function SoftmaxChapter(props: ChapterProps) {
  const [scores, setScores] = keptVector(props.state, "s", constants.softmax.scores);
  const [power, setPower] = keptNumber(props.state, "tau", 0, [-1.5, 1.5]);
  const [shift, setShift] = keptNumber(props.state, "c", 0, [-5, 5]);
  const temperature = 10 ** power;
  const numbers = softmaxSteps(scores, temperature, shift);
  return (
    <Frame
      id="softmax"
      steps={STEPS}
      props={props}
      formulas={[
        "\\w{w_i}=\\frac{e^{s_i/\\tau}}{\\sum_j e^{s_j/\\tau}}",
        `\\w{w_1}=\\frac{e^{${term(numbers.shifted[0])}/${formatNumber(temperature, 2)}}}{${numbers.powers
          .map((value) => compact(value))
          .join("+")}}=\\w{${formatNumber(numbers.weights[0], 4)}}`,
      ]}
      checks={[
        { name: "sum", error: numbers.sumError, tolerance: 1e-12 },
        { name: "shift", error: numbers.shiftError, tolerance: 1e-12 },
        { name: "cold", error: numbers.coldError, tolerance: 1e-12 },
      ]}
      controls={<Controls {...{ temperature, power, setPower, shift, setShift }} />}
      predict={<Predict options={3} answer={2} />}
      model={<ModelRow />}
    >
      <Scores {...{ scores, setScores }} />
      <Picture numbers={numbers} />
    </Frame>
  );
}

function Scores({ scores, setScores }: { scores: number[]; setScores: (scores: number[]) => void }) {
  const change = (index: number, value: number) => setScores(scores.map((old, i) => (i === index ? value : old)));
  return (
    <div class="score-row" data-name="scores">
      {scores.map((score, i) => (
        <div key={labels[i]}>
          <EditSquare tone="query" limit={4} value={score} label={`s ${labels[i]}`} onChange={(v) => change(i, v)} />
          <span class="mono">{labels[i]}</span>
        </div>
      ))}
    </div>
  );
}

function Picture({ numbers }: { numbers: ReturnType<typeof softmaxSteps> }) {
  const text = useText();
  return (
    <>
      <div class="thirds">
        <Reveal at={1}>
          <Bars
            name="divided"
            title={text("divided")}
            labels={labels}
            values={numbers.divided}
            tone="query"
            limit={6}
          />
        </Reveal>
        <Reveal at={2}>
          <Bars
            name="powers"
            title={text("powers")}
            labels={labels}
            values={numbers.powers}
            tone="key"
            limit={Math.max(...numbers.powers)}
            positive
          />
        </Reveal>
        <Reveal at={3}>
          <Bars
            name="weights"
            title={text("weights")}
            {...{ labels }}
            values={numbers.weights}
            tone="weight"
            limit={1}
            digits={3}
            positive
          />
        </Reveal>
      </div>
      <Reveal at={4}>
        <Ruler name="ruler" title={text("ruler")} labels={labels} weights={numbers.weights} />
      </Reveal>
    </>
  );
}

interface ControlsProps {
  temperature: number;
  power: number;
  setPower: (value: number) => void;
  shift: number;
  setShift: (value: number) => void;
}

function Controls({ temperature, power, setPower, shift, setShift }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Slider
        label={text("temperature")}
        value={power}
        limits={[-1.5, 1.5]}
        step={0.05}
        shown={`τ = ${formatNumber(temperature, 2)}`}
        onChange={setPower}
      />
      <Slider
        label={text("shifted")}
        value={shift}
        limits={[-5, 5]}
        step={0.5}
        shown={`c = ${formatNumber(shift, 1)}`}
        onChange={setShift}
      />
    </>
  );
}
