/** The attention of the query that predicted a token: which of the tokens before it was read from. */
import { strings } from "../../i18n";
import type { Store, TraceInfo, Transport } from "../../types";
import { useAnswer } from "./answer";
import { Controls } from "./controls";
import { Ready } from "./notice";
import { RowBars } from "./row_bars";
import { AttentionPicker, selected, tokensOf } from "./selection";
import { useWeights } from "./weights";

interface StepAttentionProps {
  transport: Transport;
  state: Store;
  trace: string;
  /** How many tokens of the trace follow the one whose prediction is shown. */
  behind: number;
}

export function StepAttention({ transport, state, trace, behind }: StepAttentionProps) {
  const answer = useAnswer(
    trace,
    (signal) => transport.get(`traces/${encodeURIComponent(trace)}`, {}, signal) as Promise<TraceInfo>,
    "step",
  );
  return (
    <Ready answer={answer}>
      {(info) => <StepRow transport={transport} state={state} trace={info} behind={behind} />}
    </Ready>
  );
}

type StepRowProps = Omit<StepAttentionProps, "trace"> & { trace: TraceInfo };

function StepRow({ transport, state, trace, behind }: StepRowProps) {
  const s = strings();
  const selection = selected(trace, state);
  const rows = selection?.attention.rows ?? 1;
  // The query before a token predicted it: of a trace that ends with the token, that is the last but one.
  const row = Math.max(0, Math.min(rows - 1, trace.rowTokens.length - 2 - behind));
  const answer = useWeights(transport, trace, selection, { row });
  if (!selection) return null;
  return (
    <div>
      <Controls>
        <AttentionPicker trace={trace} state={state} mean />
      </Controls>
      <Ready answer={answer}>
        {(frame) => (
          <RowBars
            caption={s["v.generate.attention"]}
            values={frame.data}
            tokens={tokensOf(trace, selection.attention).columns}
          />
        )}
      </Ready>
    </div>
  );
}
