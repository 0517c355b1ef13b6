/** Numbers of the loaded model. */
import { useEffect, useState } from "preact/hooks";
import type { AttentionInfo, Frame, Query, TraceInfo } from "../../types";
import { useProps } from "./context";
import type { Matrix } from "./math";

/** Rows and columns that a chapter shows of a longer sequence. */
export const SHOWN = 20;

export interface Chosen {
  trace: TraceInfo;
  info: AttentionInfo;
  attention: number;
  head: number;
  /** How many rows and columns are shown. */
  rows: number;
  columns: number;
}

/** The head that is chosen, or null without a trace. */
export function useChosen(kinds?: AttentionInfo["kind"][]): Chosen | null {
  const { trace, state } = useProps();
  if (!trace?.attentions.length) return null;
  const first = trace.attentions.findIndex(({ kind }) => !kinds || kinds.includes(kind));
  if (first < 0) return null;
  const requested = state.number("attention", first);
  const usable = trace.attentions[requested] && (!kinds || kinds.includes(trace.attentions[requested].kind));
  const attention = usable ? requested : first;
  const info = trace.attentions[attention];
  const head = Math.min(Math.max(0, Math.round(state.number("head", 0))), info.heads - 1);
  return { trace, info, attention, head, rows: Math.min(SHOWN, info.rows), columns: Math.min(SHOWN, info.columns) };
}

/** What `load` answers; null while it is loading or where the trace does not have it. */
function useRemote<T>(load: (signal: AbortSignal) => Promise<T>, key: string): T | null {
  const [answer, setAnswer] = useState<{ key: string; value: T } | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    if (key)
      load(abort.signal).then(
        (value) => abort.signal.aborted || setAnswer({ key, value }),
        () => {}, // a recording without these numbers: the part is not shown
      );
    return () => abort.abort();
  }, [key]);
  return answer && answer.key === key ? answer.value : null;
}

export function useFrame(path: string, query: Query): Frame | null {
  const { transport } = useProps();
  return useRemote((signal) => transport.frame(path, query, signal), path && path + JSON.stringify(query));
}

export function useAnswer<T>(path: string, query: Query): T | null {
  const { transport } = useProps();
  return useRemote((signal) => transport.get(path, query, signal) as Promise<T>, path && path + JSON.stringify(query));
}

/** Matrix `index` of a frame of shape (rows, columns) or (heads, rows, columns). */
export function matrixOf(frame: Frame, index = 0): Matrix {
  const [rows, columns] = frame.shape.slice(-2);
  return Array.from({ length: rows }, (_, i) => {
    const start = (index * rows + i) * columns;
    return Array.from(frame.data.slice(start, start + columns));
  });
}

/** The weights of the chosen head, cut to what is shown. */
export function useWeights(chosen: Chosen | null, head: number | null = null): Matrix[] | null {
  const path = chosen ? `traces/${chosen.trace.id}/weights` : "";
  const query: Query = chosen
    ? {
        attention: chosen.attention,
        head: head ?? chosen.head,
        rows: `0:${chosen.rows}`,
        columns: `0:${chosen.columns}`,
        kind: "weights",
      }
    : {};
  const frame = useFrame(path, query);
  if (!frame) return null;
  const count = frame.shape.length === 3 ? frame.shape[0] : 1;
  return Array.from({ length: count }, (_, i) => matrixOf(frame, i));
}
