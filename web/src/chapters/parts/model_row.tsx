/** One query of the loaded model: its scores, its weights, and its temperature. */
import { formatNumber } from "../../i18n";
import { tokenLabel } from "../../parts/token";
import { tokensOf } from "../../parts/tokens-of";
import { Bars, Ruler } from "./bars";
import { Checks } from "./checks";
import { useProps, useText } from "./context";
import { Slider } from "./controls";
import { keptIndex, keptNumber } from "./kept";
import { maxDifference, softmax } from "./math";
import { Model } from "./model";
import { matrixOf, useChosen, useFrame, useWeights } from "./remote";

export function ModelRow() {
  const text = useText();
  const { state } = useProps();
  const chosen = useChosen();
  const [row, setRow] = keptIndex(state, "row", (chosen?.rows ?? 1) - 1, chosen?.rows ?? 1);
  const [power, setPower] = keptNumber(state, "model_tau", 0, [-1, 1]);
  const all = useWeights(chosen)?.[0];
  const path = chosen ? `traces/${chosen.trace.id}/scores` : "";
  const frame = useFrame(path, chosen ? { attention: chosen.attention, head: chosen.head, row } : {});
  if (!chosen || !all) return null;
  const scores = frame && matrixOf({ ...frame, shape: [1, frame.data.length] })[0];
  const weights = scores ? softmax(scores, 10 ** power) : all[row];
  const tokens = tokensOf(chosen.trace, chosen.info);
  const best = strongest(weights, 6);
  const pick = (values: number[]) => best.map((i) => values[i]);
  const labels = best.map((i) => tokenLabel(tokens.columns[i]) ?? String(i));
  const recorded = scores && softmax(scores).slice(0, chosen.columns);
  return (
    <Model
      chosen={chosen}
      row={{ value: row, tokens: tokens.rows.slice(0, chosen.rows).map(tokenLabel), onChange: setRow }}
    >
      {scores && (
        <Bars
          name="model scores"
          title={text("model.scores")}
          labels={labels}
          values={pick(scores)}
          tone="query"
          limit={Math.max(...pick(scores).map(Math.abs))}
        />
      )}
      <Ruler name="model weights" title={text("model.weights")} labels={labels} weights={pick(weights)} />
      {scores && (
        <Slider
          label={text("temperature")}
          value={power}
          limits={[-1, 1]}
          step={0.05}
          shown={`τ = ${formatNumber(10 ** power, 2)}`}
          onChange={setPower}
        />
      )}
      {recorded && (
        <Checks checks={[{ name: "model.same", error: maxDifference([recorded], [all[row]]), tolerance: 1e-3 }]} />
      )}
    </Model>
  );
}

/** The indices of the largest values, in their order in the sequence. */
const strongest = (values: number[], count: number): number[] =>
  values
    .map((_, i) => i)
    .sort((a, b) => values[b] - values[a])
    .slice(0, count)
    .sort((a, b) => a - b);
