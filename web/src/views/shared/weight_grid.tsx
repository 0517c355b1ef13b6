/** Weights of a small map as a grid with its scale. */
import { fill, formatNumber, formatPercent, strings } from "../../i18n";
import { tokenLabel } from "../../parts/token";
import { weightColor } from "../../theme/colors";
import type { Store } from "../../types";
import { largest } from "../geometry/lanes";
import { Grid } from "./grid";
import { ScaleLegend } from "./legend";

interface WeightGridProps {
  label: string;
  rows: string[];
  columns: string[];
  data: ArrayLike<number>;
  state: Store;
  /** Weights are percentages; other numbers are not. */
  percent?: boolean;
  /** The parameters of the state that hold the cursor. */
  keys?: [string, string];
}

export function WeightGrid({
  label,
  rows,
  columns,
  data,
  state,
  percent = true,
  keys = ["row", "column"],
}: WeightGridProps) {
  const s = strings();
  const top = largest(data) || 1;
  const text = (value: number) => (percent ? formatPercent(value) : formatNumber(value));
  const say = (row: number, column: number, value: number) =>
    fill(s["v.sentence"], {
      query: tokenLabel(rows[row]),
      key: tokenLabel(columns[column]),
      weight: text(value),
    });
  return (
    <div>
      <Grid
        label={label}
        rows={rows}
        columns={columns}
        data={data}
        color={(value) => weightColor(value / top)}
        format={(value) => (percent ? String(Math.round(100 * value)) : formatNumber(value, 1))}
        say={say}
        cursor={[state.number(keys[0], -1), state.number(keys[1], -1)]}
        onCursor={(row, column) => state.update({ [keys[0]]: row, [keys[1]]: column })}
      />
      <ScaleLegend color={(share) => weightColor(share)} texts={[percent ? "0 %" : "0", text(top)]} />
    </div>
  );
}
