/** Scores of all heads in a table to sort; a row opens its head. */
import { useState } from "preact/hooks";
import { fill, formatNumber, strings } from "../../i18n";
import { nextSorting, type Sorting, sortRows } from "../geometry/table";

/** The answer to GET head_table. */
export interface HeadTableAnswer {
  columns: string[];
  /** How each column was measured. */
  measured: Record<string, string>;
  rows: { path: string; head: number; values: Record<string, number | null> }[];
}

interface HeadTableProps {
  table: HeadTableAnswer;
  onOpen: (attention: string, head: number) => void;
}

export function HeadTable({ table, onOpen }: HeadTableProps) {
  const s = strings();
  const [sorting, setSorting] = useState<Sorting | null>(null);
  const names = table.columns;
  const rows = sorting ? sortRows(table.rows, ({ values }) => values[sorting.column], sorting.descending) : table.rows;
  return (
    <details open>
      <summary>{s["v.heads.table"]}</summary>
      <p class="v-caption">{s["v.heads.table.hint"]}</p>
      <div class="v-scroll">
        <table class="v-table" aria-label={s["v.heads.table"]}>
          <thead>
            <tr>
              <th scope="col">{s["v.attention"]}</th>
              <th scope="col">{s["v.head"]}</th>
              {names.map((name) => (
                <th key={name} scope="col" title={table.measured[name]} aria-sort={sortName(sorting, name)}>
                  <button type="button" onClick={() => setSorting(nextSorting(sorting, name))}>
                    {name} <span aria-hidden="true">{arrow(sorting, name)}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(({ path, head, values }) => (
              <tr key={`${path} ${head}`}>
                <th scope="row">
                  <button
                    type="button"
                    aria-label={fill(s["v.heads.open"], { path, head })}
                    onClick={() => onOpen(path, head)}
                  >
                    {path}
                  </button>
                </th>
                <td class="v-number">{head}</td>
                {names.map((name) => (
                  <td key={name} class="v-number">
                    {formatCell(values[name], name)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** An offset is a number of positions, all other scores are shares. */
const formatCell = (value: number | null | undefined, name: string): string =>
  value === null || value === undefined ? "–" : formatNumber(value, name === "offset" ? 0 : 3);

function arrow(sorting: Sorting | null, name: string): string {
  if (sorting?.column !== name) return "";
  return sorting.descending ? "▼" : "▲";
}

function sortName(sorting: Sorting | null, name: string): "ascending" | "descending" | "none" {
  if (sorting?.column !== name) return "none";
  return sorting.descending ? "descending" : "ascending";
}
