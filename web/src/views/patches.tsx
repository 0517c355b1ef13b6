/** Attention over the patches of an image: the weights of one query laid out as the image is. */
import { fill, formatPercent, strings } from "../i18n";
import { weightColor } from "../theme/colors";
import type { ViewProps } from "../types";
import { largest } from "./geometry/lanes";
import { patchLayout } from "./geometry/patches";
import { Badges } from "./shared/badges";
import { Controls, Slider } from "./shared/controls";
import { Grid } from "./shared/grid";
import { ScaleLegend } from "./shared/legend";
import { Notice, Ready } from "./shared/notice";
import { AttentionPicker, selected } from "./shared/selection";
import { useWeights } from "./shared/weights";

export function Patches({ trace, transport, state }: ViewProps) {
  const s = strings();
  const selection = selected(trace, state);
  const layout = patchLayout(selection?.attention.columns ?? 0);
  const rows = selection?.attention.rows ?? 1;
  const row = Math.max(0, Math.min(rows - 1, Math.round(state.number("row", 0))));
  const answer = useWeights(transport, trace, selection, { row });
  if (!selection || !layout) return <Notice command="softlook studio IMAGE_RUN">{s["v.patches.needs"]}</Notice>;
  const name = (index: number) =>
    index < layout.extra ? s["v.patches.class"] : place(index - layout.extra, layout.side);
  const names = Array.from({ length: layout.side }, (_, index) => String(index));
  return (
    <section class="v-view" aria-label={s["v.patches"]}>
      <Badges trace={trace} />
      <p class="v-hint">{s["v.patches.hint"]}</p>
      <Controls>
        <AttentionPicker trace={trace} state={state} mean />
        <Slider
          label={s["v.patches.query"]}
          value={row}
          min={0}
          max={rows - 1}
          step={1}
          text={name(row)}
          onInput={(value) => state.set("row", value)}
        />
      </Controls>
      <Ready answer={answer}>
        {(frame) => {
          const weights = frame.data.slice(layout.extra);
          const top = largest(weights) || 1;
          const own = row - layout.extra;
          return (
            <div class="v-patches">
              {trace.image && <img src={trace.image} alt={trace.title} />}
              <div>
                <Grid
                  label={s["v.patches"]}
                  rows={names}
                  columns={names}
                  data={weights}
                  color={(value) => weightColor(value / top)}
                  format={(value) => String(Math.round(100 * value))}
                  say={(r, c, value) =>
                    fill(s["v.sentence"], {
                      query: name(row),
                      key: place(r * layout.side + c, layout.side),
                      weight: formatPercent(value),
                    })
                  }
                  cursor={own >= 0 ? [Math.floor(own / layout.side), own % layout.side] : undefined}
                  onCursor={(r, c) => state.set("row", layout.extra + r * layout.side + c)}
                />
                <ScaleLegend color={weightColor} texts={["0 %", formatPercent(top)]} />
                {layout.extra > 0 && (
                  <p>
                    {fill(s["v.sentence"], { query: name(row), key: name(0), weight: formatPercent(frame.data[0]) })}
                  </p>
                )}
              </div>
            </div>
          );
        }}
      </Ready>
    </section>
  );
}

const place = (patch: number, side: number): string => `(${Math.floor(patch / side)}, ${patch % side})`;
