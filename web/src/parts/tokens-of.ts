/** The tokens of the rows and columns of an attention; rows of a decoder with the token that they predict: "0→3". */
import type { AttentionInfo, TraceInfo } from "../types";

export interface AxisTokens {
  rows: string[];
  columns: string[];
}

export function tokensOf(trace: TraceInfo, attention: AttentionInfo): AxisTokens {
  const { rowTokens, columnTokens, predictedTokens } = trace;
  const predicting = rowTokens.map((token, row) =>
    predictedTokens?.[row] ? `${token}→${predictedTokens[row]}` : token,
  );
  if (attention.kind === "cross") return { rows: predicting, columns: columnTokens };
  const isDecoder = attention.kind === "causal" && attention.rows === rowTokens.length;
  return isDecoder ? { rows: predicting, columns: rowTokens } : { rows: columnTokens, columns: columnTokens };
}
