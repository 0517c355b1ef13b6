/** Where attention began: a recurrent decoder that looks back at all states of its encoder. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Bars } from "../parts/bars";
import { Reveal } from "../parts/block";
import { useProgress, useText } from "../parts/context";
import { Choice } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptIndex, keptVector } from "../parts/kept";
import { sum, type Vector } from "../parts/math";
import { ModelMap } from "../parts/model_map";
import { type Arrow, Plane } from "../parts/plane";
import { Predict } from "../parts/predict";
import { products } from "../parts/show";
import { attend, encode, SCORES } from "./numbers";

export const STEPS = 5;
const { source, embeddings, recurrent, input } = constants.recurrent;
const STATES = encode(embeddings, recurrent, input);

export function RecurrentChapter(props: ChapterProps) {
  const [state, setState] = keptVector(props.state, "s", constants.recurrent.state);
  const [choice, setChoice] = keptIndex(props.state, "score", 0, SCORES.length);
  const numbers = attend(SCORES[choice], state, STATES, constants.recurrent);
  const first = STATES.map((values) => values[0]);
  return (
    <Frame
      id="recurrent"
      steps={STEPS}
      props={props}
      formulas={[
        FORMULAS[choice],
        `\\z{c_1}=${products(numbers.weights, first, ["w", "v"], 2)}=\\z{${formatNumber(numbers.context[0], 3)}}`,
      ]}
      checks={[
        { name: "sum", error: Math.abs(sum(numbers.weights) - 1), tolerance: 1e-12 },
        { name: "inside", error: numbers.outside, tolerance: 1e-12 },
      ]}
      controls={<Scores choice={choice} setChoice={setChoice} />}
      predict={<Predict options={3} answer={0} />}
      model={<ModelMap kinds={["cross"]} otherwise="model.self" />}
    >
      <div class="pair">
        <States {...{ state, setState, numbers }} />
        <Lists numbers={numbers} />
      </div>
    </Frame>
  );
}

const FORMULAS = [
  "\\op{score}=\\b{v}\\cdot\\op{tanh}(W\\q{\\b{s}}+U\\k{\\b{h}_i})",
  "\\op{score}=\\q{\\b{s}}\\cdot\\k{\\b{h}_i}",
  "\\op{score}=\\q{\\b{s}}\\cdot W\\k{\\b{h}_i}",
];

type Numbers = ReturnType<typeof attend>;

interface StatesProps {
  state: Vector;
  setState: (state: Vector) => void;
  numbers: Numbers;
}

/** The encoder's states as points, in the order of reading; the decoder's state can be moved. */
function States({ state, setState, numbers }: StatesProps) {
  const text = useText();
  const progress = useProgress();
  const last = STATES.length - 1;
  const points: Arrow[] = STATES.map((at, i) => ({
    letter: `h${i + 1}`,
    tone: "key",
    at,
    point: true,
    label: i === last && progress(2) === 1 && progress(3) === 0 ? `${source[i]}!` : source[i],
  }));
  const decoder: Arrow = {
    letter: "s",
    tone: "query",
    at: state,
    point: true,
    onMove: setState,
    label: text("decoder"),
  };
  const context: Arrow = { letter: "c", tone: "output", at: numbers.context, point: true, label: "c" };
  return (
    <Plane name="plane" limit={2} arrows={[...points, ...(progress(5) > 0 ? [context] : []), decoder]}>
      {(toScreen) => {
        const [x, y] = toScreen(state);
        const path = STATES.map((at) => toScreen(at).join()).join("L");
        return (
          <>
            <path class="dashes" fill="none" d={`M${path}`} style={{ opacity: progress(1) }} />
            {STATES.map((at, i) => {
              const [hx, hy] = toScreen(at);
              const alone = i === last ? 5 * progress(2) : 0;
              const width = progress(4) * numbers.weights[i] * 14 + (1 - progress(4)) * alone;
              return <line key={source[i]} class="tie" x1={x} y1={y} x2={hx} y2={hy} stroke-width={width} />;
            })}
          </>
        );
      }}
    </Plane>
  );
}

function Lists({ numbers }: { numbers: Numbers }) {
  const text = useText();
  return (
    <div class="column">
      <Reveal at={3}>
        <Bars name="scores" title={text("scores")} labels={source} values={numbers.scores} tone="query" limit={4} />
      </Reveal>
      <Reveal at={4}>
        <Bars
          name="weights"
          title={text("weights")}
          labels={source}
          values={numbers.weights}
          tone="weight"
          limit={1}
          digits={3}
          positive
        />
      </Reveal>
      <Reveal at={5}>
        <Bars
          name="context"
          title={text("context")}
          labels={["c1", "c2"]}
          values={numbers.context}
          tone="output"
          limit={1}
          digits={3}
        />
      </Reveal>
    </div>
  );
}

function Scores({ choice, setChoice }: { choice: number; setChoice: (choice: number) => void }) {
  const text = useText();
  return (
    <Choice label={text("score")} options={SCORES.map((name) => text(name))} value={choice} onChange={setChoice} />
  );
}
