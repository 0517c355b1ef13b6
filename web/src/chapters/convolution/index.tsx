/** A convolution as attention: one head for each offset of the kernel. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Slider } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptIndex, keptNumber, keptVector } from "../parts/kept";
import type { Vector } from "../parts/math";
import { ModelOffsets } from "../parts/model_map";
import { Predict } from "../parts/predict";
import { products, term } from "../parts/show";
import { MatrixBlock, VectorBlock } from "../parts/squares";
import { asAttention, OFFSETS, relativeMap, toeplitzError } from "./numbers";

export const STEPS = 4;
const LENGTH = constants.convolution.input.length;
const NAMES = OFFSETS.map((offset) => (offset > 0 ? `+${offset}` : String(offset).replace("-", "−")));

const replace = (x: Vector, index: number, value: number): Vector => x.map((old, i) => (i === index ? value : old));

export function ConvolutionChapter(props: ChapterProps) {
  const [input, setInput] = keptVector(props.state, "x", constants.convolution.input);
  const [kernel, setKernel] = keptVector(props.state, "kernel", constants.convolution.kernel);
  const [place, setPlace] = keptIndex(props.state, "place", 2, LENGTH);
  const [sharpness, setSharpness] = keptNumber(props.state, "beta", 1, [0, 8]);
  const numbers = asAttention(input, kernel);
  const relative = relativeMap(LENGTH, kernel, sharpness);
  const window = OFFSETS.map((offset) => input[place + offset] ?? 0);
  return (
    <Frame
      id="convolution"
      steps={STEPS}
      props={props}
      formulas={[
        "\\z{y_t}=\\sum_{\\delta} \\k{k_{\\delta}}\\x{x_{t+\\delta}}=W^O[\\x{x_{t+\\delta}}]_{\\delta}",
        `\\z{y_${place + 1}}=${products(kernel, window, ["k", "x"])}=\\z{${term(numbers.output[place], 2)}}`,
      ]}
      checks={[
        { name: "same", error: numbers.error, tolerance: 1e-12 },
        { name: "toeplitz", error: toeplitzError(relative), tolerance: 1e-12 },
      ]}
      controls={<Controls {...{ place, setPlace, sharpness, setSharpness }} />}
      predict={<Predict options={3} answer={1} />}
      model={<ModelOffsets />}
    >
      <Sequence {...{ input, setInput, kernel, setKernel, place, output: numbers.output }} />
      <Maps maps={numbers.maps} relative={relative} place={place} />
    </Frame>
  );
}

interface SequenceProps {
  input: Vector;
  setInput: (input: Vector) => void;
  kernel: Vector;
  setKernel: (kernel: Vector) => void;
  place: number;
  output: Vector;
}

/** The input, the kernel under the place it stands at, and the output. */
function Sequence({ input, setInput, kernel, setKernel, place, output }: SequenceProps) {
  const shift = { "--place": place - 1 };
  return (
    <div class="wide sequence">
      <VectorBlock
        letter="x"
        values={input}
        tone="input"
        limit={2}
        edit={(i, value) => setInput(replace(input, i, value))}
      />
      <div class="sliding" style={shift}>
        <VectorBlock
          letter="k"
          values={kernel}
          tone="key"
          limit={1.5}
          edit={(i, value) => setKernel(replace(kernel, i, value))}
        />
      </div>
      <Reveal at={1}>
        <VectorBlock letter="y" values={output} tone="output" limit={3} mark={place} />
      </Reveal>
    </div>
  );
}

function Maps({ maps, relative, place }: { maps: number[][][]; relative: number[][]; place: number }) {
  const text = useText();
  const bright = (i: number) => i === place;
  return (
    <>
      <Reveal at={2} class="flow">
        {maps.map((map, h) => (
          <MatrixBlock
            key={h}
            letter={`A_${h + 1}`}
            name={`${text("offset")} ${NAMES[h]}`}
            values={map}
            tone="weight"
            limit={1}
            small
            mark="dots"
            bright={bright}
          />
        ))}
      </Reveal>
      <Reveal at={4}>
        <div class="wide">
          <MatrixBlock letter="A" name={text("relative")} values={relative} tone="weight" limit={1} digits={2} small />
        </div>
      </Reveal>
    </>
  );
}

interface ControlsProps {
  place: number;
  setPlace: (place: number) => void;
  sharpness: number;
  setSharpness: (value: number) => void;
}

function Controls({ place, setPlace, sharpness, setSharpness }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Slider
        label={text("place")}
        value={place}
        limits={[0, LENGTH - 1]}
        step={1}
        shown={`t = ${place + 1}`}
        onChange={setPlace}
      />
      <Slider
        label={text("sharpness")}
        value={sharpness}
        limits={[0, 8]}
        step={0.5}
        shown={`β = ${formatNumber(sharpness, 1)}`}
        onChange={setSharpness}
      />
    </>
  );
}
