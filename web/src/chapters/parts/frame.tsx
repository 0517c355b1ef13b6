/** The frame of a chapter: the story, the stage, the controls, the formula, the invariants, and the loaded model. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { ChapterProps } from "../../types";
import { type Check, Checks } from "./checks";
import { Context, useProps, useStep, useText } from "./context";
import { Formula } from "./formula";
import { Words } from "./words";

interface FrameProps {
  id: string;
  steps: number;
  props: ChapterProps;
  controls?: ComponentChildren;
  /** The formula with symbols, then with the numbers of the stage. */
  formulas: string[];
  checks: Check[];
  predict?: ComponentChildren;
  /** The same picture on the loaded model. */
  model?: ComponentChildren;
  children: ComponentChildren;
}

export function Frame({ id, steps, props, controls, formulas, checks, predict, model, children }: FrameProps) {
  const lit = useSignal("");
  const pointed = useSignal("");
  return (
    <Context.Provider value={{ id, steps, props, lit, pointed }}>
      <div class="lesson" data-lesson={id}>
        <div class="columns">
          <Story steps={steps} />
          <div class="figure">
            <div class="scene">{children}</div>
            {controls && <div class="controls">{controls}</div>}
            <div class="formulas">
              {formulas.map((source, i) => (
                <Formula key={i} source={source} />
              ))}
            </div>
            <Checks checks={checks} />
          </div>
        </div>
        <div class="after">
          {predict}
          {props.trace && model}
          <Constants />
        </div>
      </div>
    </Context.Provider>
  );
}

/** The text: one paragraph for the beginning and one for each step. A click goes there. */
function Story({ steps }: { steps: number }) {
  const text = useText();
  const { t, state } = useProps();
  const step = useStep();
  return (
    <ol class="story">
      {Array.from({ length: steps + 1 }, (_, k) => (
        <li
          key={k}
          class={k === step ? "now" : k < step ? "past" : "next"}
          aria-current={k === step ? "step" : undefined}
        >
          <button
            type="button"
            aria-label={`${text("step")} ${k}`}
            onKeyDown={(event) => event.key === " " && event.stopPropagation()}
            onClick={() => {
              t.value = k / steps;
              state.set("t", k / steps);
            }}
          >
            {k}
          </button>
          <p>
            <Words text={text(`${k}`)} />
          </p>
        </li>
      ))}
    </ol>
  );
}

/** What the numbers are. */
function Constants() {
  const text = useText();
  return <p class="constants">{text("constants")}</p>;
}
