/** Two inputs side by side: what differs, where attention differs, and which head carries the difference. */
import { useState } from "preact/hooks";
import { fill, formatNumber, strings } from "../i18n";
import { tokenLabel } from "../parts/token";
import { divergingColor } from "../theme/colors";
import type { TraceInfo, ViewProps } from "../types";
import { differenceScale } from "./geometry/difference";
import { useAnswer } from "./shared/answer";
import { Badges } from "./shared/badges";
import { ChangeTable, candidates, changes, outputName } from "./shared/candidates";
import { Controls, TextArea } from "./shared/controls";
import { Grid } from "./shared/grid";
import { ScaleLegend } from "./shared/legend";
import { Notice, Ready } from "./shared/notice";
import { AttentionPicker, type Selection, selected, textOf, tokensOf } from "./shared/selection";
import { Tokens } from "./shared/tokens";

/** The answer to POST twins. */
interface Pair {
  id: string;
  first: TraceInfo;
  second: TraceInfo;
  changed: number[];
}

interface Patched {
  before: [string, number][];
  patched: [string, number][];
  target: [string, number][];
}

export function Twins({ trace, transport, state }: ViewProps) {
  const s = strings();
  const [texts, setTexts] = useState([state.get("first") ?? textOf(trace), state.get("second") ?? textOf(trace)]);
  const [first, second] = [state.get("first"), state.get("second")];
  const ready = first !== undefined && second !== undefined && first !== second;
  const pair = useAnswer(
    ready ? JSON.stringify([first, second]) : null,
    (signal) => transport.post("twins", { first, second }, signal) as Promise<Pair>,
  );
  const compare = () => state.update({ first: texts[0], second: texts[1] });
  return (
    <section class="v-view" aria-label={s["v.twins"]}>
      <Badges trace={trace} />
      <p class="v-hint">{s["v.twins.hint"]}</p>
      <Controls>
        <TextArea
          label={s["v.twins.first"]}
          value={texts[0]}
          onInput={(text) => setTexts([text, texts[1]])}
          onSubmit={compare}
        />
        <TextArea
          label={s["v.twins.second"]}
          value={texts[1]}
          onInput={(text) => setTexts([texts[0], text])}
          onSubmit={compare}
        />
        <button type="button" class="button v-primary" disabled={texts[0] === texts[1]} onClick={compare}>
          {s["v.twins.compare"]}
        </button>
      </Controls>
      {ready ? (
        <Ready answer={pair}>{(value) => <PairView pair={value} transport={transport} state={state} />}</Ready>
      ) : (
        <p class="v-hint">{s["v.twins.same"]}</p>
      )}
    </section>
  );
}

type PairProps = Pick<ViewProps, "transport" | "state"> & { pair: Pair };

function PairView({ pair, transport, state }: PairProps) {
  const s = strings();
  const selection = selected(pair.first, state);
  const changed = (index: number) => pair.changed.includes(index);
  const nothing = () => {};
  if (!selection) return <Notice>{s["v.no_attention"]}</Notice>;
  return (
    <>
      <p class="v-label">{fill(s["v.twins.changed"], { n: pair.changed.length })}</p>
      {[pair.first, pair.second].map((one, index) => (
        <Tokens
          key={index}
          label={s[index ? "v.twins.second" : "v.twins.first"]}
          tokens={one.columnTokens}
          locked={-1}
          pressed={changed}
          marked={changed}
          onLock={nothing}
        />
      ))}
      <Controls>
        <AttentionPicker trace={pair.first} state={state} />
      </Controls>
      <div class="v-columns v-twins">
        <Difference pair={pair} transport={transport} state={state} selection={selection} />
        <Patch pair={pair} transport={transport} state={state} selection={selection} />
      </div>
    </>
  );
}

/** A difference in percentage points, with its sign. */
function points(value: number): string {
  const rounded = Math.round(100 * value);
  return rounded === 0 ? "0" : `${rounded > 0 ? "+" : "−"}${Math.abs(rounded)}`;
}

function Difference({ pair, transport, state, selection }: PairProps & { selection: Selection }) {
  const s = strings();
  const { attention, head } = selection;
  const query = { attention: attention.path, head };
  const answer = useAnswer(`${pair.id} ${attention.path} ${head}`, (signal) =>
    transport.frame(`twins/${encodeURIComponent(pair.id)}/difference`, query, signal),
  );
  const { rows, columns } = tokensOf(pair.first, attention);
  return (
    <Ready answer={answer}>
      {(frame) => {
        const scale = differenceScale(frame.data);
        return (
          <div>
            <Grid
              label={s["v.twins.difference"]}
              rows={rows}
              columns={columns}
              data={frame.data}
              color={(value) => divergingColor(scale.share(value))}
              format={points}
              say={(row, column, value) =>
                fill(s["v.twins.sentence"], {
                  query: tokenLabel(rows[row]),
                  key: tokenLabel(columns[column]),
                  value: formatNumber(100 * value, 1),
                })
              }
              cursor={[state.number("row", -1), state.number("column", -1)]}
              onCursor={(row, column) => state.update({ row, column })}
            />
            <ScaleLegend
              color={(share) => divergingColor(2 * share - 1)}
              texts={scale.ticks.map((tick) => `${formatNumber(100 * tick, 1)} %`)}
            />
          </div>
        );
      }}
    </Ready>
  );
}

type PatchProps = PairProps & { selection: Selection };

/** The first text with the output of a head from the second: does the answer move towards that of the second? */
function Patch({ pair, transport, state, selection }: PatchProps) {
  const s = strings();
  const { path } = selection.attention;
  const heads = selection.head === "mean" ? null : [selection.head];
  const [everywhere, setEverywhere] = useState(true);
  const last = pair.first.rowTokens.length - 1;
  const position = Math.min(Math.round(state.number("position", last)), last);
  const body = { layer: path, heads, positions: everywhere ? null : pair.changed, position };
  const answer = useAnswer(
    `${pair.id} ${JSON.stringify(body)}`,
    (signal) => transport.post(`twins/${encodeURIComponent(pair.id)}/patch`, body, signal) as Promise<Patched>,
    pair.id,
  );
  return (
    <div class="v-details">
      <label class="v-check">
        <input type="checkbox" checked={everywhere} onChange={() => setEverywhere(!everywhere)} />
        {s["v.twins.everywhere"]}
      </label>
      {pair.first.task !== "classification" && (
        <div>
          <p class="v-caption">{s["v.intervene.position"]}</p>
          <Tokens
            label={s["v.intervene.position"]}
            tokens={pair.first.rowTokens}
            locked={position}
            onLock={(index) => state.set("position", index)}
          />
        </div>
      )}
      <Ready answer={answer}>
        {({ before, patched, target }) => (
          <ChangeTable
            caption={fill(s["v.twins.patched"], { path, head: String(selection.head) })}
            rows={changes(candidates(before), candidates(patched), candidates(target))}
            names={[s["v.twins.first"], s["v.twins.patch"], s["v.twins.second"]]}
            name={outputName(pair.first)}
          />
        )}
      </Ready>
    </div>
  );
}
