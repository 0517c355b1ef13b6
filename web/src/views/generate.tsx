/** Generation token by token: the tokens stream in, and every step can be looked at again. */
import { useEffect, useState } from "preact/hooks";
import { fill, formatNumber, formatPercent, strings } from "../i18n";
import type { ViewProps } from "../types";
import { Badges } from "./shared/badges";
import { CandidateTable, candidates } from "./shared/candidates";
import { Controls, Slider, TextArea } from "./shared/controls";
import { Notice } from "./shared/notice";
import { textOf } from "./shared/selection";
import { StepAttention } from "./shared/step_attention";
import { useStream } from "./shared/stream";
import { Tokens } from "./shared/tokens";

/** A token event of POST generate. */
interface Generated {
  token: string;
  id: number;
  p: number;
  candidates: [string, number][];
  trace?: string | null;
}

export function Generate({ trace, transport, state }: ViewProps) {
  const s = strings();
  const [prompt, setPrompt] = useState(state.get("prompt") ?? textOf(trace));
  const run = useStream<Generated, { trace?: string }>(transport, "generate", "token");
  const temperature = state.number("temperature", 1);
  const topK = state.number("top_k", 50);
  const count = state.number("count", 24);
  const seed = state.number("seed", 0);
  const start = () => {
    state.update({ prompt, step: undefined });
    run.start({ prompt, max_new_tokens: count, temperature, top_k: topK, seed });
  };
  useEffect(() => {
    if (state.get("prompt") !== undefined) start(); // a link to a text shows it
  }, []);
  return (
    <section class="v-view" aria-label={s["v.generate"]}>
      <Badges trace={trace} />
      <Controls>
        <TextArea label={s["v.generate.prompt"]} value={prompt} onInput={setPrompt} onSubmit={start} />
        <Slider
          label={s["v.generate.temperature"]}
          value={temperature}
          min={0}
          max={2}
          step={0.1}
          text={temperature === 0 ? s["v.generate.greedy"] : formatNumber(temperature, 1)}
          onInput={(value) => state.set("temperature", value)}
        />
        <Slider
          label={s["v.generate.top_k"]}
          value={topK}
          min={1}
          max={100}
          step={1}
          text={String(topK)}
          onInput={(value) => state.set("top_k", value)}
        />
        <Slider
          label={s["v.generate.count"]}
          value={count}
          min={1}
          max={100}
          step={1}
          text={String(count)}
          onInput={(value) => state.set("count", value)}
        />
        <Slider
          label={s["v.generate.seed"]}
          value={seed}
          min={0}
          max={20}
          step={1}
          text={String(seed)}
          onInput={(value) => state.set("seed", value)}
        />
        {run.busy ? (
          <button type="button" onClick={run.stop}>
            {s["v.stop"]}
          </button>
        ) : (
          <button type="button" class="button v-primary" onClick={start}>
            {s["v.generate.start"]}
          </button>
        )}
      </Controls>
      {run.failure && <Notice alert>{run.failure}</Notice>}
      {run.items.length > 0 ? (
        <Steps
          tokens={run.items}
          prompt={state.get("prompt") ?? ""}
          transport={transport}
          state={state}
          trace={run.done?.trace}
        />
      ) : (
        <p class="v-hint">{run.busy ? s["v.waiting"] : s["v.generate.hint"]}</p>
      )}
    </section>
  );
}

interface StepsProps {
  tokens: Generated[];
  prompt: string;
  transport: ViewProps["transport"];
  state: ViewProps["state"];
  /** The trace of the whole text, once it is complete. */
  trace?: string;
}

/** The tokens so far; a slider goes back in time. */
function Steps({ tokens, prompt, transport, state, trace }: StepsProps) {
  const s = strings();
  const last = tokens.length - 1;
  const at = Math.max(0, Math.min(last, Math.round(state.number("step", tokens.length)) - 1));
  const choose = (index: number) => state.set("step", index >= last ? undefined : index + 1);
  const token = tokens[at];
  const known = token.trace ?? trace;
  return (
    <>
      <Slider
        label={s["v.time"]}
        value={at}
        min={0}
        max={Math.max(1, last)}
        step={1}
        text={fill(s.step_of, { n: at + 1, all: tokens.length })}
        onInput={choose}
      />
      <p class="v-prompt">{prompt}</p>
      <Tokens
        label={s["v.generate.tokens"]}
        tokens={tokens.map((one) => one.token)}
        locked={at}
        shades={tokens.map((one) => one.p)}
        marked={(index) => index > at}
        onLock={choose}
      />
      <div class="v-columns">
        <CandidateTable
          caption={fill(s["v.generate.candidates"], { token: token.token, p: formatPercent(token.p) })}
          rows={candidates(token.candidates)}
        />
        {known && (
          <StepAttention transport={transport} state={state} trace={known} behind={token.trace ? 0 : last - at} />
        )}
      </div>
    </>
  );
}
