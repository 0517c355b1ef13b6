/** The logit lens as a table: blocks from top to bottom, positions from left to right. */
import { useEffect, useRef } from "preact/hooks";
import { fill, formatPercent, strings } from "../../i18n";
import { TokenText, tokenLabel } from "../../parts/token";
import { textOn, tint } from "../../theme/colors";

/** The answer to GET logit_lens: the candidates after each block. */
export type Lens = { block: string; tokens: [string, number][] }[];

interface LensTableProps {
  tokens: string[];
  /** A lens for each position. */
  columns: Lens[];
  /** Block and position of the cell whose candidates are listed. */
  chosen: [number, number];
  onChoose: (block: number, column: number) => void;
}

export function LensTable({ tokens, columns, chosen, onChoose }: LensTableProps) {
  const s = strings();
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    root.current?.querySelector("[aria-pressed=true]")?.scrollIntoView({ inline: "nearest", block: "nearest" });
  }, [chosen[1]]);
  return (
    <div class="v-scroll" ref={root}>
      <table class="v-table v-lens" aria-label={s["v.lens.caption"]}>
        <thead>
          <tr>
            <td />
            {tokens.map((token, index) => (
              <th key={index} scope="col">
                <TokenText token={token} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {(columns[0] ?? []).map(({ block }, row) => (
            <tr key={block}>
              <th scope="row">{block}</th>
              {columns.map((lens, column) => {
                const [token, p] = lens[row].tokens[0];
                const background = tint("output", 0.75 * p);
                return (
                  <td key={column}>
                    <button
                      type="button"
                      aria-pressed={chosen[0] === row && chosen[1] === column}
                      title={fill(s["v.lens.cell"], { block, token: tokenLabel(token), p: formatPercent(p) })}
                      style={{ background, color: textOn(background) }}
                      onClick={() => onChoose(row, column)}
                    >
                      <TokenText token={token} />
                    </button>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
