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
