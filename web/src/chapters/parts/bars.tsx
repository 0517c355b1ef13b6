/** Bars of signed numbers, and a ruler of length 1 cut by weights. */
import { formatNumber, formatPercent } from "../../i18n";
import { Block } from "./block";
import type { Vector } from "./math";
import type { Tone } from "./squares";

interface BarsProps {
  name: string;
  title: string;
  labels: string[];
  values: Vector;
  tone: Tone;
  /** The length of the longest bar. */
  limit: number;
  digits?: number;
  /** From zero to the right only. */
  positive?: boolean;
}

export function Bars({ name, title, labels, values, tone, limit, digits = 2, positive = false }: BarsProps) {
  const share = (value: number) => Math.min(1, Math.abs(value) / limit) * (positive ? 100 : 50);
  return (
    <Block name={name} class="bars">
      <p class={`caption ink-${tone}`}>{title}</p>
      <ul data-name={name} style={{ "--c": `var(--${tone})` }}>
        {values.map((value, i) => (
          <li key={i} data-value={value}>
            <span class="label">{labels[i]}</span>
            <span class={positive ? "track" : "track signed"}>
              <span
                class={value < 0 ? "bar negative" : "bar"}
                style={{ width: `${share(value)}%`, left: positive ? "0" : `${value < 0 ? 50 - share(value) : 50}%` }}
              />
            </span>
            <span class="number">{formatNumber(value, digits)}</span>
          </li>
        ))}
      </ul>
    </Block>
  );
}

interface RulerProps {
  name: string;
  title: string;
  labels: string[];
  weights: Vector;
}

/** Shares of a ruler of length 1. */
export function Ruler({ name, title, labels, weights }: RulerProps) {
  return (
    <Block name={name} class="ruler">
      <p class="caption ink-weight">{title}</p>
      <div class="strip" data-name={name}>
        {weights.map((weight, i) => (
          <span key={i} class="share" style={{ width: `${weight * 100}%` }} data-value={weight}>
            {weight > 0.09 && <b>{labels[i]}</b>}
            {weight > 0.09 && <small>{formatPercent(weight)}</small>}
          </span>
        ))}
      </div>
      <div class="scale" aria-hidden="true">
        <span>0</span>
        <span>{formatNumber(0.5, 1)}</span>
        <span>1</span>
      </div>
    </Block>
  );
}
