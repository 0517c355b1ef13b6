/** The attention and the head that a view shows, and the lists to choose them from. */
import { strings } from "../../i18n";
import { type AxisTokens, tokensOf as known, labelsOf } from "../../parts/tokens-of";
import type { AttentionInfo, Store, TraceInfo } from "../../types";
import { Choice } from "./controls";

/** A head by its index, or the mean of all heads. */
export type Head = number | "mean";

export interface Selection {
  attention: AttentionInfo;
  head: Head;
}

/** The attention and head of the state, or the first of those that the view can show; null if there are none. */
export function selected(trace: TraceInfo, state: Store, shown: AttentionInfo[] = trace.attentions): Selection | null {
  const attention = shown.find(({ path }) => path === state.get("attention")) ?? shown[0];
  if (!attention) return null;
  const head = state.get("head") === "mean" ? "mean" : Math.round(state.number("head", 0));
  return { attention, head: head === "mean" || (head >= 0 && head < attention.heads) ? head : 0 };
}

/** The texts of the queries and keys of an attention. */
export function tokensOf(trace: TraceInfo, attention: AttentionInfo): AxisTokens {
  const { rows, columns } = known(trace, attention);
  return { rows: padded(rows, attention.rows), columns: padded(columns, attention.columns) };
}

/** The stack of an attention in an encoder-decoder; "" in other models. */
export const stackOf = ({ path }: AttentionInfo): string => /^(encoder|decoder)\b/.exec(path)?.[0] ?? "";

/** The texts of the queries; those of a decoder also say what they predict. */
export const queriesOf = (trace: TraceInfo, attention: AttentionInfo): string[] =>
  padded(labelsOf(trace, attention).rows, attention.rows);

/** Tokens without a text are named by their position. */
function padded(tokens: string[], count: number): string[] {
  return Array.from({ length: count }, (_, index) => tokens[index] ?? `#${index}`);
}

interface PickerProps {
  trace: TraceInfo;
  state: Store;
  shown?: AttentionInfo[];
  /** Whether the mean of all heads can be chosen. */
  mean?: boolean;
  /** The head while none is chosen. */
  first?: Head;
}

export function AttentionPicker({ trace, state, shown = trace.attentions, mean = false, first = 0 }: PickerProps) {
  const s = strings();
  const selection = selected(trace, state, shown);
  if (!selection) return null;
  const { attention } = selection;
  const head = state.get("head") === undefined ? first : selection.head;
  const heads = Array.from({ length: attention.heads }, (_, index) => ({ value: String(index), text: String(index) }));
  return (
    <>
      <Choice
        label={s["v.attention"]}
        value={attention.path}
        options={shown.map((info) => ({ value: info.path, text: `${info.path} · ${s[`v.kind.${info.kind}`]}` }))}
        onChange={(value) => state.set("attention", value)}
      />
      <Choice
        label={s["v.head"]}
        value={String(head)}
        options={mean ? [...heads, { value: "mean", text: s["v.head.mean"] }] : heads}
        onChange={(value) => state.set("head", value)}
      />
    </>
  );
}

/** The text that the model read: titles of an encoder-decoder also have its output. */
export const textOf = (trace: TraceInfo): string => trace.title.split(" → ")[0];

/** The path of an endpoint of a trace. */
export const endpoint = (trace: TraceInfo, name: string): string => `traces/${encodeURIComponent(trace.id)}/${name}`;
