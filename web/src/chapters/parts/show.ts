/** Numbers as text. */
import { formatNumber } from "../../i18n";

/** A number with few digits; powers of ten where it is long. */
export function compact(value: number, digits = 2): string {
  if (Number.isFinite(value) && Math.abs(value) >= 1e4) return value.toExponential(1).replace("e+", "e");
  return formatNumber(value, digits);
}

/** A number for a formula; a negative one stands in parentheses. */
export const term = (value: number, digits = 1): string =>
  value < 0 ? `(${formatNumber(value, digits)})` : formatNumber(value, digits);

/** "a x b + c x d" of two vectors, in the colors of their roles. */
export const products = (x: number[], y: number[], roles: [string, string], digits = 1): string =>
  x.map((value, i) => `\\${roles[0]}{${term(value, digits)}}\\cdot\\${roles[1]}{${term(y[i], digits)}}`).join("+");

/** "softmax" of the first values, for a formula. */
export const list = (x: number[], digits = 2): string =>
  `(${x.map((value) => formatNumber(value, digits)).join("; ")})`;
