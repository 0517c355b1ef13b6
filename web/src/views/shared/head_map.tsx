/** The matrix of one head. */
import { strings } from "../../i18n";
import { MapPanel } from "../../parts/map";
import type { Store, TraceInfo, Transport } from "../../types";
import type { Kind } from "./kinds";
import { Notice, Ready } from "./notice";
import { type Selection, tokensOf } from "./selection";
import { WeightGrid } from "./weight_grid";
import { useWeights } from "./weights";

interface HeadMapProps {
  trace: TraceInfo;
  transport: Transport;
  state: Store;
  selection: Selection;
  kind: Kind;
}

/** Weights as a map of any length; values weighted by norms as a grid; contributions are those of one row. */
export function HeadMap(props: HeadMapProps) {
  const { trace, transport, state, selection, kind } = props;
  if (kind === "value_weighted") return <ValueWeighted {...props} />;
  const { attention, head } = selection;
  return (
    <div>
      {kind === "contribution" && <Notice>{strings()["v.contribution.choose"]}</Notice>}
      <MapPanel key={`${attention.path} ${head}`} {...{ trace, transport, state, attention, head }} />
    </div>
  );
}

function ValueWeighted({ trace, transport, state, selection, kind }: HeadMapProps) {
  const answer = useWeights(transport, trace, selection, { kind });
  const { rows, columns } = tokensOf(trace, selection.attention);
  const label = strings()["v.kind.of.value_weighted"];
  return (
    <Ready answer={answer}>
      {(frame) => <WeightGrid {...{ label, rows, columns, state }} data={frame.data} percent={false} />}
    </Ready>
  );
}
