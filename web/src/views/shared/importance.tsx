/** Two measures of a feature side by side: the attention it receives, and the loss when it is permuted. */
import { useState } from "preact/hooks";
import { fill, formatNumber, formatPercent, strings } from "../../i18n";
import { nextSorting, type Sorting, sortRows } from "../geometry/table";

/** The answer to GET table/importance; null where a measure does not apply to a feature. */
export interface FeatureImportance {
  names: string[];
  attention: (number | null)[];
  permutation: (number | null)[];
  permutation_std: (number | null)[];
  disagreement: boolean[];
  rows: number;
  /** Attention between features, the mean over rows, heads and blocks, where it is known; null for no attention. */
  features?: string[];
  attention_matrix?: (number | null)[][];
}

const MEASURES = ["attention", "permutation"] as const;

export function ImportanceTable({ importance }: { importance: FeatureImportance }) {
  const s = strings();
  const [sorting, setSorting] = useState<Sorting>({ column: "permutation", descending: true });
  const measure = MEASURES.find((name) => name === sorting.column) ?? "permutation";
  const order = sortRows(
    importance.names.map((_, index) => index),
    (index) => importance[measure][index],
    sorting.descending,
  );
  const most = (name: (typeof MEASURES)[number]) => Math.max(...importance[name].map((value) => value ?? 0), 1e-9);
  return (
    <div class="v-scroll">
      <table class="v-table v-importance">
        <caption>{fill(s["v.table.measured"], { rows: importance.rows })}</caption>
        <thead>
          <tr>
            <th scope="col">{s["v.table.feature"]}</th>
            {MEASURES.map((name) => (
              <th
                key={name}
                scope="col"
                colSpan={2}
                aria-sort={measure !== name ? "none" : sorting.descending ? "descending" : "ascending"}
              >
                <button type="button" onClick={() => setSorting(nextSorting(sorting, name))}>
                  {s[`v.table.${name}`]}
                  <span aria-hidden="true">{measure !== name ? "" : sorting.descending ? " ▼" : " ▲"}</span>
                </button>
              </th>
            ))}
            <td />
          </tr>
        </thead>
        <tbody>
          {order.map((index) => (
            <tr key={index}>
              <th scope="row">{importance.names[index]}</th>
              <Measure hue="weight" value={importance.attention[index]} most={most("attention")} text={formatPercent} />
              <Measure
                value={importance.permutation[index]}
                most={most("permutation")}
                text={(value) => formatNumber(value, 3) + deviation(importance.permutation_std[index])}
              />
              <td>{importance.disagreement[index] ? s["v.table.disagree"] : ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const deviation = (value: number | null): string => (value === null ? "" : ` ± ${formatNumber(value, 3)}`);

interface MeasureProps {
  /** Its color; default: that of outputs. */
  hue?: string;
  value: number | null;
  most: number;
  text: (value: number) => string;
}

const Measure = ({ hue = "", value, most, text }: MeasureProps) => (
  <>
    <td class="v-number">{value === null ? "–" : text(value)}</td>
    <td class="v-bar-cell">
      <span class={`v-bar ${hue}`} aria-hidden="true">
        <span style={{ width: `${(100 * Math.max(0, value ?? 0)) / most}%` }} />
      </span>
    </td>
  </>
);
