/** The timeline of a chapter: a scrubber with a mark at each rest position k / steps, and play. */
import { type Signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { fill, strings } from "../i18n";
import { Icon } from "../parts/Icon";
import type { Store } from "../state/store";
import { reducedMotion } from "../theme/theme";

const STEP_SECONDS = 1.4;
const JUMP_SECONDS = 0.6;

export interface TimelineControl {
  t: Signal<number>;
  playing: Signal<boolean>;
  /** Moves by whole steps, to the next rest position. */
  step: (by: number) => void;
  toggle: () => void;
  seek: (t: number) => void;
}

/** The position of a chapter, two-way with `t` of the URL, and what moves it. */
export function useTimeline(state: Store, steps: number): TimelineControl {
  const t = useSignal(clamp(state.number("t", 0)));
  const playing = useSignal(false);
  const frame = useRef(0);

  const stop = useCallback(() => {
    cancelAnimationFrame(frame.current);
    playing.value = false;
  }, []);
  const save = useCallback(() => state.set("t", Number(t.peek().toFixed(3))), [state]);
  const seek = useCallback((value: number) => {
    stop();
    t.value = clamp(value);
    save();
  }, []);
  const animate = useCallback((to: number, seconds: number) => {
    cancelAnimationFrame(frame.current);
    const from = t.peek();
    const began = performance.now();
    const tick = (now: number) => {
      const share = Math.min((now - began) / (seconds * 1000), 1);
      t.value = from + (to - from) * share;
      if (share < 1) frame.current = requestAnimationFrame(tick);
      else {
        playing.value = false;
        save();
      }
    };
    frame.current = requestAnimationFrame(tick);
  }, []);
  const step = useCallback(
    (by: number) => {
      const position = t.peek() * steps;
      const to = clamp((by > 0 ? Math.floor(position + 0.01) + by : Math.ceil(position - 0.01) + by) / steps);
      if (reducedMotion.peek()) seek(to);
      else animate(to, JUMP_SECONDS * Math.max(Math.abs(to - t.peek()) * steps, 0.3));
    },
    [steps],
  );
  const toggle = useCallback(() => {
    if (playing.peek()) {
      stop();
      save();
    } else if (reducedMotion.peek()) step(t.peek() > 0.999 ? -steps : 1);
    else {
      if (t.peek() > 0.999) t.value = 0;
      playing.value = true;
      animate(1, (1 - t.peek()) * steps * STEP_SECONDS);
    }
  }, [steps]);

  useEffect(() => stop, []);
  useSignalEffect(() => {
    const saved = clamp(state.number("t", 0));
    if (!playing.peek() && Math.abs(saved - t.peek()) > 0.001) t.value = saved;
  });
  return { t, playing, step, toggle, seek };
}

function clamp(t: number): number {
  return Math.min(Math.max(t, 0), 1);
}

interface Props {
  control: TimelineControl;
  steps: number;
}

export function Timeline({ control, steps }: Props) {
  const s = strings();
  const { t, playing } = control;
  const now = useComputed(() => Math.min(Math.floor(t.value * steps + 0.01), steps));
  const label = fill(s.step_of, { n: now.value, all: steps });
  return (
    <div class="timeline" role="group" aria-label={s.timeline}>
      <button type="button" class="icon-button" onClick={() => control.step(-1)} aria-label={s.previous_step}>
        <Icon name="back" />
      </button>
      <button
        type="button"
        class="icon-button play"
        onClick={control.toggle}
        aria-label={playing.value ? s.pause : s.play}
      >
        <Icon name={playing.value ? "pause" : "play"} />
      </button>
      <button type="button" class="icon-button" onClick={() => control.step(1)} aria-label={s.next_step}>
        <Icon name="forward" />
      </button>
      <div class="timeline-track">
        <div class="timeline-marks" aria-hidden="true">
          {Array.from({ length: steps + 1 }, (_, k) => (
            <span key={k} class={k <= now.value ? "past" : ""} />
          ))}
        </div>
        <input
          type="range"
          min={0}
          max={1}
          step={0.001}
          value={t.value}
          aria-label={s.timeline}
          aria-valuetext={label}
          onInput={(event) => control.seek(Number(event.currentTarget.value))}
          onKeyDown={(event) => {
            const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
            if (!by || event.shiftKey) return;
            event.preventDefault();
            event.stopPropagation();
            control.step(by);
          }}
        />
      </div>
      <span class="timeline-label">{label}</span>
    </div>
  );
}
