/** The Transformer as boxes: encoder left, decoder right. */
import { useProgress, useText } from "../parts/context";
import type { Tone } from "../parts/squares";

export interface Box {
  id: string;
  tone: Tone;
  /** The step that brings it. */
  at: number;
}

const ENCODER: Box[] = [
  { id: "embedding", tone: "input", at: 1 },
  { id: "self", tone: "query", at: 2 },
  { id: "feed", tone: "value", at: 3 },
];
const DECODER: Box[] = [
  { id: "target", tone: "input", at: 4 },
  { id: "masked", tone: "query", at: 4 },
  { id: "cross", tone: "key", at: 5 },
  { id: "feed2", tone: "value", at: 5 },
  { id: "logits", tone: "output", at: 6 },
];
export const BOXES = [...ENCODER, ...DECODER];

const [WIDTH, HEIGHT, TALL, LIFT] = [170, 36, 420, 84];

interface DiagramProps {
  preNorm: boolean;
  chosen: number;
  setChosen: (index: number) => void;
}

export function Diagram({ preNorm, chosen, setChosen }: DiagramProps) {
  const text = useText();
  const place = (index: number) =>
    index < ENCODER.length
      ? { x: 8, y: TALL - 60 - index * LIFT }
      : { x: 222, y: TALL - 60 - (index - ENCODER.length) * LIFT };
  const progress = useProgress();
  const [from, to] = [place(2), place(5)];
  return (
    <svg class="diagram" viewBox={`0 0 400 ${TALL}`} role="group" aria-label={text("diagram")}>
      <Stack x={0} y={from.y - 30} bottom={place(1).y + 62} label={`${text("encoder")} · L ×`} at={2} />
      <Stack x={214} y={place(6).y - 30} bottom={place(4).y + 62} label={`${text("decoder")} · L ×`} at={4} />
      <path
        class="pipe ink-key"
        style={{ opacity: progress(5) }}
        d={`M${8 + 0.8 * WIDTH},${from.y - 30}V${from.y - 50}H200V${to.y + HEIGHT / 2}H222`}
      />
      {BOXES.map((box, index) => (
        <BoxView
          key={box.id}
          {...{ box, preNorm }}
          {...place(index)}
          chosen={chosen === index}
          onChoose={() => setChosen(index)}
        />
      ))}
    </svg>
  );
}

function Stack({ x, y, bottom, label, at }: { x: number; y: number; bottom: number; label: string; at: number }) {
  const opacity = useProgress()(at);
  return (
    <g style={{ opacity }}>
      <rect class="stack" x={x} y={y} width={WIDTH + 16} height={bottom - y} rx={12} />
      <text class="stack-label" x={x + 12} y={y - 6}>
        {label}
      </text>
    </g>
  );
}

interface BoxViewProps {
  box: Box;
  preNorm: boolean;
  x: number;
  y: number;
  chosen: boolean;
  onChoose: () => void;
}

/** A sub-layer with its norm, its residual path around it, and the line up to the next box. */
function BoxView({ box, preNorm, x, y, chosen, onChoose }: BoxViewProps) {
  const text = useText();
  const opacity = useProgress()(box.at);
  const plain = ["embedding", "target", "logits"].includes(box.id);
  const normY = preNorm ? y + HEIGHT + 3 : y - 31;
  const joinY = y - (preNorm ? 12 : 7);
  const choose = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    onChoose();
  };
  return (
    <g style={{ opacity, "--c": `var(--${box.tone})` }} aria-hidden={opacity === 0}>
      {!plain && (
        <>
          <path class="residual" d={`M${x + WIDTH / 2},${y + HEIGHT + 30}V${y - 30}`} />
          <path
            class="residual around"
            d={`M${x + WIDTH / 2},${y + HEIGHT + 27}H${x + WIDTH + 4}V${joinY}H${x + WIDTH / 2}`}
          />
          <circle class="join" cx={x + WIDTH / 2} cy={joinY} r={5} />
          <rect class="norm" x={x + 30} y={normY} width={WIDTH - 60} height={18} rx={5} />
          <text class="small" x={x + WIDTH / 2} y={normY + 13}>
            {text("norm")}
          </text>
        </>
      )}
      <g
        class="box"
        role="button"
        tabindex={opacity > 0 ? 0 : -1}
        aria-pressed={chosen}
        aria-label={text(`box.${box.id}`)}
        data-box={box.id}
        onClick={onChoose}
        onKeyDown={choose}
      >
        <rect x={x} y={y} width={WIDTH} height={HEIGHT} rx={8} />
        <text x={x + WIDTH / 2} y={y + 23}>
          {text(`box.${box.id}`)}
        </text>
      </g>
    </g>
  );
}
