/** Blocks of the picture, and what appears step by step. */
import type { ComponentChildren } from "preact";
import { useLit, usePointed, useProgress } from "./context";

interface BlockProps {
  name: string;
  class?: string;
  children: ComponentChildren;
}

/** A part of the picture that words of the text point at; the other blocks are then dimmed. It points at its words, too. */
export function Block({ name, class: names = "", children }: BlockProps) {
  const lit = useLit();
  const pointed = usePointed();
  const state = lit.value === "" ? "" : lit.value === name ? "lit" : "unlit";
  const onPointerEnter = () => {
    pointed.value = name;
  };
  const onPointerLeave = () => {
    pointed.value = "";
  };
  return (
    <div class={`block ${names} ${state}`} data-block={name} {...{ onPointerEnter, onPointerLeave }}>
      {children}
    </div>
  );
}

interface RevealProps {
  /** The step that brings it. */
  at: number;
  class?: string;
  children: ComponentChildren;
}

/** Keeps its place, with the number of its step, and appears with that step. */
export function Reveal({ at, class: names = "", children }: RevealProps) {
  const progress = useProgress();
  const share = progress(at);
  const hidden = share === 0;
  return (
    <div class={hidden ? "place waiting" : "place"} data-step={at} inert={hidden} aria-hidden={hidden}>
      <div class={names} style={{ opacity: share, transform: `translateY(${(1 - share) * 10}px)` }}>
        {children}
      </div>
    </div>
  );
}

interface MorphProps {
  at: number;
  before: ComponentChildren;
  after: ComponentChildren;
}

/** What step `at` changes in place: the old fades, then the new comes. */
export function Morph({ at, before, after }: MorphProps) {
  const share = useProgress()(at);
  return <div style={{ opacity: Math.abs(2 * share - 1) }}>{share < 0.5 ? before : after}</div>;
}
