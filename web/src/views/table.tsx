/** A table's features: a row whose cells can be edited, attention between features, and permutation importance. */
import { useId } from "preact/hooks";
import { fill, formatNumber, strings } from "../i18n";
import type { TraceInfo, ViewProps } from "../types";
import { useAnswer, useDebounced } from "./shared/answer";
import { Badges } from "./shared/badges";
import { CandidateTable, candidates } from "./shared/candidates";
import { Controls } from "./shared/controls";
import { type FeatureImportance, ImportanceTable } from "./shared/importance";
import { Ready } from "./shared/notice";
import { AttentionPicker, selected, tokensOf } from "./shared/selection";
import { WeightGrid } from "./shared/weight_grid";
import { useWeights } from "./shared/weights";

type Value = string | number | null;

interface Column {
  name: string;
  type: "number" | "category";
  values?: string[];
}

/** The answer to GET table/columns: the columns, and a row to begin with. */
interface Columns {
  columns: Column[];
  row: Record<string, Value>;
}

interface Prediction {
  prediction: string | number;
  probabilities: [string, number][] | null;
  attention: TraceInfo;
}

export function Table({ trace, transport, state }: ViewProps) {
  const s = strings();
  const columns = useAnswer("columns", (signal) => transport.get("table/columns", {}, signal) as Promise<Columns>);
  const importance = useAnswer(
    "importance",
    (signal) => transport.get("table/importance", {}, signal) as Promise<FeatureImportance>,
  );
  return (
    <section class="v-view" aria-label={s["v.table"]}>
      <Badges trace={trace} live />
      <p class="v-hint">{s["v.table.hint"]}</p>
      <Ready answer={columns}>
        {({ columns, row }) => <EditedRow columns={columns} row={row} transport={transport} state={state} />}
      </Ready>
      <h3>{s["v.table.importance"]}</h3>
      <Ready answer={importance}>
        {(answer) => (
          <div class="v-columns">
            <ImportanceTable importance={answer} />
            {answer.features && answer.attention_matrix && (
              <div>
                <p class="v-caption">{s["v.table.mean_attention"]}</p>
                <WeightGrid
                  label={s["v.table.mean_attention"]}
                  rows={answer.features}
                  columns={answer.features}
                  data={answer.attention_matrix.flat().map((weight) => weight ?? 0)}
                  state={state}
                  keys={["feature", "other"]}
                />
              </div>
            )}
          </div>
        )}
      </Ready>
    </section>
  );
}

type RowProps = Pick<ViewProps, "transport" | "state"> & Columns;

/** The cells of a row as fields, and what the model predicts for them. */
function EditedRow({ columns, row, transport, state }: RowProps) {
  const s = strings();
  const edits = new URLSearchParams(state.get("cells")); // what was typed, by column
  const edit = (name: string, value: string) => {
    edits.set(name, value);
    state.set("cells", edits.toString());
  };
  const cells = Object.fromEntries(
    columns.map(({ name, type }) => [name, edits.has(name) ? parse(edits.get(name) ?? "", type) : row[name]]),
  );
  const debounced = useDebounced(cells);
  const edited = columns.filter(({ name }) => cells[name] !== row[name]);
  const predict = (values: Record<string, Value>) => (signal: AbortSignal) =>
    transport.post("table/predict", { row: values }, signal) as Promise<Prediction>;
  const first = useAnswer("first", predict(row));
  const changed = columns.some(({ name }) => debounced[name] !== row[name]);
  const now = useAnswer(changed ? JSON.stringify(debounced) : null, predict(debounced), "row");
  return (
    <>
      <div class="v-cells">
        {columns.map((column) => (
          <CellField
            key={column.name}
            column={column}
            value={edits.get(column.name) ?? text(row[column.name])}
            edited={edited.includes(column)}
            onChange={(value) => edit(column.name, value)}
          />
        ))}
        <button type="button" disabled={state.get("cells") === undefined} onClick={() => state.set("cells", undefined)}>
          {s["v.table.reset"]}
        </button>
      </div>
      <Ready answer={changed && now.state !== "waiting" ? now : first}>
        {(prediction) => (
          <div class="v-columns">
            <Outcome first={first.value} now={prediction} />
            <RowAttention trace={prediction.attention} transport={transport} state={state} />
          </div>
        )}
      </Ready>
    </>
  );
}

interface CellFieldProps {
  column: Column;
  value: string;
  edited: boolean;
  onChange: (value: string) => void;
}

function CellField({ column, value, edited, onChange }: CellFieldProps) {
  const s = strings();
  const id = useId();
  return (
    <label class={edited ? "v-field edited" : "v-field"} for={id}>
      <span>{column.name}</span>
      {column.values ? (
        <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          <option value="">{s["v.table.missing"]}</option>
          {column.values.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      ) : (
        <input
          id={id}
          type="text"
          inputMode={column.type === "number" ? "decimal" : undefined}
          value={value}
          placeholder={s["v.table.missing"]}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
    </label>
  );
}

const text = (value: Value): string => (value === null ? "" : String(value));

/** What a text means in a column: "" is missing, and a decimal comma is a point. */
function parse(typed: string, type: Column["type"]): Value {
  if (typed === "") return null;
  const number = Number(typed.replace(",", "."));
  return type === "number" && Number.isFinite(number) ? number : typed;
}

function Outcome({ first, now }: { first?: Prediction; now: Prediction }) {
  const s = strings();
  const shown = (value: string | number) => (typeof value === "number" ? formatNumber(value, 3) : value);
  return (
    <div aria-live="polite">
      <p class="v-answer" data-prediction={now.prediction}>
        {shown(now.prediction)}
        {first && first.prediction !== now.prediction && (
          <small>{fill(s["v.table.before"], { value: shown(first.prediction) })}</small>
        )}
      </p>
      {now.probabilities && (
        <CandidateTable caption={s["v.table.probabilities"]} rows={candidates(now.probabilities)} name={s["v.class"]} />
      )}
    </div>
  );
}

type RowAttentionProps = Pick<ViewProps, "trace" | "transport" | "state">;

/** Attention between the features of the row. */
function RowAttention({ trace, transport, state }: RowAttentionProps) {
  const s = strings();
  const chosen = selected(trace, state);
  // Features are compared by the mean of all heads, unless a head was chosen.
  const selection = chosen && state.get("head") === undefined ? { ...chosen, head: "mean" as const } : chosen;
  const answer = useWeights(transport, trace, selection);
  if (!selection) return null;
  const { rows, columns } = tokensOf(trace, selection.attention);
  return (
    <div>
      <Controls>
        <AttentionPicker trace={trace} state={state} mean first="mean" />
      </Controls>
      <Ready answer={answer}>
        {(frame) => (
          <WeightGrid
            label={s["v.table.row_attention"]}
            rows={rows}
            columns={columns}
            data={frame.data}
            state={state}
          />
        )}
      </Ready>
    </div>
  );
}
