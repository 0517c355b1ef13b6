/** The dot products of the loaded model, before and after its scale. */
import { formatNumber } from "../../i18n";
import type { Query } from "../../types";
import { useText } from "./context";
import { dot, variance } from "./math";
import { Model } from "./model";
import { first, type QueryKey } from "./model_cell";
import { useAnswer, useChosen } from "./remote";

export function ModelScale() {
  const text = useText();
  const chosen = useChosen();
  const path = chosen ? `traces/${chosen.trace.id}/qk` : "";
  const block: Query = chosen
    ? { attention: chosen.attention, head: chosen.head, rows: `0:${chosen.rows}`, columns: `0:${chosen.columns}` }
    : {};
  const numbers = useAnswer<QueryKey>(path, block);
  if (!chosen || !numbers || !Array.isArray(numbers.query[0])) return null;
  const [query, key] = [numbers.query as number[][], numbers.key as number[][]];
  const products = query.flatMap((q) => key.map((k) => dot(q, k)));
  const before = variance(products);
  return (
    <Model chosen={chosen}>
      <dl class="facts">
        <dt>d</dt>
        <dd>{first<number>(query).length}</dd>
        <dt>{text("model.factor")}</dt>
        <dd>{formatNumber(numbers.scale, 4)}</dd>
        <dt>{text("model.before")}</dt>
        <dd>{formatNumber(before, 2)}</dd>
        <dt>{text("model.after")}</dt>
        <dd>{formatNumber(before * numbers.scale ** 2, 3)}</dd>
      </dl>
    </Model>
  );
}
