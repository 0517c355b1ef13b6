/** Training runs side by side: curves, samples, and the attention of one example over the checkpoints. */
import { useEffect, useState } from "preact/hooks";
import { fill, strings } from "../i18n";
import type { StreamEvent, ViewProps } from "../types";
import { useAnswer, useDebounced } from "./shared/answer";
import { CheckpointAttention } from "./shared/checkpoints";
import { Choice, Controls } from "./shared/controls";
import { Notice, Ready } from "./shared/notice";
import { type Curves, Plot } from "./shared/plot";

interface Run {
  id: string;
  title?: string;
}

interface Sample {
  step: number;
  text: string;
}

export function Runs({ trace, transport, state }: ViewProps) {
  const s = strings();
  const runs = useAnswer("runs", (signal) => transport.get("runs", {}, signal) as Promise<Run[]>);
  return (
    <section class="v-view" aria-label={s["v.runs"]}>
      <Ready answer={runs}>
        {(list) =>
          list.length ? (
            <Chosen
              runs={list}
              first={list.find(({ title }) => title === trace.model.split("/").at(-1)) ?? list[0]}
              transport={transport}
              state={state}
            />
          ) : (
            <Notice command="softlook studio RUN_DIR">{s["v.runs.needs"]}</Notice>
          )
        }
      </Ready>
    </section>
  );
}

type ChosenProps = Pick<ViewProps, "transport" | "state"> & {
  runs: Run[];
  /** The run that is shown at first. */
  first: Run;
};

function Chosen({ runs, first, transport, state }: ChosenProps) {
  const s = strings();
  const selected = state.get("runs")?.split(" ") ?? [first.id];
  const chosen = runs.filter(({ id }) => selected.includes(id));
  const ids = chosen.map(({ id }) => id);
  const live = useLive(transport, ids);
  const news = useDebounced(live.count, 300);
  const curves = useAnswer(
    `${ids.join(" ")} ${news}`,
    (signal) =>
      Promise.all(
        ids.map((id) => transport.get(`runs/${encodeURIComponent(id)}/curves`, {}, signal) as Promise<Curves>),
      ),
    ids.join(" "),
  );
  const names = [...new Set((curves.value ?? []).flatMap(({ series }) => Object.keys(series)))];
  const name = names.find((one) => one === state.get("curve")) ?? names.find((one) => one === "loss") ?? names[0] ?? "";
  return (
    <>
      <Controls>
        <fieldset class="v-heads">
          <legend>{s["v.runs.choose"]}</legend>
          {runs.map(({ id, title }) => (
            <label key={id}>
              <input
                type="checkbox"
                checked={ids.includes(id)}
                onChange={() =>
                  state.set(
                    "runs",
                    runs
                      .map((run) => run.id)
                      .filter((one) => (one === id) !== ids.includes(one))
                      .join(" "),
                  )
                }
              />
              {title ?? id}
            </label>
          ))}
        </fieldset>
        {names.length > 0 && (
          <Choice
            label={s["v.runs.curve"]}
            value={name}
            options={names.map((value) => ({ value, text: value }))}
            onChange={(value) => state.set("curve", value)}
          />
        )}
        {live.on && <span class="badge live">{s.live}</span>}
      </Controls>
      <Ready answer={curves}>
        {(list) => (
          <Plot
            label={name}
            curves={list.map(({ series }, index) => ({
              name: chosen[index]?.title ?? ids[index],
              points: series[name] ?? [],
            }))}
          />
        )}
      </Ready>
      <div class="v-columns">
        {chosen.map((run) => (
          <div key={run.id}>
            <h3>{run.title ?? run.id}</h3>
            <Samples run={run} transport={transport} />
            <CheckpointAttention run={run.id} transport={transport} state={state} />
          </div>
        ))}
      </div>
    </>
  );
}

/** Counts the events of runs that are still training, and says whether any is. */
function useLive(transport: ViewProps["transport"], ids: string[]) {
  const [count, setCount] = useState(0);
  const [on, setOn] = useState(false);
  useEffect(() => {
    const abort = new AbortController();
    const seen = ({ event }: StreamEvent) => {
      if (event === "step" || event === "wait") setOn(true);
      if (event === "step") setCount((old) => old + 1);
    };
    const streams = ids.map((id) =>
      transport.stream(`runs/${encodeURIComponent(id)}/events`, {}, seen, abort.signal).catch(() => {}),
    );
    Promise.all(streams).then(() => !abort.signal.aborted && setOn(false));
    return () => abort.abort();
  }, [ids.join(" ")]);
  return { count, on };
}

function Samples({ run, transport }: Pick<ViewProps, "transport"> & { run: Run }) {
  const s = strings();
  const answer = useAnswer(
    run.id,
    (signal) => transport.get(`runs/${encodeURIComponent(run.id)}/samples`, {}, signal) as Promise<Sample[]>,
  );
  return (
    <Ready answer={answer}>
      {(samples) =>
        samples.length ? (
          <details open>
            <summary>{fill(s["v.runs.samples"], { n: samples.length })}</summary>
            <dl class="v-samples">
              {samples.slice(-3).map(({ step, text }, index) => (
                <div key={index}>
                  <dt>{fill(s["v.runs.step"], { step })}</dt>
                  <dd>{text}</dd>
                </div>
              ))}
            </dl>
          </details>
        ) : (
          <p class="v-hint">{s["v.runs.no_samples"]}</p>
        )
      }
    </Ready>
  );
}
