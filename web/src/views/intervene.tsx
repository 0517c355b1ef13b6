/** Change heads and tokens and see the prediction change: ablation, attention temperature, masked tokens. */
import { useSession } from "../app/session";
import { fill, formatNumber, formatPercent, strings } from "../i18n";
import type { TraceInfo, ViewProps } from "../types";
import { useAnswer, useDebounced } from "./shared/answer";
import { Badges } from "./shared/badges";
import { ChangeTable, candidates, changes, outputName } from "./shared/candidates";
import { Choice, Controls, Slider } from "./shared/controls";
import { Notice, Ready } from "./shared/notice";
import { endpoint, selected } from "./shared/selection";
import { Tokens } from "./shared/tokens";

interface Intervention {
  id: string;
  trace?: TraceInfo;
  before: [string, number][];
  after: [string, number][];
}

interface Settings {
  path: string;
  heads: number[];
  /** How much of the heads is taken away: 0 nothing, 1 all. */
  amount: number;
  replacement: string;
  temperature: number;
  mask: number[];
  /** The position whose prediction is compared; -1 is the last. */
  position: number;
}

export function Intervene({ trace, transport, state }: ViewProps) {
  const s = strings();
  const selection = selected(trace, state);
  if (!selection) return <Notice>{s["v.no_attention"]}</Notice>;
  const { attention } = selection;
  const settings: Settings = {
    path: attention.path,
    heads: integers(state.get("heads")).filter((head) => head < attention.heads),
    amount: state.number("amount", 1),
    replacement: state.get("replacement") ?? "zero",
    temperature: state.number("temperature", 1),
    mask: integers(state.get("mask")),
    position: Math.min(Math.round(state.number("position", -1)), trace.rowTokens.length - 1),
  };
  const heads = Array.from({ length: attention.heads }, (_, head) => head);
  return (
    <section class="v-view" aria-label={s["v.intervene"]}>
      <Badges trace={trace} />
      <p class="v-hint">{s["v.intervene.hint"]}</p>
      <Controls>
        <Choice
          label={s["v.attention"]}
          value={attention.path}
          options={trace.attentions.map(({ path, kind }) => ({
            value: path,
            text: `${path} · ${s[`v.kind.${kind}`]}`,
          }))}
          onChange={(value) => state.update({ attention: value, heads: undefined })}
        />
        <fieldset class="v-heads">
          <legend>{s["v.intervene.heads"]}</legend>
          {heads.map((head) => (
            <label key={head}>
              <input
                type="checkbox"
                checked={settings.heads.includes(head)}
                onChange={() => state.set("heads", listed(toggle(settings.heads, head)))}
              />
              {head}
            </label>
          ))}
          <button
            type="button"
            onClick={() => state.set("heads", listed(settings.heads.length < heads.length ? heads : []))}
          >
            {s["v.intervene.all"]}
          </button>
        </fieldset>
        <Slider
          label={s["v.intervene.amount"]}
          value={settings.amount}
          min={0}
          max={1}
          step={0.05}
          text={formatPercent(settings.amount)}
          onInput={(value) => state.set("amount", value)}
        />
        <Choice
          label={s["v.intervene.replacement"]}
          value={settings.replacement}
          options={["zero", "mean"].map((value) => ({ value, text: s[`v.intervene.${value as "zero" | "mean"}`] }))}
          onChange={(value) => state.set("replacement", value)}
        />
        <Slider
          label={s["v.intervene.temperature"]}
          value={Math.log2(settings.temperature)}
          min={-5}
          max={5}
          step={0.25}
          text={formatNumber(settings.temperature)}
          onInput={(value) => state.set("temperature", Number((2 ** value).toPrecision(6)))}
        />
        <button
          type="button"
          onClick={() => state.update({ heads: undefined, amount: undefined, temperature: undefined, mask: undefined })}
        >
          {s["v.intervene.reset"]}
        </button>
      </Controls>
      <p class="v-label">{s["v.intervene.mask"]}</p>
      <Tokens
        label={s["v.intervene.mask"]}
        tokens={trace.columnTokens}
        locked={-1}
        pressed={(index) => settings.mask.includes(index)}
        marked={(index) => settings.mask.includes(index)}
        onLock={(index) => state.set("mask", listed(toggle(settings.mask, index)))}
      />
      {trace.task !== "classification" && trace.task !== "image" && (
        <>
          <p class="v-label">{s["v.intervene.position"]}</p>
          <Tokens
            label={s["v.intervene.position"]}
            tokens={trace.rowTokens}
            locked={settings.position < 0 ? trace.rowTokens.length - 1 : settings.position}
            onLock={(index) => state.set("position", index)}
          />
        </>
      )}
      <Outcome trace={trace} transport={transport} settings={settings} />
    </section>
  );
}

const toggle = (list: number[], item: number): number[] =>
  list.includes(item) ? list.filter((other) => other !== item) : [...list, item].sort((a, b) => a - b);

const listed = (list: number[]): string | undefined => list.join(" ") || undefined;

const integers = (text = ""): number[] =>
  text
    .split(" ")
    .filter((part) => /^\d+$/.test(part))
    .map(Number);

const likeliest = (outputs: [string, number][]): [string, number] =>
  outputs.reduce((best, one) => (one[1] > best[1] ? one : best), ["", 0]);

/** The body of POST intervene: only what differs from the model as it is. */
export function interventionOf({ path, heads, amount, replacement, temperature, mask, position }: Settings) {
  const chosen = heads.length > 0;
  return {
    ablate: chosen && amount > 0 ? [{ layer: path, heads, amount, replacement }] : [],
    temperature: chosen && temperature !== 1 ? [{ layer: path, heads, value: temperature }] : [],
    mask,
    position,
  };
}

type OutcomeProps = Pick<ViewProps, "trace" | "transport"> & { settings: Settings };

function Outcome({ trace, transport, settings }: OutcomeProps) {
  const s = strings();
  const session = useSession();
  const body = useDebounced(interventionOf(settings));
  const idle = !body.ablate.length && !body.temperature.length && !body.mask.length;
  const answer = useAnswer(
    idle ? null : `${trace.id} ${JSON.stringify(body)}`,
    (signal) => transport.post(endpoint(trace, "intervene"), body, signal) as Promise<Intervention>,
    idle ? null : trace.id,
  );
  if (idle) return <p class="v-hint">{s["v.intervene.idle"]}</p>;
  return (
    <Ready answer={answer}>
      {({ id, trace: made, before, after }) => {
        const rows = changes(candidates(before), candidates(after));
        const [was, is] = [likeliest(before), likeliest(after)];
        return (
          <>
            <ChangeTable
              caption={s["v.intervene.output"]}
              rows={rows}
              names={[s["v.before"], s["v.after"]]}
              name={outputName(trace)}
            />
            <p aria-live="polite">
              {fill(s["v.intervene.sentence"], {
                before: was[0],
                p: formatPercent(was[1]),
                after: is[0],
                q: formatPercent(is[1]),
              })}
            </p>
            {made && (
              <button
                type="button"
                onClick={() => {
                  session.add(made, false);
                  session.state.go("view", "head", { trace: id });
                }}
              >
                {s["v.intervene.open"]}
              </button>
            )}
          </>
        );
      }}
    </Ready>
  );
}
