/** Maps of the loaded model: one head, all heads, and the mean weight of each distance. */
import { useState } from "preact/hooks";
import { fill, formatPercent } from "../../i18n";
import { tokenLabel } from "../../parts/token";
import { tokensOf } from "../../parts/tokens-of";
import type { AttentionInfo } from "../../types";
import { Bars } from "./bars";
import { useText } from "./context";
import { type Matrix, mean } from "./math";
import { Model } from "./model";
import { useChosen, useWeights } from "./remote";
import { type Cursor, MatrixBlock } from "./squares";

interface ModelMapProps {
  kinds?: AttentionInfo["kind"][];
  /** The key of the text for a model without attention of these kinds, of which another one is shown. */
  otherwise?: string;
}

/** The map of one head; a sentence says what the chosen cell is. */
export function ModelMap({ kinds, otherwise }: ModelMapProps) {
  const text = useText();
  const wanted = useChosen(kinds);
  const other = useChosen();
  const chosen = wanted ?? (otherwise ? other : null);
  const weights = useWeights(chosen)?.[0];
  const [cursor, setCursor] = useState<Cursor | null>(null);
  if (!chosen || !weights) return null;
  const tokens = tokensOf(chosen.trace, chosen.info);
  const rows = tokens.rows.slice(0, chosen.rows).map(tokenLabel);
  const columns = tokens.columns.slice(0, chosen.columns).map(tokenLabel);
  const here = cursor && weights[cursor.row]?.[cursor.column];
  return (
    <Model chosen={chosen} about={wanted ? "model" : otherwise}>
      <div class="wide">
        <MatrixBlock
          letter="A"
          values={weights}
          tone="weight"
          limit={1}
          digits={2}
          small
          {...{ rows, columns, cursor }}
          onCursor={setCursor}
        />
      </div>
      <p class="remark" aria-live="polite">
        {cursor && here !== null && here !== undefined
          ? fill(text("model.says"), {
              row: rows[cursor.row],
              column: columns[cursor.column],
              share: formatPercent(here),
            })
          : text("model.point")}
      </p>
    </Model>
  );
}

/** All heads of a layer, small. */
export function ModelHeads() {
  const chosen = useChosen();
  const heads = useWeights(chosen, -1);
  if (!chosen || !heads) return null;
  return (
    <Model chosen={chosen} allHeads>
      <div class="gallery">
        {heads.map((weights, i) => (
          <MatrixBlock key={i} letter={`A_${i + 1}`} values={weights} tone="weight" limit={1} small mark="tiny" />
        ))}
      </div>
    </Model>
  );
}

/** The mean weight of the keys at a distance, as far as they are visible. */
export function offsetMeans(weights: Matrix, reach: number): { offsets: number[]; means: number[] } {
  const offsets = Array.from({ length: 2 * reach + 1 }, (_, i) => i - reach);
  const means = offsets.map((offset) => {
    const cells = weights.flatMap((row, i) => (row[i + offset] === undefined ? [] : [row[i + offset]]));
    return cells.length ? mean(cells) : 0;
  });
  return { offsets, means };
}

export function ModelOffsets() {
  const text = useText();
  const chosen = useChosen(["self", "causal"]);
  const weights = useWeights(chosen)?.[0];
  if (!chosen || !weights) return null;
  const { offsets, means } = offsetMeans(weights, 4);
  const labels = offsets.map((offset) => (offset > 0 ? `+${offset}` : String(offset).replace("-", "−")));
  return (
    <Model chosen={chosen}>
      <Bars
        name="offsets"
        title={text("model.offsets")}
        labels={labels}
        values={means}
        tone="weight"
        limit={1}
        digits={3}
        positive
      />
    </Model>
  );
}
