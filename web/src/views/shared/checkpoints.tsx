/** The attention of one example over the checkpoints of a run; a slider chooses the checkpoint. */
import { fill, strings } from "../../i18n";
import type { TraceInfo, ViewProps } from "../../types";
import { useAnswer } from "./answer";
import { Controls, Slider } from "./controls";
import { Notice, Ready } from "./notice";
import { AttentionPicker, selected, tokensOf } from "./selection";
import { WeightGrid } from "./weight_grid";
import { useWeights } from "./weights";

interface Checkpoint {
  step: number;
  trace: string;
}

type Props = Pick<ViewProps, "transport" | "state">;

export function CheckpointAttention({ run, transport, state }: Props & { run: string }) {
  const s = strings();
  const answer = useAnswer(
    run,
    (signal) =>
      transport.get(`runs/${encodeURIComponent(run)}/attention`, {}, signal) as Promise<{ checkpoints: Checkpoint[] }>,
  );
  return (
    <Ready answer={answer}>
      {({ checkpoints }) => {
        if (!checkpoints.length) return <Notice>{s["v.runs.no_checkpoints"]}</Notice>;
        const index = Math.min(checkpoints.length - 1, Math.round(state.number("checkpoint", checkpoints.length - 1)));
        return (
          <>
            <Slider
              label={s["v.runs.checkpoint"]}
              value={index}
              min={0}
              max={Math.max(1, checkpoints.length - 1)}
              step={1}
              text={fill(s["v.runs.step"], { step: checkpoints[index].step })}
              onInput={(value) => state.set("checkpoint", value)}
            />
            <TraceMap id={checkpoints[index].trace} transport={transport} state={state} />
          </>
        );
      }}
    </Ready>
  );
}

function TraceMap({ id, transport, state }: Props & { id: string }) {
  const answer = useAnswer(
    id,
    (signal) => transport.get(`traces/${encodeURIComponent(id)}`, {}, signal) as Promise<TraceInfo>,
    "checkpoint",
  );
  return <Ready answer={answer}>{(trace) => <TraceHead trace={trace} transport={transport} state={state} />}</Ready>;
}

function TraceHead({ trace, transport, state }: Props & { trace: TraceInfo }) {
  const selection = selected(trace, state);
  const answer = useWeights(transport, trace, selection);
  if (!selection) return null;
  const { rows, columns } = tokensOf(trace, selection.attention);
  return (
    <>
      <Controls>
        <AttentionPicker trace={trace} state={state} mean />
      </Controls>
      <Ready answer={answer}>
        {(frame) => (
          <WeightGrid label={selection.attention.path} rows={rows} columns={columns} data={frame.data} state={state} />
        )}
      </Ready>
    </>
  );
}
