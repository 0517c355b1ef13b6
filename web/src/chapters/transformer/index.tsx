/** The whole Transformer: encoder, decoder, cross-attention, and where the norm stands. */
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Bars } from "../parts/bars";
import { Block, Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Choice, Slider } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptIndex, keptNumber } from "../parts/kept";
import { ModelMap } from "../parts/model_map";
import { Predict } from "../parts/predict";
import { term } from "../parts/show";
import { Words } from "../parts/words";
import { BOXES, Diagram } from "./diagram";
import { stream } from "./numbers";

export const STEPS = 7;
const SHAPE = constants.transformer;

export function TransformerChapter(props: ChapterProps) {
  const [norm, setNorm] = keptIndex(props.state, "norm", 0, 2);
  const [layers, setLayers] = keptNumber(props.state, "layers", 6, [1, SHAPE.layers]);
  const [chosen, setChosen] = keptIndex(props.state, "box", 1, BOXES.length);
  const preNorm = norm === 0;
  const numbers = stream(SHAPE, layers, preNorm);
  return (
    <Frame
      id="transformer"
      steps={STEPS}
      props={props}
      formulas={[
        preNorm ? "\\x{x}\\to\\x{x}+F(\\op{norm}(\\x{x}))" : "\\x{x}\\to\\op{norm}(\\x{x}+F(\\x{x}))",
        `\\op{size}(\\x{x}):${term(numbers.sizes[0], 3)}\\to ${term(numbers.sizes[layers], 3)}`,
      ]}
      checks={[{ name: preNorm ? "identity" : "normed", error: numbers.error, tolerance: preNorm ? 1e-12 : 1e-3 }]}
      controls={<Controls {...{ norm, setNorm, layers, setLayers }} />}
      predict={<Predict options={3} answer={1} />}
      model={<ModelMap kinds={["cross", "causal", "self"]} />}
    >
      <div class="pair tall">
        <Diagram {...{ preNorm, chosen, setChosen }} />
        <div class="column">
          <Description chosen={chosen} />
          <Reveal at={7}>
            <Stream sizes={numbers.sizes} />
          </Reveal>
        </div>
      </div>
    </Frame>
  );
}

/** What the chosen box does, and the shape of its result. */
function Description({ chosen }: { chosen: number }) {
  const text = useText();
  const { id, tone } = BOXES[chosen];
  return (
    <Block name="description" class="description">
      <p class={`ink-${tone}`}>{text(`box.${id}`)}</p>
      <p aria-live="polite">
        <Words text={text(`about.${id}`)} />
      </p>
    </Block>
  );
}

function Stream({ sizes }: { sizes: number[] }) {
  const text = useText();
  return (
    <Bars
      name="sizes"
      title={text("sizes")}
      labels={sizes.map((_, layer) => (layer === 0 ? "x" : String(layer)))}
      values={sizes}
      tone="input"
      limit={8}
      positive
    />
  );
}

interface ControlsProps {
  norm: number;
  setNorm: (norm: number) => void;
  layers: number;
  setLayers: (layers: number) => void;
}

function Controls({ norm, setNorm, layers, setLayers }: ControlsProps) {
  const text = useText();
  return (
    <>
      <Choice label={text("norm")} options={[text("pre"), text("post")]} value={norm} onChange={setNorm} />
      <Slider
        label={text("layers")}
        value={layers}
        limits={[1, SHAPE.layers]}
        step={1}
        shown={`L = ${layers}`}
        onChange={setLayers}
      />
    </>
  );
}
