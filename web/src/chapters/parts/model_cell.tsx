/** One cell of the loaded model: the dot product behind a weight. */
import { formatNumber } from "../../i18n";
import { tokenLabel } from "../../parts/token";
import { tokensOf } from "../../parts/tokens-of";
import type { Query } from "../../types";
import { Checks } from "./checks";
import { useProps, useText } from "./context";
import { Formula } from "./formula";
import { keptIndex } from "./kept";
import { dot, largest } from "./math";
import { Model, Select } from "./model";
import { useAnswer, useChosen, useWeights } from "./remote";
import { VectorBlock } from "./squares";

export interface QueryKey {
  query: number[][] | number[];
  key: number[][] | number[];
  scale: number;
  lse: number[] | number;
}

export const first = <T,>(value: T[] | T[][]): T[] => (Array.isArray(value[0]) ? value[0] : value) as T[];

/** Squares of a vector that fit on the page. */
const SHOWN = 16;

export function ModelCell() {
  const text = useText();
  const { state } = useProps();
  const chosen = useChosen();
  const [row, setRow] = keptIndex(state, "row", (chosen?.rows ?? 1) - 1, chosen?.rows ?? 1);
  const [column, setColumn] = keptIndex(state, "column", 0, chosen?.columns ?? 1);
  const weights = useWeights(chosen)?.[0];
  const path = chosen ? `traces/${chosen.trace.id}/qk` : "";
  const cell: Query = chosen
    ? { attention: chosen.attention, head: chosen.head, rows: `${row}:${row + 1}`, columns: `${column}:${column + 1}` }
    : {};
  const numbers = useAnswer<QueryKey>(path, cell);
  if (!chosen || !weights || !numbers) return null;
  const { scale } = numbers;
  const [query, key] = [first<number>(numbers.query), first<number>(numbers.key)];
  const lse = Array.isArray(numbers.lse) ? numbers.lse[0] : numbers.lse;
  const product = dot(query, key);
  const weight = weights[row]?.[column] ?? 0;
  const tokens = tokensOf(chosen.trace, chosen.info);
  const limit = largest([query, key]);
  const computed = Math.exp(product * scale - lse);
  return (
    <Model
      chosen={chosen}
      row={{ value: row, tokens: tokens.rows.slice(0, chosen.rows).map(tokenLabel), onChange: setRow }}
    >
      <Select
        label={text("model.column")}
        value={column}
        options={tokens.columns.slice(0, chosen.columns).map(tokenLabel)}
        onChange={setColumn}
      />
      <VectorBlock letter="q" values={query.slice(0, SHOWN)} tone="query" limit={limit} />
      <VectorBlock letter="k" values={key.slice(0, SHOWN)} tone="key" limit={limit} />
      <Formula
        source={`\\q{\\b{q}}\\cdot\\k{\\b{k}}=${formatNumber(product, 3)}\\quad \\w{w}=e^{${formatNumber(product, 3)}\\cdot ${formatNumber(scale, 4)}\\minus ${formatNumber(lse, 3)}}=\\w{${formatNumber(computed, 5)}}`}
      />
      {weight > 0 && <Checks checks={[{ name: "model.cell", error: Math.abs(computed - weight), tolerance: 1e-3 }]} />}
    </Model>
  );
}
