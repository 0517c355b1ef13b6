/** Lines between the tokens of two columns: one for each weight that is drawn. */

export interface Line {
  row: number;
  column: number;
  weight: number;
  /** Path of the curve, from the query at the left to the key at the right. */
  path: string;
  /** Stroke width in pixels. */
  width: number;
}

export interface LineLayout {
  rowHeight: number;
  left: number;
  right: number;
  /** Lines of a query until this share of its weight is drawn; the rest would be a grey mist. */
  mass: number;
  widest: number;
}

export const LINE_TOKENS = 32;
/** The most tokens that lines can show; beyond, the matrix is readable and lines are not. */

export const layoutOf = (width: number): LineLayout => ({
  rowHeight: 26,
  left: 0,
  right: width,
  mass: 0.9,
  widest: 14,
});

/** The middle of a token's row. */
export const middle = (index: number, layout: LineLayout): number => (index + 0.5) * layout.rowHeight;

/** The keys with the largest weights that together hold the share `mass` of a row, largest first. */
export function strongest(weights: ArrayLike<number>, mass: number): number[] {
  const order = Array.from(weights, (_, index) => index).sort((a, b) => weights[b] - weights[a] || a - b);
  const total = order.reduce((sum, index) => sum + weights[index], 0);
  const chosen: number[] = [];
  let held = 0;
  for (const index of order) {
    if (weights[index] <= 0 || held >= mass * total) break;
    chosen.push(index);
    held += weights[index];
  }
  return chosen;
}

/** The lines of a map [rows, columns], or of some of its rows from `first` on. */
export function lines(data: ArrayLike<number>, columns: number, layout: LineLayout, first = 0): Line[] {
  const rows = Math.floor(data.length / columns);
  return Array.from({ length: rows }, (_, row) => row).flatMap((row) => {
    const weights = Array.from({ length: columns }, (_, column) => data[row * columns + column]);
    return strongest(weights, layout.mass).map((column) => line(first + row, column, weights[column], layout));
  });
}

function line(row: number, column: number, weight: number, layout: LineLayout): Line {
  const { left, right } = layout;
  const [from, to, bend] = [middle(row, layout), middle(column, layout), (right - left) * 0.4];
  const path = `M${left},${from} C${left + bend},${from} ${right - bend},${to} ${right},${to}`;
  return { row, column, weight, path, width: Math.max(0.5, weight * layout.widest) };
}
