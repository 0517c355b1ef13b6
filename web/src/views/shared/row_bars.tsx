/** The keys of one query, those of the largest numbers first, whatever their sign. */
import { formatPercent } from "../../i18n";
import { TokenText } from "../../parts/token";
import { topK } from "../geometry/top";

interface RowBarsProps {
  caption: string;
  /** A number for each key. */
  values: ArrayLike<number>;
  tokens: string[];
  count?: number;
  format?: (value: number) => string;
  onChoose?: (index: number) => void;
}

export function RowBars({ caption, values, tokens, count = 8, format = formatPercent, onChoose }: RowBarsProps) {
  const order = topK(Array.from(values, Math.abs), count);
  const most = Math.max(...order.map((index) => Math.abs(values[index])), 1e-9);
  return (
    <table class="v-table v-candidates">
      <caption>{caption}</caption>
      <tbody>
        {order.map((index) => (
          <tr key={index} data-index={index} data-value={values[index]}>
            <td class="v-number v-soft">{index}</td>
            <th scope="row">
              {onChoose ? (
                <button type="button" onClick={() => onChoose(index)}>
                  <TokenText token={tokens[index]} />
                </button>
              ) : (
                <TokenText token={tokens[index]} />
              )}
            </th>
            <td class="v-number">{format(values[index])}</td>
            <td class="v-bar-cell">
              <span class={values[index] < 0 ? "v-bar negative" : "v-bar weight"} aria-hidden="true">
                <span style={{ width: `${(100 * Math.abs(values[index])) / most}%` }} />
              </span>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
