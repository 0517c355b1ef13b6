/** Statistics of a query beside its head, and of the keys. */
import { fill, formatNumber, formatPercent, strings } from "../../i18n";

/** The answer to GET lanes: a number for each query, and `received_mass` for each key. */
export interface Lanes {
  entropy: number[];
  max: number[];
  mean_distance: number[];
  received_mass: number[];
  top?: [number, number][][];
}

interface LaneNumbersProps {
  lanes: Lanes;
  row: number;
  tokens: string[];
}

/** The statistics of one query, or the means over all queries while none is chosen. */
export function LaneNumbers({ lanes, row, tokens }: LaneNumbersProps) {
  const s = strings();
  const one = row >= 0 && row < lanes.entropy.length;
  const of = (values: number[]) => (one ? values[row] : mean(values));
  return (
    <table class="v-table">
      <caption>{one ? fill(s["v.lanes.of"], { token: tokens[row] }) : s["v.lanes.mean"]}</caption>
      <tbody>
        <tr>
          <th scope="row">{s["v.lanes.entropy"]}</th>
          <td class="v-number">{formatNumber(of(lanes.entropy))}</td>
        </tr>
        <tr>
          <th scope="row">{s["v.lanes.max"]}</th>
          <td class="v-number">{formatPercent(of(lanes.max))}</td>
        </tr>
        <tr>
          <th scope="row">{s["v.lanes.distance"]}</th>
          <td class="v-number">{formatNumber(of(lanes.mean_distance), 1)}</td>
        </tr>
      </tbody>
    </table>
  );
}

const mean = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
