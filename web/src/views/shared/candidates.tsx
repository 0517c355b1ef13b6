/** Candidates of a token with their probabilities, alone and before and after a change. */
import { formatNumber, formatPercent, strings } from "../../i18n";
import { TokenText } from "../../parts/token";
import type { TraceInfo } from "../../types";

/** A token, its probability, and its logit where the answer has it. */
export interface Candidate {
  token: string;
  p: number;
  logit?: number;
}

/** Candidates from [token, p] or [token, logit, p]. */
export const candidates = (rows: (string | number)[][]): Candidate[] =>
  rows.map((row) =>
    row.length > 2
      ? { token: String(row[0]), logit: Number(row[1]), p: Number(row[2]) }
      : { token: String(row[0]), p: Number(row[1]) },
  );

const Share = ({ value, kind = "" }: { value: number; kind?: string }) => (
  <span class={`v-bar ${kind}`} aria-hidden="true">
    <span style={{ width: `${Math.min(100, 100 * value)}%` }} />
  </span>
);

/** What the outputs of a model are: classes or tokens. */
export const outputName = ({ task }: TraceInfo): string =>
  strings()[["classification", "image", "table"].includes(task) ? "v.class" : "v.token"];

interface CandidateTableProps {
  caption: string;
  rows: Candidate[];
  /** What the rows are; default: tokens. */
  name?: string;
}

export function CandidateTable({ caption, rows, name }: CandidateTableProps) {
  const s = strings();
  const logits = rows.some((row) => row.logit !== undefined);
  return (
    <table class="v-table v-candidates">
      <caption>{caption}</caption>
      <thead>
        <tr>
          <th scope="col">{name ?? s["v.token"]}</th>
          {logits && <th scope="col">{s["v.logit"]}</th>}
          <th scope="col" colSpan={2}>
            {s["v.probability"]}
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, index) => (
          <tr key={index} data-p={row.p}>
            <th scope="row">
              <TokenText token={row.token} />
            </th>
            {logits && <td class="v-number">{formatNumber(row.logit ?? Number.NaN)}</td>}
            <td class="v-number">{formatPercent(row.p)}</td>
            <td class="v-bar-cell">
              <Share value={row.p} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export interface Change {
  token: string;
  before: number | null;
  after: number | null;
  /** The probability to compare with, such as that for another text. */
  target?: number | null;
}

/** The candidates of both lists in the order of the second; null where a list does not name a token. */
export function changes(before: Candidate[], after: Candidate[], target?: Candidate[]): Change[] {
  const rows: Change[] = after.map(({ token, p }) => ({
    token,
    after: p,
    before: before.find((other) => other.token === token)?.p ?? null,
  }));
  const gone = before.filter(({ token }) => !after.some((other) => other.token === token));
  const all: Change[] = [...rows, ...gone.map(({ token, p }) => ({ token, before: p, after: null }))];
  if (target) for (const row of all) row.target = target.find(({ token }) => token === row.token)?.p ?? null;
  return all.sort((a, b) => largest(b) - largest(a)).slice(0, SHOWN);
}

const SHOWN = 8;

const largest = ({ before, after, target }: Change): number => Math.max(before ?? 0, after ?? 0, target ?? 0);

interface ChangeTableProps {
  caption: string;
  rows: Change[];
  /** Names of before and after, and of the target if there is one. */
  names: string[];
  /** What the rows are. */
  name: string;
}

export function ChangeTable({ caption, rows, names, name }: ChangeTableProps) {
  const s = strings();
  const percent = (value: number | null) => (value === null ? "–" : formatPercent(value));
  return (
    <div class="v-scroll" tabIndex={0}>
      <table class="v-table v-candidates v-changes">
        <caption>{caption}</caption>
        <thead>
          <tr>
            <th scope="col">{name}</th>
            <th scope="col">{names[0]}</th>
            <th scope="col">{names[1]}</th>
            {names[2] && <th scope="col">{names[2]}</th>}
            <th scope="col">{s["v.difference"]}</th>
            <td />
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index} data-before={row.before ?? ""} data-after={row.after ?? ""} data-target={row.target ?? ""}>
              <th scope="row">
                <TokenText token={row.token} />
              </th>
              <td class="v-number">{percent(row.before)}</td>
              <td class="v-number">{percent(row.after)}</td>
              {names[2] && <td class="v-number">{percent(row.target ?? null)}</td>}
              <td class="v-number">{difference(row)}</td>
              <td class="v-bar-cell">
                <Share value={row.before ?? 0} kind="before" />
                <Share value={row.after ?? 0} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The difference in percentage points, with its sign. */
function difference({ before, after }: Change): string {
  if (before === null || after === null) return "–";
  const points = 100 * (after - before);
  if (Math.abs(points) < 0.005) return "0";
  const size = Math.abs(points);
  return `${points > 0 ? "▲ +" : "▼ −"}${formatNumber(size, size < 1 ? 2 : 1)}`;
}
