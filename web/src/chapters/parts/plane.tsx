/** Vectors as arrows in a plane; their tips can be dragged, or moved with the arrow keys. */

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { formatNumber } from "../../i18n";
import { Block } from "./block";
import { useText } from "./context";
import type { Vector } from "./math";
import type { Tone } from "./squares";

const HALF = 160;

export interface Arrow {
  letter: string;
  tone: Tone;
  at: Vector;
  /** Without it the arrow cannot be moved. */
  onMove?: (at: Vector) => void;
  /** A point instead of an arrow. */
  point?: boolean;
  label?: string;
}

interface PlaneProps {
  arrows: Arrow[];
  /** The coordinate at the edge. */
  limit: number;
  name: string;
  children?: (toScreen: (at: Vector) => Vector) => ComponentChildren;
}

export function Plane({ arrows, limit, name, children }: PlaneProps) {
  const text = useText();
  const svg = useRef<SVGSVGElement>(null);
  const unit = HALF / limit;
  const toScreen = ([x, y]: Vector): Vector => [HALF + x * unit, HALF - y * unit];
  const toPlane = (event: PointerEvent): Vector => {
    const inverse = svg.current?.getScreenCTM()?.inverse();
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(inverse);
    return [(point.x - HALF) / unit, (HALF - point.y) / unit];
  };
  const lines = Array.from({ length: 2 * limit - 1 }, (_, i) => i + 1 - limit);
  return (
    <Block name={name} class="plane">
      <svg ref={svg} role="group" aria-label={text("plane")} viewBox={`0 0 ${2 * HALF} ${2 * HALF}`}>
        {lines.map((line) => (
          <path key={line} class={line === 0 ? "axis" : "grid"} d={gridLine(line, unit)} />
        ))}
        {children?.(toScreen)}
        {arrows.map((arrow) => (
          <Tip key={arrow.letter} {...{ arrow, limit, toScreen, toPlane }} />
        ))}
      </svg>
    </Block>
  );
}

const gridLine = (line: number, unit: number): string =>
  `M${HALF + line * unit},0V${2 * HALF}M0,${HALF - line * unit}H${2 * HALF}`;

interface TipProps {
  arrow: Arrow;
  limit: number;
  toScreen: (at: Vector) => Vector;
  toPlane: (event: PointerEvent) => Vector;
}

const STEPS: Record<string, Vector> = {
  ArrowUp: [0, 0.1],
  ArrowDown: [0, -0.1],
  ArrowLeft: [-0.1, 0],
  ArrowRight: [0.1, 0],
};

function Tip({ arrow, limit, toScreen, toPlane }: TipProps) {
  const { at, tone, letter, onMove, point } = arrow;
  const [x, y] = toScreen(at);
  const snap = (value: number) => Math.min(limit, Math.max(-limit, Math.round(value * 10) / 10));
  const move = (next: Vector) => onMove?.(next.map(snap));
  const onKeyDown = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    move(at.map((value, i) => value + step[i] * (event.shiftKey ? 10 : 1)));
  };
  const text = arrow.label ?? letter;
  const isBelow = at[1] < 0 !== Boolean(point && onMove); // labels of a point that moves and of one that stands
  const side = Math.abs(at[0]) > limit / 2 ? Math.sign(at[0]) : 0;
  const drawing = (
    <>
      {!point && <path class="arrow" d={arrowPath(toScreen([0, 0]), [x, y])} />}
      {onMove && <circle class="handle" cx={x} cy={y} r={14} />}
      <circle class="tip" cx={x} cy={y} r={point ? 7 : 4} />
      <text
        x={x + 14 * side}
        y={y + (isBelow ? 28 : -18)}
        text-anchor={side > 0 ? "end" : side < 0 ? "start" : "middle"}
      >
        {text}
      </text>
    </>
  );
  const style = { "--c": `var(--${tone})`, "--ink-c": `var(--${tone}-ink)` };
  if (!onMove)
    return (
      <g class="vector-arrow" style={style}>
        {drawing}
      </g>
    );
  return (
    <g
      class="vector-arrow movable"
      style={style}
      tabindex={0}
      role="slider"
      aria-label={text}
      aria-valuemin={-limit}
      aria-valuemax={limit}
      aria-valuenow={at[0]}
      aria-valuetext={`(${at.map((value) => formatNumber(value, 1)).join("; ")})`}
      onKeyDown={onKeyDown}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        event.currentTarget.focus();
      }}
      onPointerMove={(event) => event.currentTarget.hasPointerCapture(event.pointerId) && move(toPlane(event))}
    >
      {drawing}
    </g>
  );
}

/** A line with a head, from one point of the screen to another. */
function arrowPath([x0, y0]: Vector, [x1, y1]: Vector): string {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  const wing = (turn: number) => `${x1 - 11 * Math.cos(angle + turn)},${y1 - 11 * Math.sin(angle + turn)}`;
  return `M${x0},${y0}L${x1},${y1}M${wing(0.45)}L${x1},${y1}L${wing(-0.45)}`;
}
