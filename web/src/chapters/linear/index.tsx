/** A fully connected layer as attention: fixed weights against weights computed from the input. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Button, Switch } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptSwitch, keptVector } from "../parts/kept";
import { Links } from "../parts/links";
import { dot, identity } from "../parts/math";
import { ModelMap } from "../parts/model_map";
import { Predict } from "../parts/predict";
import { products, term } from "../parts/show";
import { MatrixBlock, VectorBlock } from "../parts/squares";
import { compare } from "./numbers";

export const STEPS = 4;
const { weight, constant, input: FIRST } = constants.linear;

export function LinearChapter(props: ChapterProps) {
  const [input, setInput] = keptVector(props.state, "x", FIRST);
  const [fixed, setFixed] = keptSwitch(props.state, "fixed", false);
  const numbers = compare(input, FIRST, weight, constant);
  return (
    <Frame
      id="linear"
      steps={STEPS}
      props={props}
      formulas={[
        "\\z{y}=W\\x{x}=W^O[\\x{x_1}\\dots\\x{x_J}]\\quad \\z{y_i}=\\sum_j \\w{a_{ij}(x)}\\x{x_j}",
        `\\z{y_1}=${products(weight[0], input, ["w", "x"])}=\\z{${term(numbers.layer[0], 2)}}`,
      ]}
      checks={[
        { name: "layer", error: numbers.error, tolerance: 1e-12 },
        { name: "constant", error: numbers.constantMoved, tolerance: 1e-12 },
      ]}
      controls={<Controls {...{ setInput, fixed, setFixed }} />}
      predict={<Predict options={2} answer={1} />}
      model={<ModelMap />}
    >
      <VectorBlock
        letter="x"
        values={input}
        tone="input"
        limit={2}
        edit={(i, value) => setInput(input.map((old, j) => (i === j ? value : old)))}
      />
      <Pictures {...{ input, numbers, fixed }} />
      <AsAttention input={input} output={numbers.layer} />
    </Frame>
  );
}

interface PicturesProps {
  input: number[];
  numbers: ReturnType<typeof compare>;
  fixed: boolean;
}

/** The same picture twice: lines of the layer, and lines of attention. */
function Pictures({ input, numbers, fixed }: PicturesProps) {
  const text = useText();
  const weights = fixed ? numbers.fixed : numbers.weights;
  const mixed = weights.map((row) => dot(row, input));
  return (
    <div class="halves">
      <Reveal at={1}>
        <Links
          name="layer"
          title={text("left")}
          weights={weight}
          inputs={input}
          outputs={numbers.layer}
          tone="key"
          limit={1.2}
        />
        <p class="remark">
          {text("moved")} <b>{formatNumber(0, 3)}</b>
        </p>
      </Reveal>
      <Reveal at={2}>
        <Links
          name="attention"
          title={text(fixed ? "constantly" : "computed")}
          weights={weights}
          inputs={input}
          outputs={mixed}
          tone="weight"
          limit={1.2}
        />
        <p class="remark">
          {text("moved")} <b>{formatNumber(fixed ? numbers.constantMoved : numbers.moved, 3)}</b>
        </p>
      </Reveal>
    </div>
  );
}

/** One-hot maps, one head for each input, and the weights of the layer as the output projection. */
function AsAttention({ input, output }: { input: number[]; output: number[] }) {
  const text = useText();
  return (
    <div class="flow">
      <Reveal at={3} class="flow">
        {identity(input.length).map((row, h) => (
          <MatrixBlock
            key={h}
            letter={`A_${h + 1}`}
            name={`${text("head")} ${h + 1}`}
            values={[row]}
            tone="weight"
            limit={1}
            digits={0}
            small
          />
        ))}
      </Reveal>
      <Reveal at={4} class="flow">
        <MatrixBlock letter="W^O" name={text("same")} values={weight} tone="key" limit={1.2} />
        <span class="sign">→</span>
        <VectorBlock letter="y" values={output} tone="output" limit={2} digits={2} />
      </Reveal>
    </div>
  );
}

interface ControlsProps {
  setInput: (input: number[]) => void;
  fixed: boolean;
  setFixed: (fixed: boolean) => void;
}

function Controls({ setInput, fixed, setFixed }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Button onClick={() => setInput(FIRST)}>{text("first")}</Button>
      <Button onClick={() => setInput([...FIRST].reverse())}>{text("second")}</Button>
      <Switch label={text("fix")} value={fixed} onChange={setFixed} />
    </>
  );
}
