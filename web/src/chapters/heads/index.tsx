/** Multi-head attention: several small attentions side by side. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Reveal } from "../parts/block";
import { useProgress, useText } from "../parts/context";
import { Choice, Slider } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptIndex, keptVector } from "../parts/kept";
import { ModelHeads } from "../parts/model_map";
import { Predict } from "../parts/predict";
import { products, term } from "../parts/show";
import { MatrixBlock } from "../parts/squares";
import { multiHead } from "./numbers";

export const STEPS = 4;
const { input, tokens } = constants.sentence;
const { counts } = constants.heads;
const ALL_OPEN = [1, 1, 1, 1];

export function HeadsChapter(props: ChapterProps) {
  const [choice, setChoice] = keptIndex(props.state, "heads", 1, counts.length);
  const [allGates, setGates] = keptVector(props.state, "gates", ALL_OPEN);
  const count = counts[choice];
  const gates = allGates.slice(0, count);
  const numbers = multiHead(input, constants.heads, gates);
  const column = constants.heads.output.map((row) => row[0]);
  return (
    <Frame
      id="heads"
      steps={STEPS}
      props={props}
      formulas={[
        "\\z{Y}=[\\z{Z_1}\\dots\\z{Z_h}]W^O=\\sum_h \\z{Z_h}W^O_h",
        `\\z{y_1}=${products(numbers.concatenated[2], column, ["z", "x"], 2)}=\\z{${term(numbers.output[2][0], 3)}}`,
      ]}
      checks={[{ name: "glue", error: numbers.error, tolerance: 1e-12 }]}
      controls={<Controls {...{ choice, setChoice, gates, allGates, setGates }} />}
      predict={<Predict options={3} answer={1} />}
      model={<ModelHeads />}
    >
      <Picture numbers={numbers} gates={gates} />
    </Frame>
  );
}

function Picture({ numbers, gates }: { numbers: ReturnType<typeof multiHead>; gates: number[] }) {
  const text = useText();
  const progress = useProgress();
  const names = tokens.map((token) => text(`w.${token}`));
  const cut = { cut: 4 / gates.length, style: { "--cut": `${progress(1) * 12}px` } };
  return (
    <>
      <div class="flow" style={cut.style}>
        <MatrixBlock letter="Q" values={numbers.Q} tone="query" rows={names} limit={2} small cut={cut.cut} />
        <MatrixBlock letter="K" values={numbers.K} tone="key" limit={2} small cut={cut.cut} />
        <MatrixBlock letter="V" values={numbers.V} tone="value" limit={2} small cut={cut.cut} />
      </div>
      <Reveal at={2} class="flow">
        {numbers.heads.map((head, h) => (
          <div key={h} class={gates[h] === 0 ? "head off" : "head"}>
            <MatrixBlock
              letter={`A_${h + 1}`}
              name={`${text("head")} ${h + 1}`}
              values={head.map}
              tone="weight"
              limit={1}
              digits={2}
              small
              rows={names}
            />
          </div>
        ))}
      </Reveal>
      <div class="flow">
        <Reveal at={3}>
          <div style={cut.style}>
            <MatrixBlock
              letter="Z"
              name={text("concatenated")}
              values={numbers.concatenated}
              tone="output"
              rows={names}
              limit={2}
              digits={2}
              cut={cut.cut}
            />
          </div>
        </Reveal>
        <Reveal at={4} class="flow">
          <span class="sign">×</span>
          <MatrixBlock letter="W^O" values={constants.heads.output} tone="input" limit={2} />
          <span class="sign">=</span>
          <MatrixBlock letter="Y" values={numbers.output} tone="output" limit={2} digits={2} />
        </Reveal>
      </div>
    </>
  );
}

interface ControlsProps {
  choice: number;
  setChoice: (choice: number) => void;
  gates: number[];
  allGates: number[];
  setGates: (gates: number[]) => void;
}

function Controls({ choice, setChoice, gates, allGates, setGates }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Choice label={text("number")} options={counts.map(String)} value={choice} onChange={setChoice} />
      {gates.map((gate, h) => (
        <Slider
          key={h}
          label={`${text("gate")} ${h + 1}`}
          value={gate}
          limits={[0, 1]}
          step={0.1}
          shown={formatNumber(gate, 1)}
          onChange={(value) => setGates(allGates.map((old, i) => (i === h ? value : old)))}
        />
      ))}
    </>
  );
}
