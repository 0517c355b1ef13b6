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

/** The width of a column, the height of a sub-layer, and the place of the residual stream in a column. */
const [WIDTH, UNIT, STREAM] = [196, 104, 34];
const [BOX_LEFT, BOX_WIDTH, BOX_HEIGHT] = [66, 124, 32];
const [TALL, FLOOR, GAP] = [434, 384, 30];

interface Place {
  /** The left edge of the column, and the bottom of the part. */
  x: number;
  bottom: number;
}

/** The embedding stands at the bottom, sub-layers above it, the logits above the stack. */
function placeOf(index: number): Place {
  const decoder = index >= ENCODER.length;
  const height = decoder ? index - ENCODER.length : index;
  const logits = BOXES[index].id === "logits";
  const bottom = height === 0 ? TALL - 8 : FLOOR - (height - 1) * UNIT - (logits ? GAP : 0);
  return { x: decoder ? WIDTH + 10 : 0, bottom };
}

interface DiagramProps {
  preNorm: boolean;
  chosen: number;
  setChosen: (index: number) => void;
}

export function Diagram({ preNorm, chosen, setChosen }: DiagramProps) {
  const text = useText();
  return (
    <svg class="diagram" viewBox={`-2 0 410 ${TALL}`} role="group" aria-label={text("diagram")}>
      <defs>
        <marker
          id="stream-head"
          viewBox="0 0 8 8"
          refX="6"
          refY="4"
          markerWidth="11"
          markerHeight="11"
          markerUnits="userSpaceOnUse"
          orient="auto"
        >
          <path d="M0,0L8,4L0,8z" />
        </marker>
      </defs>
      <Stack x={0} units={2} label={text("encoder")} at={2} preNorm={preNorm} />
      <Stack x={WIDTH + 10} units={3} label={text("decoder")} at={4} preNorm={preNorm} />
      <KeysAndValues preNorm={preNorm} />
      {BOXES.map((box, index) => (
        <Part
          key={box.id}
          {...{ box, preNorm }}
          {...placeOf(index)}
          chosen={chosen === index}
          onChoose={() => setChosen(index)}
        />
      ))}
    </svg>
  );
}

interface StackProps {
  x: number;
  units: number;
  label: string;
  at: number;
  preNorm: boolean;
}

/** The frame of the layers that repeat, with the stream through all of them; pre-norm ends with one more norm. */
function Stack({ x, units, label, at, preNorm }: StackProps) {
  const opacity = useProgress()(at);
  const top = FLOOR - units * UNIT;
  const text = useText();
  return (
    <g style={{ opacity }}>
      <rect class="stack" x={x} y={top} width={WIDTH} height={units * UNIT} rx={12} />
      <text class="stack-label" x={x + WIDTH - 8} y={top - 8}>
        {`${label} · L ×`}
      </text>
      <path class="stream" d={`M${x + STREAM},${FLOOR + 8}V${top - GAP + 4}`} marker-end="url(#stream-head)" />
      {preNorm && <Norm x={x + STREAM} y={top - 19} label={text("norm")} />}
    </g>
  );
}

/** Keys and values go from the top of the encoder to the cross-attention. */
function KeysAndValues({ preNorm }: { preNorm: boolean }) {
  const opacity = useProgress()(5);
  const cross = placeOf(BOXES.findIndex(({ id }) => id === "cross"));
  const y = boxTop(cross.bottom, preNorm) + BOX_HEIGHT / 2;
  const from = FLOOR - 2 * UNIT - GAP;
  return (
    <g style={{ opacity }}>
      <path class="halo" d={`M${WIDTH + 5},${y}H${cross.x + BOX_LEFT - 4}`} />
      <path class="pipe" d={`M${STREAM},${from + 2}V${from - 12}H${WIDTH + 5}V${y}H${cross.x + BOX_LEFT - 4}`} />
      <text class="pipe-label" x={STREAM + 12} y={from - 18}>
        K, V
      </text>
    </g>
  );
}

function Norm({ x, y, label }: { x: number; y: number; label: string }) {
  return (
    <>
      <rect class="norm" x={x - 28} y={y} width={56} height={18} rx={5} />
      <text class="small" x={x} y={y + 13}>
        {label}
      </text>
    </>
  );
}

const boxTop = (bottom: number, preNorm: boolean): number => bottom - (preNorm ? 78 : 58);

interface PartProps extends Place {
  box: Box;
  preNorm: boolean;
  chosen: boolean;
  onChoose: () => void;
}

/** A box; a sub-layer leaves the stream and comes back to it at a plus. */
function Part({ box, preNorm, x, bottom, chosen, onChoose }: PartProps) {
  const opacity = useProgress()(box.at);
  const plain = ["embedding", "target", "logits"].includes(box.id);
  const frame = plain
    ? { x: x + 8, y: bottom - BOX_HEIGHT, width: WIDTH - 16 }
    : { x: x + BOX_LEFT, y: boxTop(bottom, preNorm), width: BOX_WIDTH };
  return (
    <g style={{ opacity, "--c": `var(--${box.tone})` }} aria-hidden={opacity === 0}>
      {!plain && <Branch x={x} bottom={bottom} preNorm={preNorm} />}
      <BoxButton {...{ box, chosen, onChoose, frame }} visible={opacity > 0} />
    </g>
  );
}

/** The way out of the stream, through the norm (pre-norm) and the box, and back; post-norm norms the stream itself. */
function Branch({ x, bottom, preNorm }: { x: number; bottom: number; preNorm: boolean }) {
  const text = useText();
  const [stream, middle, top] = [x + STREAM, x + BOX_LEFT + BOX_WIDTH / 2, boxTop(bottom, preNorm)];
  const plus = top - 13;
  return (
    <>
      <path
        class="branch"
        d={`M${stream},${bottom - 8}H${middle}V${top + BOX_HEIGHT + 2}`}
        marker-end="url(#stream-head)"
      />
      <path class="branch" d={`M${middle},${top}V${plus}H${stream + 9}`} marker-end="url(#stream-head)" />
      <circle class="join" cx={stream} cy={plus} r={8} />
      <path class="plus" d={`M${stream - 4},${plus}h8M${stream},${plus - 4}v8`} />
      {preNorm ? (
        <Norm x={middle} y={bottom - 37} label={text("norm")} />
      ) : (
        <Norm x={stream} y={bottom - 100} label={text("norm")} />
      )}
    </>
  );
}

interface BoxButtonProps {
  box: Box;
  chosen: boolean;
  onChoose: () => void;
  frame: { x: number; y: number; width: number };
  visible: boolean;
}

function BoxButton({ box, chosen, onChoose, frame, visible }: BoxButtonProps) {
  const text = useText();
  const choose = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    onChoose();
  };
  return (
    <g
      class="box"
      role="button"
      tabindex={visible ? 0 : -1}
      aria-pressed={chosen}
      aria-label={text(`box.${box.id}`)}
      data-box={box.id}
      onClick={onChoose}
      onKeyDown={choose}
    >
      <rect {...frame} height={BOX_HEIGHT} rx={8} />
      <text x={frame.x + frame.width / 2} y={frame.y + 21}>
        {text(`box.${box.id}`)}
      </text>
    </g>
  );
}
