/** Generation token by token: the tokens stream in, and every step can be looked at again. */
import { useEffect, useRef, useState } from "preact/hooks";
import { fill, formatNumber, formatPercent, strings } from "../i18n";
import type { ViewProps } from "../types";
import { reason } from "./shared/answer";
import { Badges } from "./shared/badges";
import { CandidateTable, candidates } from "./shared/candidates";
import { Controls, Slider, TextArea } from "./shared/controls";
import { Notice } from "./shared/notice";
import { textOf } from "./shared/selection";
import { StepAttention } from "./shared/step_attention";
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
  const run = useGeneration(transport);
  const temperature = state.number("temperature", 1);
  const topK = state.number("top_k", 50);
  const count = state.number("count", 24);
  const seed = state.number("seed", 0);
  const start = () => {
    state.set("prompt", prompt);
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
      {run.tokens.length > 0 ? (
        <Steps tokens={run.tokens} prompt={run.prompt} transport={transport} state={state} trace={run.trace} />
      ) : (
        <p class="v-hint">{run.busy ? s["v.waiting"] : s["v.generate.hint"]}</p>
      )}
    </section>
  );
}

interface Request {
  prompt: string;
  max_new_tokens: number;
  temperature: number;
  top_k: number;
  seed: number;
}

function useGeneration(transport: ViewProps["transport"]) {
  const [tokens, setTokens] = useState<Generated[]>([]);
  const [trace, setTrace] = useState<string>();
  const [prompt, setPrompt] = useState("");
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState("");
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);
  const start = async (request: Request) => {
    abort.current?.abort();
    const own = new AbortController();
    abort.current = own;
    setTokens([]);
    setTrace(undefined);
    setPrompt(request.prompt);
    setFailure("");
    setBusy(true);
    try {
      await transport.stream(
        "generate",
        request,
        ({ event, data }) => {
          if (own.signal.aborted) return;
          if (event === "token") setTokens((old) => [...old, data as Generated]);
          if (event === "done") setTrace((data as { trace?: string }).trace);
          if (event === "error") setFailure(String((data as { message?: string }).message));
        },
        own.signal,
      );
    } catch (error) {
      if (!own.signal.aborted) setFailure(reason(error));
    }
    if (abort.current === own) setBusy(false);
  };
  const stop = () => {
    abort.current?.abort();
    setBusy(false);
  };
  return { tokens, trace, prompt, busy, failure, start, stop };
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
  const [chosen, setChosen] = useState<number | null>(null);
  const last = tokens.length - 1;
  const at = chosen === null ? last : Math.min(chosen, last);
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
        onInput={(value) => setChosen(value >= last ? null : value)}
      />
      <p class="v-prompt">{prompt}</p>
      <Tokens
        label={s["v.generate.tokens"]}
        tokens={tokens.map((one) => one.token)}
        locked={at}
        shades={tokens.map((one) => one.p)}
        marked={(index) => index > at}
        onLock={setChosen}
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
