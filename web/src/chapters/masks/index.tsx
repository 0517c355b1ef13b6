/** Masks and decoding: who may look at whom, and one word at a time. */
import { fill, formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Bars } from "../parts/bars";
import { Morph, Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Choice, Slider } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptIndex, keptNumber } from "../parts/kept";
import { maxDifference } from "../parts/math";
import { ModelMap } from "../parts/model_map";
import { Predict } from "../parts/predict";
import { list } from "../parts/show";
import { MatrixBlock } from "../parts/squares";
import { changes, decode, KINDS, masked, withChange } from "./numbers";

export const STEPS = 5;
const { tokens, input } = constants.permutation;
const CAUSAL = KINDS.indexOf("causal");

export function MasksChapter(props: ChapterProps) {
  const [choice, setChoice] = keptIndex(props.state, "mask", CAUSAL, KINDS.length);
  const [change, setChange] = keptNumber(props.state, "change", 1, [-3, 3]);
  const [count, setCount] = keptIndex(props.state, "count", 2, tokens.length);
  const kind = KINDS[choice];
  const before = masked(input, kind, constants.masks);
  const moved = changes(before.output, masked(withChange(input, change), kind, constants.masks).output);
  const whole = masked(input, "causal", constants.masks).output;
  return (
    <Frame
      id="masks"
      steps={STEPS}
      props={props}
      formulas={[
        "\\w{a_{ij}}=\\frac{m_{ij}e^{s_{ij}}}{\\sum_k m_{ik}e^{s_{ik}}}",
        `\\w{a}_{\\op{roses}}=${list(before.weights[2], 3)}`,
      ]}
      checks={[
        { name: "past", error: Math.max(...moved.slice(0, -1)), tolerance: 1e-12, broken: true },
        { name: "cache", error: maxDifference(decode(input), whole), tolerance: 1e-12 },
      ]}
      controls={<Controls {...{ choice, setChoice, change, setChange, count, setCount }} />}
      predict={<Predict options={3} answer={0} />}
      model={<ModelMap kinds={["causal", "self"]} />}
    >
      <Picture {...{ choice, moved, count, before }} />
    </Frame>
  );
}

interface PictureProps {
  choice: number;
  moved: number[];
  count: number;
  before: ReturnType<typeof masked>;
}

function Picture({ choice, moved, count, before }: PictureProps) {
  const text = useText();
  const none = masked(input, "none", constants.masks);
  const grid = { rows: tokens, columns: tokens };
  const map = (letter: string, name: string, values: number[][], tone: "query" | "weight") => (
    <MatrixBlock
      {...{ letter, values, tone }}
      name={text(name)}
      limit={tone === "query" ? 1.6 : 1}
      hidden={(i, j) => tone === "weight" && values[i][j] === 0}
      digits={2}
      {...grid}
    />
  );
  const cached = decode(input).slice(0, count + 1);
  return (
    <>
      <div class="wide">
        <Morph
          at={2}
          before={
            <Morph
              at={1}
              before={map("S", "scores", none.scores, "query")}
              after={map("S", KINDS[choice], before.scores, "query")}
            />
          }
          after={map("A", KINDS[choice], before.weights, "weight")}
        />
      </div>
      <div class="halves">
        <Reveal at={3}>
          <Bars
            name="moved"
            title={text("moved")}
            labels={tokens}
            values={moved}
            tone="output"
            limit={1.5}
            digits={3}
            positive
          />
        </Reveal>
        <Reveal at={4}>
          <MatrixBlock
            letter="Y"
            name={text("decoded")}
            values={cached}
            tone="output"
            rows={tokens.slice(0, count + 1)}
            limit={1.6}
            digits={2}
            small
          />
        </Reveal>
      </div>
      <Reveal at={5}>
        <p class="remark">{fill(text("cost"), { n: count + 1, all: (count + 1) ** 2 })}</p>
      </Reveal>
    </>
  );
}

interface ControlsProps {
  choice: number;
  setChoice: (choice: number) => void;
  change: number;
  setChange: (change: number) => void;
  count: number;
  setCount: (count: number) => void;
}

function Controls({ choice, setChoice, change, setChange, count, setCount }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Choice label={text("mask")} options={KINDS.map((kind) => text(kind))} value={choice} onChange={setChoice} />
      <Slider
        label={text("change")}
        value={change}
        limits={[-3, 3]}
        step={0.1}
        shown={formatNumber(change, 1)}
        onChange={setChange}
      />
      <Slider
        label={text("count")}
        value={count}
        limits={[0, tokens.length - 1]}
        step={1}
        shown={String(count + 1)}
        onChange={setCount}
      />
    </>
  );
}
