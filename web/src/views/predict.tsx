/** What the model predicts at a position, what each block would have predicted, and a table of all heads. */
import { useState } from "preact/hooks";
import { fill, formatPercent, strings } from "../i18n";
import type { ViewProps } from "../types";
import { useAnswer } from "./shared/answer";
import { Badges } from "./shared/badges";
import { CandidateTable, candidates, outputName } from "./shared/candidates";
import { HeadTable, type HeadTableAnswer } from "./shared/head_table";
import { type Lens, LensTable } from "./shared/lens_table";
import { Notice, Ready } from "./shared/notice";
import { endpoint } from "./shared/selection";
import { Tokens } from "./shared/tokens";

type Row = [string, number, number];

const CANDIDATES = 10;

export function Predict({ trace, transport, state }: ViewProps) {
  const s = strings();
  const last = trace.rowTokens.length - 1;
  const position = Math.max(0, Math.min(last, Math.round(state.number("position", last))));
  const whole = trace.task === "classification" || trace.task === "image"; // one prediction for the whole input
  const known = trace.live || trace.capabilities.includes("next");
  const next = useAnswer(
    known && trace.task !== "table" ? `${trace.id} ${whole ? "" : position}` : null,
    async (signal) => {
      const query = { position: whole ? -1 : position, k: CANDIDATES };
      return candidates((await transport.get(endpoint(trace, "next"), query, signal)) as Row[]);
    },
    trace.id,
  );
  const heads = useAnswer(
    trace.task === "table" ? null : trace.id,
    (signal) => transport.get(endpoint(trace, "head_table"), {}, signal) as Promise<HeadTableAnswer>,
  );
  return (
    <section class="v-view" aria-label={s["v.predict"]}>
      <Badges trace={trace} />
      {!whole && trace.task !== "table" && (
        <>
          <p class="v-hint">{s[trace.task === "masked_lm" ? "v.predict.hint.mask" : "v.predict.hint"]}</p>
          <Tokens
            label={s["v.tokens"]}
            tokens={trace.rowTokens}
            locked={position}
            onLock={(index) => state.set("position", index)}
          />
        </>
      )}
      <div class="v-columns v-predict">
        {trace.task === "table" ? (
          <Notice>{s["v.predict.table"]}</Notice>
        ) : known ? (
          <Ready answer={next}>
            {(rows) => (
              <CandidateTable
                caption={
                  whole
                    ? s["v.predict.whole"]
                    : fill(s["v.predict.at"], { token: trace.rowTokens[position] ?? "", position })
                }
                rows={rows}
                name={outputName(trace)}
              />
            )}
          </Ready>
        ) : (
          <Notice command="softlook studio MODEL">{s["v.predict.needs"]}</Notice>
        )}
        {trace.capabilities.includes("logit_lens") ? (
          <LogitLens trace={trace} transport={transport} position={position} />
        ) : (
          !trace.live && known && <Notice command="softlook studio MODEL">{s["v.lens.needs"]}</Notice>
        )}
      </div>
      {trace.task !== "table" && (
        <Ready answer={heads}>
          {(table) => (
            <HeadTable table={table} onOpen={(attention, head) => state.go("view", "head", { attention, head })} />
          )}
        </Ready>
      )}
    </section>
  );
}

type LogitLensProps = Pick<ViewProps, "trace" | "transport"> & { position: number };

/** The tokens that final norm and head make of the residual stream after each block. */
function LogitLens({ trace, transport, position }: LogitLensProps) {
  const [cell, setCell] = useState<[number, number] | null>(null);
  const first = Math.max(0, Math.min(position - Math.floor(WINDOW / 2), trace.rowTokens.length - WINDOW));
  const shown = trace.rowTokens.slice(first, first + WINDOW).map((_, index) => first + index);
  const lens = useAnswer(`${trace.id} ${first}`, (signal) =>
    Promise.all(
      shown.map((at) => transport.get(endpoint(trace, "logit_lens"), { position: at }, signal) as Promise<Lens>),
    ),
  );
  return (
    <Ready answer={lens}>
      {(columns) => {
        const [block, column] = cell ?? [columns[0].length - 1, shown.indexOf(position)];
        const chosen = columns[column]?.[block];
        return (
          <div>
            <p class="v-caption">{strings()["v.lens.caption"]}</p>
            <LensTable
              tokens={shown.map((at) => trace.rowTokens[at])}
              columns={columns}
              chosen={[block, column]}
              onChoose={(b, c) => setCell([b, c])}
            />
            {chosen && (
              <p class="v-hint" aria-live="polite">
                {`${chosen.block}: ${chosen.tokens
                  .slice(0, 5)
                  .map(([token, p]) => `${token} ${formatPercent(p)}`)
                  .join(" · ")}`}
              </p>
            )}
          </div>
        );
      }}
    </Ready>
  );
}

const WINDOW = 10;
