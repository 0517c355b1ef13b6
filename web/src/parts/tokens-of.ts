/** The tokens of the rows and columns of an attention. */
import type { AttentionInfo, TraceInfo } from "../types";

export interface AxisTokens {
  rows: string[];
  columns: string[];
}

export function tokensOf(trace: TraceInfo, attention: AttentionInfo): AxisTokens {
  const { rowTokens, columnTokens } = trace;
  if (attention.kind === "cross") return { rows: rowTokens, columns: columnTokens };
  const own = attention.kind === "causal" && attention.rows === rowTokens.length ? rowTokens : columnTokens;
  return { rows: own, columns: own };
}

/** The same, where queries of a decoder say what they predict: "0→3". */
export function labelsOf(trace: TraceInfo, attention: AttentionInfo): AxisTokens {
  const { rows, columns } = tokensOf(trace, attention);
  const { predictedTokens, rowTokens } = trace;
  if (!predictedTokens || rows !== rowTokens) return { rows, columns };
  const predicting = rows.map((token, row) => (predictedTokens[row] ? `${token}→${predictedTokens[row]}` : token));
  return { rows: predicting, columns };
}
