/** The sentence and the numbers of the cell under the cursor. */
import { useEffect } from "preact/hooks";
import { useAnnounce } from "../app/session";
import { fill, formatNumber, formatPercent, strings } from "../i18n";
import type { AttentionInfo, Strings, TraceInfo, Transport } from "../types";
import type { Cell } from "./map-overlay";
import { tokenLabel } from "./token";
import type { AxisTokens } from "./tokens-of";
import { useRequest } from "./use-request";

interface Props {
  trace: TraceInfo;
  transport: Transport;
  attention: AttentionInfo;
  head: number | "mean";
  tokens: AxisTokens;
  cell: Cell | null;
  locked: boolean;
  /** Whether the cursor was moved by keys: only then a screen reader speaks. */
  spoken: boolean;
}

interface Explanation {
  formula: { name: string; value: number | null }[];
  python: string;
}

/** What a query looks at, in words: "'it' puts 41 % on 'animal', 22 % on 'tired'". */
export function sentenceOf(weights: ArrayLike<number>, row: number, column: number, tokens: AxisTokens): string {
  const s = strings();
  const query = tokenLabel(tokens.rows[row] ?? String(row));
  const name = (key: number) => tokenLabel(tokens.columns[key] ?? String(key));
  if (!(weights[column] > 0)) return fill(s.map_masked, { query, key: name(column) });
  const others = Array.from({ length: weights.length }, (_, key) => key)
    .filter((key) => key !== column && weights[key] >= 0.02)
    .sort((a, b) => weights[b] - weights[a])
    .slice(0, 2);
  const parts = [column, ...others].map((key) =>
    fill(s.map_on, { weight: formatPercent(weights[key]), key: name(key) }),
  );
  return `${fill(s.map_sentence, { query, weights: parts.join(", ") })}.`;
}

export function MapReadout({ trace, transport, attention, head, tokens, cell, locked, spoken }: Props) {
  const s = strings();
  const announce = useAnnounce();
  const endpoint = (name: string) => `traces/${encodeURIComponent(trace.id)}/${name}`;
  const query = { attention: attention.path, head };
  const name = `${trace.id} ${attention.path} ${head}`;
  const row = useRequest(
    cell ? `${name} ${cell.row}` : null,
    (signal) => transport.frame(endpoint("weights"), { ...query, rows: `${cell!.row}:${cell!.row + 1}` }, signal),
    40,
  );
  const explanation = useRequest(
    cell && locked && head !== "mean" ? `${name} ${cell.row} ${cell.column}` : null,
    async (signal) =>
      (await transport.get(
        endpoint("explain"),
        { ...query, row: cell!.row, column: cell!.column },
        signal,
      )) as Explanation,
    120,
  );
  const sentence = cell && row.value ? sentenceOf(row.value.data, cell.row, cell.column, tokens) : "";
  useEffect(() => {
    if (!sentence || !(spoken || locked)) return;
    const timer = setTimeout(() => announce(sentence), 250);
    return () => clearTimeout(timer);
  }, [sentence, spoken, locked]);
  return (
    <div class="map-readout">
      <p class="sentence">
        {sentence || (cell ? "…" : s.map_move)} {locked && <span class="badge">{s.map_locked}</span>}
      </p>
      {row.failure && <p class="failure">{row.failure}</p>}
      {locked && explanation.value && <Explained explanation={explanation.value} />}
    </div>
  );
}

function numberOf(value: number): string {
  const size = Math.abs(value);
  if (size > 0 && size < 1e-4) return value.toExponential(2).replaceAll("-", "−");
  return formatNumber(value, size < 0.1 ? 5 : 3);
}

/** The names of the terms in the language of the page. */
const TERMS: Record<string, keyof Strings> = {
  q·k: "map_product",
  scale: "map_factor",
  "mask, bias and softcap": "map_rest",
  score: "map_score",
  "log-sum-exp": "map_lse",
  weight: "map_weight",
};

function Explained({ explanation }: { explanation: Explanation }) {
  const s = strings();
  return (
    <>
      <dl class="terms">
        {explanation.formula.map(({ name, value }) => (
          <div key={name}>
            <dt>{TERMS[name] ? s[TERMS[name]] : name}</dt>
            <dd>{value === null ? "−∞" : numberOf(value)}</dd>
          </div>
        ))}
      </dl>
      <details class="python">
        <summary>{s.map_python}</summary>
        <pre tabIndex={0}>{explanation.python}</pre>
      </details>
    </>
  );
}
