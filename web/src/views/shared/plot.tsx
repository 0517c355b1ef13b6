/** Curves of several runs in one plot, with a cursor that reads their values. */
import { useState } from "preact/hooks";
import { fill, formatNumber, strings } from "../../i18n";
import { path, place, range, ticks } from "../geometry/curves";

/** The answer to GET curves: [step, value] of each series. */
export interface Curves {
  series: Record<string, [number, number][]>;
}

interface Curve {
  name: string;
  points: [number, number][];
}

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [640, 220, 52, 24];
const STYLES = ["query", "key", "value", "output", "weight", "input"];

export function Plot({ label, curves }: { label: string; curves: Curve[] }) {
  const s = strings();
  const [at, setAt] = useState<number | null>(null);
  const points = curves.flatMap((curve) => curve.points);
  if (!points.length) return <p class="v-hint">{s["v.runs.no_curves"]}</p>;
  const x = range(points.map(([step]) => step));
  const y = range(points.map(([, value]) => value));
  const steps = [...new Set(points.map(([step]) => step))].sort((a, b) => a - b);
  const index = at === null ? steps.length - 1 : Math.min(at, steps.length - 1);
  const step = steps[index];
  const [width, height] = [WIDTH - LEFT - 8, HEIGHT - BOTTOM - 8];
  return (
    <figure class="v-plot">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
        <g transform={`translate(${LEFT},8)`}>
          {ticks(y).map((tick) => (
            <g key={`y${tick}`} transform={`translate(0,${height - place(tick, y, height)})`}>
              <line class="v-gridline" x2={width} />
              <text x={-6} y={4} text-anchor="end">
                {tick}
              </text>
            </g>
          ))}
          {ticks(x, 6).map((tick) => (
            <text key={`x${tick}`} x={place(tick, x, width)} y={height + 18} text-anchor="middle">
              {tick}
            </text>
          ))}
          <line class="v-cursor-line" x1={place(step, x, width)} x2={place(step, x, width)} y2={height} />
          {curves.map(({ name, points }, number) => (
            <g
              key={name}
              class={`v-curve role-${STYLES[number % STYLES.length]} dash-${Math.floor(number / STYLES.length)}`}
            >
              <path
                d={path(
                  points.map(([px, py]) => ({ x: px, y: py })),
                  x,
                  y,
                  width,
                  height,
                )}
              />
              {points.length === 1 && (
                <circle cx={place(points[0][0], x, width)} cy={height - place(points[0][1], y, height)} r={3} />
              )}
            </g>
          ))}
        </g>
      </svg>
      <label class="v-field v-slider">
        <span>{fill(s["v.runs.step"], { step })}</span>
        <input
          type="range"
          min={0}
          max={Math.max(1, steps.length - 1)}
          value={index}
          onInput={(event) => setAt(Number(event.currentTarget.value))}
        />
      </label>
      <ul class="v-keys">
        {curves.map((curve, number) => (
          <li key={curve.name} class={`role-${STYLES[number % STYLES.length]}`}>
            {curve.name}: {readAt(curve, step)}
          </li>
        ))}
      </ul>
    </figure>
  );
}

/** The last value until a step. */
function readAt({ points }: Curve, step: number): string {
  const found = points.findLast(([one]) => one <= step);
  return found ? formatNumber(found[1], 4) : "–";
}
