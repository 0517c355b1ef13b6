/** Attention rollout: how much of each input token reaches a token through all layers. */
import { fill, formatNumber, formatPercent, strings } from "../i18n";
import { tokenLabel } from "../parts/token";
import type { Query, ViewProps } from "../types";
import { groupsOf } from "./geometry/long_text";
import { useAnswer } from "./shared/answer";
import { Badges } from "./shared/badges";
import { Controls, Segments } from "./shared/controls";
import { Notice, Ready } from "./shared/notice";
import { RowBars } from "./shared/row_bars";
import { endpoint, stackOf, tokensOf } from "./shared/selection";
import { Tokens } from "./shared/tokens";

/** Of texts with more tokens than this, the shares of groups are shown. */
const SINGLE = 1024;
const GROUPS = 64;

export function RolloutView({ trace, transport, state }: ViewProps) {
  const s = strings();
  const layers = trace.attentions.filter(({ kind }) => kind !== "cross");
  const names = [...new Set(layers.map(stackOf))];
  const stack = names.find((name) => name === state.get("stack")) ?? names[0] ?? "";
  const attention = layers.find((one) => stackOf(one) === stack);
  const tokens = attention ? tokensOf(trace, attention).rows : [];
  const last = tokens.length - 1;
  const row = Math.max(0, Math.min(last, Math.round(state.number("row", last))));
  const groups = tokens.length > SINGLE ? groupsOf(tokens.length, GROUPS) : null;
  const query: Query = { row, stack };
  if (groups) query.sources = groups.map((group) => `${group.first}:${group.last}`).join(",");
  const answer = useAnswer(
    attention ? `${trace.id} ${stack} ${row}` : null,
    (signal) => transport.frame(endpoint(trace, "rollout"), query, signal),
    `${trace.id} ${stack}`,
  );
  if (!attention) return <Notice>{s["v.no_attention"]}</Notice>;
  const values = Array.from(answer.value?.data ?? []);
  const most = Math.max(...values, 1e-9);
  return (
    <section class="v-view" aria-label={s["v.rollout"]}>
      <Badges trace={trace} />
      <p class="v-hint">{s["v.rollout.hint"]}</p>
      {names.length > 1 && (
        <Controls>
          <Segments
            label={s["v.rollout.stack"]}
            value={stack}
            options={names.map((value) => ({ value, text: value }))}
            onChange={(value) => state.update({ stack: value, row: undefined })}
          />
        </Controls>
      )}
      <Tokens
        label={s["v.tokens"]}
        tokens={tokens}
        locked={row}
        shades={groups ? undefined : values.map((value) => value / most)}
        onLock={(index) => state.set("row", index)}
      />
      <Ready answer={answer}>
        {() => (
          <div>
            <RowBars
              caption={fill(s["v.rollout.of"], { token: tokenLabel(tokens[row]) })}
              values={values}
              tokens={groups?.map((group) => `${group.first} – ${group.last - 1}`) ?? tokens}
              count={12}
              onChoose={(index) => state.set("row", groups?.[index].first ?? index)}
            />
            <p class="v-hint">
              {fill(s[groups ? "v.rollout.groups" : "v.rollout.sum"], {
                sum: formatNumber(
                  values.reduce((sum, value) => sum + value, 0),
                  3,
                ),
                self: formatPercent(values[row] ?? 0),
              })}
            </p>
          </div>
        )}
      </Ready>
    </section>
  );
}
