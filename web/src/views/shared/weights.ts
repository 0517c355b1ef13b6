/** Weights of a head, or of the mean of all heads: the whole map or one row of it. */
import type { Frame, Query, TraceInfo, Transport } from "../../types";
import { type Answer, useAnswer } from "./answer";
import type { Kind } from "./kinds";
import { endpoint, type Selection } from "./selection";

interface Part {
  kind?: Kind;
  /** One row; default: all. */
  row?: number;
}

/** The weights of a selection; no selection, or a row below 0: no request. */
export function useWeights(
  transport: Transport,
  trace: TraceInfo,
  selection: Selection | null,
  { kind = "weights", row }: Part = {},
): Answer<Frame> {
  const hasRequest = selection !== null && (row === undefined || row >= 0);
  const { path = "", rows = 0, columns = 0 } = selection?.attention ?? {};
  const query: Query = { attention: path, head: selection?.head ?? 0, kind };
  if (row !== undefined) query.rows = `${row}:${row + 1}`;
  return useAnswer(
    hasRequest ? `${trace.id} ${JSON.stringify(query)}` : null,
    (signal) => transport.frame(endpoint(trace, "weights"), query, signal),
    hasRequest ? `${kind} ${path} ${rows} ${columns} ${row === undefined}` : null,
  );
}
