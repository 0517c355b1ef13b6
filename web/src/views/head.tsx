/** One head: lines between tokens or the matrix, statistics, and the keys of the query that is locked. */
import { useEffect, useState } from "preact/hooks";
import { useAnnounce } from "../app/session";
import { fill, formatNumber, formatPercent, strings } from "../i18n";
import { tokenLabel } from "../parts/token";
import type { AttentionInfo, Frame, ViewProps } from "../types";
import { LINE_TOKENS } from "./geometry/lines";
import { topK } from "./geometry/top";
import { useAnswer } from "./shared/answer";
import { Badges } from "./shared/badges";
import { Controls, Segments } from "./shared/controls";
import { HeadMap } from "./shared/head_map";
import { KINDS, type Kind } from "./shared/kinds";
import { LaneNumbers, type Lanes } from "./shared/lanes";
import { LinePicture } from "./shared/line_picture";
import { Notice, Ready } from "./shared/notice";
import { RowBars } from "./shared/row_bars";
import { AttentionPicker, endpoint, type Selection, selected, tokensOf } from "./shared/selection";
import { Tokens } from "./shared/tokens";
import { useWeights } from "./shared/weights";

export const Head = (props: ViewProps) => <HeadView {...props} shown={props.trace.attentions} />;

type ShownProps = ViewProps & { shown: AttentionInfo[] };

/** The view of one head out of the attentions that are shown. */
export function HeadView(props: ShownProps) {
  const selection = selected(props.trace, props.state, props.shown);
  if (!selection) return <Notice>{strings()["v.no_attention"]}</Notice>;
  return <SelectedHead {...props} selection={selection} />;
}

const SHOWN_TOKENS = 512;

function SelectedHead(props: ShownProps & { selection: Selection }) {
  const { trace, transport, state, selection } = props;
  const s = strings();
  const { attention, head } = selection;
  const { rows, columns } = tokensOf(trace, attention);
  const kind = kindOf(props);
  const locked = Math.min(Math.round(state.number("row", -1)), attention.rows - 1);
  const [pointed, setPointed] = useState(-1);
  const row = useWeights(transport, trace, selection, { kind, row: locked });
  const lanes = useAnswer(
    head === "mean" || Math.max(attention.rows, attention.columns) > LISTED
      ? null
      : `${trace.id} ${attention.path} ${head}`,
    (signal) => transport.get(endpoint(trace, "lanes"), { attention: attention.path, head }, signal) as Promise<Lanes>,
  );
  const lock = (index: number) => state.update({ row: index === locked ? undefined : index, column: undefined });
  const onEscape = useEscape(() => state.update({ row: undefined, column: undefined }));
  useSentence(row.value, rows[locked], columns);
  return (
    <section class="v-view" aria-label={s["v.head_view"]} onKeyDown={onEscape}>
      <HeadControls {...props} kind={kind} />
      {(drawingOf(props) === "lines" || kind === "value_weighted") && <Badges trace={trace} />}
      <div class="v-split">
        {drawingOf(props) === "lines" ? (
          <LinePicture
            {...{ trace, transport, selection, kind, locked, pointed }}
            lanes={lanes.value}
            onLock={lock}
            onPoint={setPointed}
          />
        ) : (
          <HeadMap {...{ trace, transport, state, selection, kind }} />
        )}
        <aside class="v-details" aria-label={s["v.details"]}>
          {locked < 0 ? (
            <p class="v-hint">{s["v.head.lock"]}</p>
          ) : (
            <Ready answer={row}>
              {(frame) => (
                <RowBars
                  caption={fill(s[`v.top.${kind}`], { token: tokenLabel(rows[locked]) })}
                  values={frame.data}
                  tokens={columns}
                  format={kind === "weights" ? formatPercent : (value) => formatNumber(value, 3)}
                />
              )}
            </Ready>
          )}
          {lanes.value && drawingOf(props) === "lines" && (
            <LaneNumbers lanes={lanes.value} row={locked >= 0 ? locked : pointed} tokens={rows} />
          )}
        </aside>
      </div>
      {drawingOf(props) === "matrix" && rows.length <= SHOWN_TOKENS && (
        <Tokens
          label={s["v.tokens"]}
          tokens={rows}
          locked={locked}
          shades={attention.kind === "cross" ? undefined : row.value?.data}
          onLock={lock}
          onPoint={setPointed}
        />
      )}
    </section>
  );
}

/** What the state asks for, as far as the trace has it. */
function kindOf({ trace, state }: ViewProps): Kind {
  const possible = trace.capabilities.includes("contributions") ? KINDS : KINDS.slice(0, 1);
  return possible.find((name) => name === state.get("kind")) ?? "weights";
}

/** The most rows whose lanes come as lists. */
const LISTED = 2048;

/** Lines if they are readable, unless the matrix was chosen. */
function drawingOf({ state, selection }: Pick<ViewProps, "state"> & { selection: Selection }): "lines" | "matrix" {
  const { rows, columns } = selection.attention;
  return Math.max(rows, columns) <= LINE_TOKENS && state.get("drawing") !== "matrix" ? "lines" : "matrix";
}

type HeadControlsProps = ShownProps & { selection: Selection; kind: Kind };

function HeadControls({ trace, state, shown, selection, kind }: HeadControlsProps) {
  const s = strings();
  const { rows, columns } = selection.attention;
  const drawings = (["lines", "matrix"] as const).map((value) => ({ value, text: s[`v.drawing.${value}`] }));
  return (
    <Controls>
      <AttentionPicker trace={trace} state={state} shown={shown} mean />
      {Math.max(rows, columns) <= LINE_TOKENS && (
        <Segments
          label={s["v.drawing"]}
          value={drawingOf({ state, selection })}
          options={drawings}
          onChange={(value) => state.set("drawing", value)}
        />
      )}
      {trace.capabilities.includes("contributions") && (
        <Segments
          label={s["v.kind"]}
          value={kind}
          options={KINDS.map((value) => ({ value, text: s[`v.kind.of.${value}`] }))}
          onChange={(value) => state.set("kind", value)}
        />
      )}
    </Controls>
  );
}

/** Esc unlocks, in the view and where nothing has the focus, unless something nearer uses the key. */
function useEscape(unlock: () => void) {
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape" && !event.defaultPrevented) unlock();
  };
  useEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  });
  return onKey;
}

/** Tells a screen reader the strongest keys of a row once it is there. */
function useSentence(frame: Frame | undefined, query: string | undefined, keys: string[]) {
  const announce = useAnnounce();
  useEffect(() => {
    if (!frame || query === undefined) return;
    const parts = topK(frame.data, 2).map((key) =>
      fill(strings()["v.sentence.part"], { weight: formatPercent(frame.data[key]), key: tokenLabel(keys[key] ?? "") }),
    );
    announce(fill(strings()["v.sentence.row"], { query: tokenLabel(query), parts: parts.join(", ") }));
  }, [frame]);
}
